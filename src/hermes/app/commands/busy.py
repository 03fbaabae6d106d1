"""/busy: what becomes of messages that come while the agent works."""

from __future__ import annotations

from typing import get_args

from hermes.app.commands import Command, CommandContext, Reply
from hermes.app.interactions import Busy
from hermes.core.errors import ConfigError

_MEANING: dict[Busy, str] = {
    "interrupt": "the running turn is stopped for it",
    "steer": "it guides the running turn",
    "queue": "it waits for the running turn",
}


async def run(ctx: CommandContext, args: str) -> Reply:
    people = ctx.session.interactions
    if args:
        for mode in get_args(Busy):
            if args.lower() == mode:
                people.busy = mode
                break
        else:
            raise ConfigError(f"/busy takes one of {', '.join(_MEANING)}.")
    return Reply(f"A message while the agent works: {_MEANING[people.busy]} ({people.busy}).")


COMMAND = Command(
    "busy",
    "what becomes of messages while the agent works",
    run,
    usage="[queue|steer|interrupt]",
    surfaces="live",
)

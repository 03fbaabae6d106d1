"""/busy: what happens to messages sent while the agent works."""

from typing import get_args

from hermes.app.commands import CommandContext, Reply, command
from hermes.app.interactions import BusyMode
from hermes.core.errors import ConfigError

_MEANING: dict[BusyMode, str] = {
    "interrupt": "stop the current turn",
    "steer": "steer the current turn",
    "queue": "wait for the current turn to end",
}


@command("busy", "what Enter does while it works", "[queue|steer|interrupt]", surfaces="live")
async def set_busy_mode(ctx: CommandContext, args: str) -> Reply:
    interactions = ctx.session.interactions
    if args:
        for mode in get_args(BusyMode):
            if args.lower() == mode:
                interactions.busy_mode = mode
                break
        else:
            raise ConfigError(f"/busy takes one of: {', '.join(_MEANING)}.")
    mode = interactions.busy_mode
    return Reply(f"Messages sent while it works: {_MEANING[mode]} ({mode}).")

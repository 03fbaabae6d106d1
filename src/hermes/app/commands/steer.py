"""/steer: guidance for the turn that is running."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply
from hermes.core.errors import ConfigError
from hermes.core.message import user_message


async def run(ctx: CommandContext, args: str) -> Reply:
    if not args:
        raise ConfigError("/steer needs the text.")
    if not ctx.session.busy:
        return Reply("Nothing is running; sent as a message.", submit=user_message(args))
    ctx.session.submit(user_message(args), "steer")
    return Reply("Steering: it is told as soon as the current step has ended.")


COMMAND = Command(
    "steer",
    "tell the running turn something",
    run,
    usage="TEXT",
    never_waits=True,
    surfaces="live",
)

"""/queue: a message for when the running turn has ended."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply
from hermes.core.errors import ConfigError
from hermes.core.message import user_message


async def run(ctx: CommandContext, args: str) -> Reply:
    if not args:
        raise ConfigError("/queue needs the text.")
    idle = not (ctx.session.busy or ctx.session.starting)
    return Reply("" if idle else "Queued: it is next.", submit=user_message(args))


COMMAND = Command(
    "queue",
    "send a message for when the running turn has ended",
    run,
    usage="TEXT",
    never_waits=True,
    surfaces="live",
)

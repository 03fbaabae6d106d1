"""/queue: send a message after the current turn."""

from hermes.app.commands import Command, CommandContext, Reply
from hermes.core.errors import ConfigError
from hermes.core.message import user_message


async def queue_message(ctx: CommandContext, args: str) -> Reply:
    if not args:
        raise ConfigError("/queue needs a text.")
    idle = not (ctx.session.is_busy or ctx.session.is_starting)
    return Reply("" if idle else "Queued for after the current turn.", submit=user_message(args))


COMMAND = Command(
    "queue",
    "send a message after the current turn",
    queue_message,
    usage="TEXT",
    never_waits=True,
    surfaces="live",
)

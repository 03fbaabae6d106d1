"""/queue: send a message after the current turn."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError
from hermes.core.message import user_message


@command(
    "queue", "send a message after the current turn", "TEXT", never_waits=True, surfaces="live"
)
async def queue_message(ctx: CommandContext, args: str) -> Reply:
    if not args:
        raise ConfigError("/queue needs a text.")
    idle = not (ctx.session.is_busy or ctx.session.is_starting)
    return Reply("" if idle else "Queued for after the current turn.", submit=user_message(args))

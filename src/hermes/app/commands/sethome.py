"""/sethome: send notices for the owner to this chat."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError


@command(
    "sethome",
    "send notices for the owner to this chat",
    admin_only=True,
    needs_model=False,
    surfaces="messenger",
)
async def set_home_chat(ctx: CommandContext, args: str) -> Reply:
    """The gateway answers it itself."""
    raise ConfigError("/sethome works in messengers only.")

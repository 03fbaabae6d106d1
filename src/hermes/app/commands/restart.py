"""/restart: restart the gateway."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError


@command(
    "restart",
    "restart the gateway",
    admin_only=True,
    never_waits=True,
    needs_model=False,
    surfaces="messenger",
)
async def restart_gateway(ctx: CommandContext, args: str) -> Reply:
    """The gateway answers it itself."""
    raise ConfigError("/restart works in messengers. In a terminal: hermes gateway restart")

"""/platforms: the state of each messenger."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError


@command(
    "platforms",
    "the state of each messenger",
    never_waits=True,
    needs_model=False,
    surfaces="messenger",
)
async def show_platforms(ctx: CommandContext, args: str) -> Reply:
    """The gateway answers it itself."""
    raise ConfigError("/platforms works in messengers. In a terminal: hermes gateway status")

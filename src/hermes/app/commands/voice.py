"""/voice: speak answers, too, or not."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError


@command("voice", "speak answers, too, or not", "[on|off]", needs_model=False, surfaces="messenger")
async def set_voice(ctx: CommandContext, args: str) -> Reply:
    """The gateway answers it itself."""
    raise ConfigError("/voice works in messengers only.")

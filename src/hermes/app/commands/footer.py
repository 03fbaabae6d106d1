"""/footer: a line about the model below answers, or none."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError


@command(
    "footer",
    "a line about the model below answers, or none",
    "[on|off]",
    needs_model=False,
    surfaces="messenger",
)
async def set_footer(ctx: CommandContext, args: str) -> Reply:
    """The gateway answers it itself."""
    raise ConfigError("/footer works in messengers only.")

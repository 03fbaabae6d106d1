"""/verbose: show or hide tool output."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError


@command("verbose", "show or hide tool output", "[on|off]", surfaces="live")
async def set_verbose(ctx: CommandContext, args: str) -> Reply:
    interactions = ctx.session.interactions
    word = args.lower() or ("off" if interactions.verbose else "on")
    if word not in ("on", "off"):
        raise ConfigError("/verbose takes on or off.")
    interactions.verbose = word == "on"
    return Reply(f"Tool output: {'shown' if interactions.verbose else 'hidden'}.")

"""/verbose: whether what tools print is shown."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply
from hermes.core.errors import ConfigError


async def run(ctx: CommandContext, args: str) -> Reply:
    people = ctx.session.interactions
    word = args.lower() or ("off" if people.verbose else "on")
    if word not in ("on", "off"):
        raise ConfigError("/verbose takes on or off.")
    people.verbose = word == "on"
    return Reply(f"What tools print is {'shown' if people.verbose else 'not shown'}.")


COMMAND = Command("verbose", "show what tools print", run, "[on|off]", surfaces="live")

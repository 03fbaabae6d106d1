"""/version: the version of Hermes."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.version import VERSION


@command("version", "the version of Hermes", never_waits=True, needs_model=False)
async def show_version(ctx: CommandContext, args: str) -> Reply:
    return Reply(f"hermes {VERSION}")

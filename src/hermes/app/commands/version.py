"""/version: the version of Hermes."""

from hermes.app.commands import Command, CommandContext, Reply
from hermes.version import VERSION


async def show_version(ctx: CommandContext, args: str) -> Reply:
    return Reply(f"hermes {VERSION}")


COMMAND = Command(
    "version", "the version of Hermes", show_version, never_waits=True, needs_model=False
)

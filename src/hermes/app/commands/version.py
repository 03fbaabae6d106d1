"""/version: which Hermes this is."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply
from hermes.version import VERSION


async def run(ctx: CommandContext, args: str) -> Reply:
    return Reply(f"hermes {VERSION}")


COMMAND = Command(
    "version", "the version of this program", run, never_waits=True, needs_model=False
)

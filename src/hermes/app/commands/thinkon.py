"""/thinkon: the model thinks again."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply
from hermes.app.commands.reasoning import run as reasoning


async def run(ctx: CommandContext, args: str) -> Reply:
    return await reasoning(ctx, "on")


COMMAND = Command("thinkon", "the same as /reasoning on", run, surfaces="live")

"""/thinkon: turn reasoning on again."""

from hermes.app.commands import Command, CommandContext, Reply
from hermes.app.commands.effort import set_effort as reasoning


async def turn_reasoning_on(ctx: CommandContext, args: str) -> Reply:
    return await reasoning(ctx, "on")


COMMAND = Command("thinkon", "same as /reasoning on", turn_reasoning_on, surfaces="live")

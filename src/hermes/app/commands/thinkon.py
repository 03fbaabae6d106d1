"""/thinkon: turn reasoning on again."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.app.commands.effort import set_effort


@command("thinkon", "same as /reasoning on", surfaces="live")
async def turn_reasoning_on(ctx: CommandContext, args: str) -> Reply:
    return await set_effort.run(ctx, "on")

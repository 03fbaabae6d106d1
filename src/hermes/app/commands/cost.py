"""/cost: what this session has cost."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.app.commands.usage import show_usage


@command("cost", "tokens and cost of this session", needs_model=False)
async def show_cost(ctx: CommandContext, args: str) -> Reply:
    return await show_usage.run(ctx, "cost")

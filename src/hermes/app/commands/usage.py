"""/usage: tokens used by this session."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError
from hermes.core.message import Usage


@command("usage", "tokens used by this session; with cost, the price", "[cost]", needs_model=False)
async def show_usage(ctx: CommandContext, args: str) -> Reply:
    if args not in ("", "cost"):
        raise ConfigError("/usage takes no arguments, or `cost`.")
    reports = [m.usage for m in ctx.session.transcript.history.messages if m.usage is not None]
    total = sum(reports, Usage())
    if not reports:
        return Reply("No tokens have been counted in this session.")
    lines = [
        f"model calls: {len(reports)}",
        f"input tokens: {total.input} ({total.cache_read} from a cache)",
        f"output tokens: {total.output} ({total.reasoning} for reasoning)",
    ]
    if args:
        cost = "unknown" if total.cost is None else f"${total.cost:.4f}"
        lines.append(f"cost: {cost}{' (estimated)' if total.estimated else ''}")
    return Reply("\n".join(lines))

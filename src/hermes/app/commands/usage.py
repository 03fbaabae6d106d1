"""/usage: the tokens this session has used."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply
from hermes.core.errors import ConfigError
from hermes.core.message import Usage


async def run(ctx: CommandContext, args: str) -> Reply:
    if args not in ("", "cost"):
        raise ConfigError("/usage takes nothing, or the word cost.")
    told = [m.usage for m in ctx.session.transcript.history.messages if m.usage is not None]
    total = sum(told, Usage())
    if not told:
        return Reply("No tokens have been counted in this session.")
    lines = [
        f"model calls: {len(told)}",
        f"input tokens: {total.input} ({total.cache_read} from a cache)",
        f"output tokens: {total.output} ({total.reasoning} of them reasoning)",
    ]
    if args:
        cost = "not known" if total.cost is None else f"${total.cost:.4f}"
        lines.append(f"cost: {cost}{' (estimated)' if total.estimated else ''}")
    return Reply("\n".join(lines))


COMMAND = Command(
    "usage",
    "the tokens this session has used; with cost, the price",
    run,
    "[cost]",
    needs_model=False,
)

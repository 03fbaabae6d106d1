"""/insights: tokens and cost of the last days, by model."""

import time

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError
from hermes.core.ledger import UsageRow
from hermes.core.text import format_plural

_DEFAULT_DAYS = 30
_MAX_MODELS = 8


@command(
    "insights",
    "tokens used in the last days; with cost, the price",
    "[DAYS] [cost]",
    needs_model=False,
)
async def show_insights(ctx: CommandContext, args: str) -> Reply:
    days, cost = _DEFAULT_DAYS, False
    for word in args.lower().split():
        if word == "cost":
            cost = True
        elif word.isdecimal() and 1 <= int(word) <= 3650:
            days = int(word)
        else:
            raise ConfigError("/insights takes a number of days and `cost`: /insights 7 cost")
    rows = await ctx.runtime.store.ledger.sum_calls("model", time.time() - days * 86400)
    if not rows:
        return Reply(f"No model calls in the last {days} days.")
    rows.sort(key=lambda row: -(row.input + row.output))
    lines = [f"The last {days} days, by model:"]
    lines += [_format_row(row, cost=cost) for row in rows[:_MAX_MODELS]]
    if len(rows) > _MAX_MODELS:
        lines.append(f"and {len(rows) - _MAX_MODELS} more models")
    return Reply("\n".join(lines))


def _format_row(row: UsageRow, *, cost: bool) -> str:
    cached = f", {100 * row.cache_read / row.input:.0f}% from a cache" if row.cache_read else ""
    text = f"{row.key or '-'}: {format_plural(row.calls, 'call')}, {row.input:,} tokens in{cached}"
    text += f", {row.output:,} out"
    if cost:
        text += f", ${row.cost:.4f}" + (f" ({row.unpriced} of unknown price)" * bool(row.unpriced))
    return text

"""/insights: what the model calls of the last days used."""

from __future__ import annotations

import time

from hermes.app.commands import Command, CommandContext, Reply
from hermes.core.errors import ConfigError
from hermes.core.ledger import UsageRow
from hermes.core.text import format_plural

_DAYS = 30
_MODELS = 8


async def run(ctx: CommandContext, args: str) -> Reply:
    days, cost = _DAYS, False
    for word in args.lower().split():
        if word == "cost":
            cost = True
        elif word.isdecimal() and 1 <= int(word) <= 3650:
            days = int(word)
        else:
            raise ConfigError("/insights takes how many days, and the word cost: /insights 7 cost")
    rows = await ctx.runtime.store.ledger.sum_calls("model", time.time() - days * 86400)
    if not rows:
        return Reply(f"No model calls in the last {days} days.")
    rows.sort(key=lambda row: -(row.input + row.output))
    lines = [f"The last {days} days, by model:"]
    lines += [_line(row, cost=cost) for row in rows[:_MODELS]]
    if len(rows) > _MODELS:
        lines.append(f"and {len(rows) - _MODELS} more models")
    return Reply("\n".join(lines))


def _line(row: UsageRow, *, cost: bool) -> str:
    cached = f", {100 * row.cache_read / row.input:.0f}% from a cache" if row.cache_read else ""
    text = f"{row.key or '-'}: {format_plural(row.calls, 'call')}, {row.input:,} tokens in{cached}"
    text += f", {row.output:,} out"
    if cost:
        text += f", ${row.cost:.4f}" + (f" ({row.unpriced} of unknown price)" * bool(row.unpriced))
    return text


COMMAND = Command(
    "insights",
    "what the last days used; with cost, the price",
    run,
    usage="[DAYS] [cost]",
    needs_model=False,
)

"""Usage of models by day: since when to count, sums of rows of the ledger, and the budget."""

import time
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from hermes.config.schema import BudgetSection
from hermes.core.ledger import By, Ledger, UsageRow

MAX_DAYS = 36_500
_DAY = 86_400.0
_SHOWN = ("calls", "failed", "input", "output", "cache_read", "unpriced")


def first_day(now: float, days: int) -> float:
    """The midnight at which the first of so many days began, including today."""
    today = time.localtime(now)
    back = min(days, MAX_DAYS) - 1
    return time.mktime((today.tm_year, today.tm_mon, today.tm_mday - back, 0, 0, 0, 0, 0, -1))


def sum_usage(rows: Sequence[UsageRow]) -> UsageRow:
    """All rows as one."""
    names = [name for name in UsageRow.__struct_fields__ if name != "key"]
    return UsageRow("all", **{name: sum(getattr(row, name) for row in rows) for name in names})


def describe_usage(row: UsageRow) -> dict[str, Any]:
    return {**{n: getattr(row, n) for n in _SHOWN}, "cost_usd": round(row.cost, 6)}


_CAPS: tuple[tuple[str, By], ...] = (
    ("daily", "day"),
    ("user", "user"),
    ("job", "job"),
    ("session", "session"),
)
_MAX_LEVELS = 20


async def describe_budget(budget: BudgetSection, ledger: Ledger, now: float) -> dict[str, Any]:
    """The caps, how far each is used, and when the daily ones start again."""
    levels = await list_levels(budget, ledger, now)
    resets = first_day(now + _DAY, 1)
    return {"caps": structs.asdict(budget), "levels": levels, "resets_at": resets}


async def list_levels(budget: BudgetSection, ledger: Ledger, now: float) -> list[dict[str, Any]]:
    """How far each cap is used: of today, of today's users and jobs, and of the sessions that used
    most."""
    found: list[dict[str, Any]] = []
    for kind, by in _CAPS:
        caps = {unit: getattr(budget, f"{kind}_{unit}") for unit in ("usd", "tokens")}
        if all(limit is None for limit in caps.values()):
            continue
        since = 0.0 if by == "session" else first_day(now, 1)
        rows = [row for row in await ledger.sum_calls(by, since) if row.key]
        if by == "day":
            rows = [sum_usage(rows)]
        for unit, limit in caps.items():
            if limit is None:
                continue
            levels = [_describe_level(kind, unit, limit, row) for row in rows]
            found += sorted(levels, key=lambda level: -level["spent"])[:_MAX_LEVELS]
    return found


def _describe_level(kind: str, unit: str, limit: float, row: UsageRow) -> dict[str, Any]:
    spent = row.cost if unit == "usd" else row.input + row.output
    return {
        "cap": f"{kind}_{unit}",
        "unit": unit,
        "key": "" if kind == "daily" else row.key,
        "limit": limit,
        "spent": round(spent, 6),
        "percent": round(100 * spent / limit, 1) if limit else 100.0,
    }

"""Usage of models by day: since when to count, and the sum of several rows of the ledger."""

import time
from collections.abc import Sequence

from hermes.core.ledger import UsageRow

MAX_DAYS = 36_500


def first_day(now: float, days: int) -> float:
    """The midnight at which the first of so many days began, including today."""
    today = time.localtime(now)
    back = min(days, MAX_DAYS) - 1
    return time.mktime((today.tm_year, today.tm_mon, today.tm_mday - back, 0, 0, 0, 0, 0, -1))


def sum_usage(rows: Sequence[UsageRow]) -> UsageRow:
    """All rows as one."""
    names = [name for name in UsageRow.__struct_fields__ if name != "key"]
    return UsageRow("all", **{name: sum(getattr(row, name) for row in rows) for name in names})

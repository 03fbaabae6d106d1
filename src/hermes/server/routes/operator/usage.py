"""Usage: what the models cost, by day and by another property, and how far the budget is used."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, cast, get_args

from msgspec import structs

from hermes.app.live.usage import describe_budget, describe_usage, first_day, sum_usage
from hermes.config.load import read_config
from hermes.core.ledger import By, UsageRow
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import bad_request
from hermes.server.route import Route, RouteServices

_DAY = 86_400.0
_MAX_GROUPS = 100
_MAX_DAYS = 366


async def get_usage(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get the usage of models by day and by one other property, which another can divide."""
    by, split = _read_property(call, "by", "model"), _read_property(call, "split", "")
    since, until = _read_span(call)
    ledger = services.runtime.store.ledger
    by_day = await ledger.sum_calls("day", since, until)
    groups = await ledger.sum_calls(by or "model", since, until)
    rows = [{"key": row.key, **describe_usage(row)} for row in _order_groups(groups)]
    data: dict[str, Any] = {
        "from": _format_day(since),
        "to": _format_day(until - 1),
        "days": [{"key": row.key, **describe_usage(row)} for row in by_day],
        "groups": rows,
        "total": describe_usage(sum_usage(by_day)),
        "budget": structs.asdict(services.runtime.setup.config.budget),
    }
    if split:
        parts: dict[str, list[dict[str, Any]]] = {}
        for key, row in await ledger.split_calls("day", split, since, until):
            parts.setdefault(key, []).append({"key": row.key, **describe_usage(row)})
        data["split"] = [{"key": day, "parts": found} for day, found in parts.items()]
    return json_response(data)


def _order_groups(rows: list[UsageRow]) -> list[UsageRow]:
    return sorted(rows, key=lambda row: (-row.cost, -(row.input + row.output), row.key))[
        :_MAX_GROUPS
    ]


def _read_property(call: ApiCall, name: str, default: str) -> By | None:
    value = call.request.query.get(name, default)
    if value and value not in get_args(By):
        raise bad_request(f"{name} must be one of {', '.join(get_args(By))}.", name)
    return cast(By, value) if value else None


def _read_span(call: ApiCall) -> tuple[float, float]:
    """From and until, in seconds: days, both included, or the last so many days."""
    query = call.request.query
    today = first_day(time.time(), 1)
    days = query.get("days", "30")
    if not days.isascii() or not days.isdecimal() or not 1 <= int(days[:5]) <= _MAX_DAYS:
        raise bad_request(f"days must be a number from 1 to {_MAX_DAYS}.", "days")
    last = _read_day(query.get("to", ""), "to", today)
    first = _read_day(query.get("from", ""), "from", first_day(last + _DAY / 2, int(days)))
    until = first_day(last + 1.5 * _DAY, 1)
    if not first < until:
        raise bad_request("from must not be after to.", "from")
    return first, until


def _read_day(text: str, name: str, default: float) -> float:
    if not text:
        return default
    try:
        found = time.mktime(time.strptime(text, "%Y-%m-%d"))
    except (ValueError, OverflowError):
        raise bad_request(f"{name} must be a day: 2026-01-31.", name) from None
    return found


def _format_day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment))


async def get_budget(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get the caps and how far each is used."""
    now, runtime = time.time(), services.runtime
    budget = read_config(runtime.setup.home).budget
    return json_response(await describe_budget(budget, runtime.store.ledger, now))


_get = partial(Route, "GET", scope="admin")
ROUTES = (
    _get("/api/usage", get_usage, "usage", query=("by", "split", "from", "to", "days")),
    _get("/api/budget", get_budget, "budget"),
)

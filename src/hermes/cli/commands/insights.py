"""`hermes insights`: what the model calls of this home used and cost."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, get_args

from hermes.cli.main import fail
from hermes.cli.parser import Parser, positive, profile_option
from hermes.cli.terminal.formatting import bars, compact, money, percent, table, width
from hermes.cli.terminal.text import dump, one_line
from hermes.config import env, paths
from hermes.config.load import load_setup
from hermes.core.ledger import By, Row

_EPILOG = """\
Tokens count the whole prompt; cached is the part of it that came from a cache. The cost is
the provider's own word, else its list price; calls of unknown price are counted apart.

examples:
  hermes insights
  hermes insights --days 7 --by model
  hermes insights --json | jq .totals.cost_usd
"""
_SECTIONS: tuple[By, ...] = ("model", "purpose", "tool")
_ALL: tuple[By, ...] = ("day", "model", "provider", "purpose", "tool")
_LONGEST = 36_500
_ROWS = 15
"""Of a table among others."""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes insights", "Show what model calls used and cost.", _EPILOG)
    parser.add_argument("--days", type=positive, default=30, metavar="N", help="default: 30")
    choices = [name for name in get_args(By) if name in {*_ALL, "session", "user", "job"}]
    parser.add_argument("--by", choices=choices, help="one table, by this")
    parser.add_argument("--json", action="store_true", help="as JSON")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.complain(unknown)
    import asyncio

    return asyncio.run(_run(args))


async def _run(args: Namespace) -> int:
    setup = load_setup(args.profile)
    for sentence in setup.warnings:
        fail(sentence)
    since = first_day(time.time(), args.days)
    wanted: tuple[By, ...] = tuple(dict.fromkeys(("day", args.by))) if args.by else _ALL
    found = await _totals(setup.home, wanted, since)
    if args.json:
        print(dump(_object(found, args, since)))
        return 0
    if not any(found.values()):
        print(f"No model calls in the last {args.days} days.", file=sys.stderr)
        return 0
    _show(found, args)
    return 0


async def _totals(home: Any, wanted: Sequence[By], since: float) -> dict[By, list[Row]]:
    file = paths.database_file(home)
    if not file.exists():
        return {by: [] for by in wanted}
    from hermes.store.sqlite import SqliteStore

    store = SqliteStore(file)
    try:
        for sentence in await store.wait_until_open():
            fail(sentence)
        return {by: await store.ledger.sum_calls(by, since) for by in wanted}
    finally:
        await store.close()


def first_day(now: float, days: int) -> float:
    """The midnight at which the first of so many days began, today counted."""
    at = time.localtime(now)
    back = min(days, _LONGEST) - 1
    return time.mktime((at.tm_year, at.tm_mon, at.tm_mday - back, 0, 0, 0, 0, 0, -1))


def added(rows: Sequence[Row]) -> Row:
    """One row of all."""
    sums = {
        name: sum(getattr(row, name) for row in rows)
        for name in Row.__struct_fields__
        if name != "key"
    }
    return Row("all", **sums)


# -- for programs --------------------------------------------------------------------------


def _object(found: dict[By, list[Row]], args: Namespace, since: float) -> dict[str, Any]:
    head = {
        "days": args.days,
        "since": time.strftime("%Y-%m-%d", time.localtime(since)),
        "totals": _public(added(found["day"])),
    }
    shown = (args.by,) if args.by else _ALL
    return head | {f"by_{by}": [{by: row.key, **_public(row)} for row in found[by]] for by in shown}


def _public(row: Row) -> dict[str, Any]:
    data: dict[str, Any] = {
        "calls": row.calls,
        "failed_calls": row.failed,
        "input_tokens": row.input,
        "output_tokens": row.output,
        "cache_read_tokens": row.cache_read,
        "cache_write_tokens": row.cache_write,
        "reasoning_tokens": row.reasoning,
        "cache_hit_rate": round(row.cache_read / row.input, 4) if row.input else 0.0,
        "cost_usd": round(row.cost, 9),
        "unpriced_calls": row.unpriced,
        "estimated_calls": row.estimated,
        "seconds_per_call": round(row.seconds / row.calls, 3) if row.calls else 0.0,
    }
    return data | ({"uses": round(row.uses)} if row.uses else {})


# -- for people ----------------------------------------------------------------------------


def _show(found: dict[By, list[Row]], args: Namespace) -> None:
    room = width()
    colour = env.supports_colour(sys.stdout.isatty())
    print(_headline(added(found["day"]), args.days))
    sections: tuple[By, ...] = (args.by,) if args.by else _SECTIONS
    if not args.by or args.by == "day":
        print()
        for line in _chart(found["day"], args.days, room, colour=colour):
            print(line)
    for by in sections:
        if found[by]:
            print()
            head, *lines = _table(by, found[by], room)
            shown = len(lines) if args.by else _ROWS
            for line in (head, *lines[:shown]):
                print(line)
            if len(lines) > shown:
                print(f"... {len(lines) - shown} more: hermes insights --by {by}")


def _headline(row: Row, days: int) -> str:
    from hermes.core.text import counted

    parts = [
        f"{'Today' if days == 1 else f'Last {days} days'}: {counted(row.calls, 'call')}",
        f"{compact(row.input)} tokens in ({percent(row.cache_read, row.input)} from cache)",
        f"{compact(row.output)} out",
        money(row.cost),
    ]
    if row.unpriced:
        parts.append(f"{counted(row.unpriced, 'call')} of unknown price")
    if row.failed:
        parts.append(f"{row.failed:,} failed")
    return ", ".join(parts)


def _chart(rows: list[Row], days: int, room: int, *, colour: bool) -> list[str]:
    """A bar per day since the first with calls: dollars, tokens where nothing has a price."""
    by_day = {row.key: row for row in rows}
    now = time.time()
    shown: list[Row] = []
    for back in range(1, min(days, _LONGEST) + 1):
        name = time.strftime("%Y-%m-%d", time.localtime(first_day(now, back)))
        shown.insert(0, by_day.get(name, Row(name)))
        if name <= min(by_day):
            break
    if any(row.cost for row in shown):
        return bars([(r.key, r.cost, money(r.cost)) for r in shown], room, colour=colour)
    told = [(r.key, r.input + r.output, compact(r.input + r.output)) for r in shown]
    return bars(told, room, colour=colour)


def _table(by: By, rows: list[Row], room: int) -> list[str]:
    tools = by == "tool"
    head = (by.upper(), "USES" if tools else "CALLS", "IN", "CACHED", "OUT", "COST", "S/CALL")
    order = rows
    if by != "day":
        order = sorted(rows, key=lambda r: (-r.cost, -(r.input + r.output), r.key))
    lines = [
        (
            one_line(row.key or "-", 48),
            f"{row.uses if tools else row.calls:,.0f}",
            compact(row.input),
            percent(row.cache_read, row.input),
            compact(row.output),
            "?" if row.unpriced and not row.cost else money(row.cost),
            f"{row.seconds / row.calls:.1f}" if row.calls else "-",
        )
        for row in order
    ]
    return table(head, lines, room)

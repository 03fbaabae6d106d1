"""`hermes insights`: what the model calls of this home used and cost."""

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias, get_args

from hermes.app.live.usage import MAX_DAYS, first_day, sum_usage
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, open_store, run_async
from hermes.cli.terminal.tables import (
    draw_bars,
    format_count,
    format_money,
    format_percent,
    format_table,
    terminal_width,
)
from hermes.cli.terminal.text import TOKEN_KINDS, one_line, to_json
from hermes.config import env, paths
from hermes.core.ledger import By, UsageRow

_EPILOG = """\
Input tokens count the whole prompt; CACHED is the part of it that came from a cache. The cost is
what the provider reported, otherwise its list price; calls of unknown price are counted
separately.

examples:
  hermes insights
  hermes insights --days 7 --by model
  hermes insights --json | jq .totals.cost_usd
"""
UsageByGroup: TypeAlias = dict[By, list[UsageRow]]
_SECTIONS: tuple[By, ...] = ("model", "purpose", "tool")
_ALL: tuple[By, ...] = ("day", "model", "provider", "purpose", "tool")
_SECTION_ROWS = 15
"""Rows of a table that is one of several."""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("insights", "Show what model calls used and cost.", _EPILOG)
    parser.add_count_option("--days", default=30, metavar="N", help="days to include (default: 30)")
    choices = [name for name in get_args(By) if name in {*_ALL, "session", "user", "job"}]
    parser.add_argument("--by", choices=choices, help="show one table, grouped by this")
    parser.add_flag("--json", help="print JSON")
    args = parser.parse_command(argv, profile)
    return run_async(_report_usage(args))


async def _report_usage(args: Namespace) -> int:
    setup = load_checked_setup(args.profile)
    since = first_day(time.time(), args.days)
    groups: tuple[By, ...] = tuple(dict.fromkeys(("day", args.by))) if args.by else _ALL
    found = await _read_totals(setup.home, groups, since)
    if args.json:
        print(to_json(_report_object(found, args, since)))
    elif not any(found.values()):
        print(f"No model calls in the last {args.days} days.", file=sys.stderr)
    else:
        _print_report(found, args)
    return 0


async def _read_totals(home: Path, groups: Sequence[By], since: float) -> UsageByGroup:
    if not paths.database_file(home).exists():
        return {by: [] for by in groups}
    async with open_store(home) as store:
        return {by: await store.ledger.sum_calls(by, since) for by in groups}


def _report_object(found: UsageByGroup, args: Namespace, since: float) -> dict[str, Any]:
    head: dict[str, Any] = {
        "days": args.days,
        "since": time.strftime("%Y-%m-%d", time.localtime(since)),
        "totals": _usage_object(sum_usage(found["day"])),
    }
    for by in (args.by,) if args.by else _ALL:
        head[f"by_{by}"] = [{by: row.key, **_usage_object(row)} for row in found[by]]
    return head


def _usage_object(row: UsageRow) -> dict[str, Any]:
    data: dict[str, Any] = {
        "calls": row.calls,
        "failed_calls": row.failed,
        **{f"{name}_tokens": getattr(row, name) for name in TOKEN_KINDS},
        "cache_hit_rate": round(row.cache_read / row.input, 4) if row.input else 0.0,
        "cost_usd": round(row.cost, 9),
        "unpriced_calls": row.unpriced,
        "estimated_calls": row.estimated,
        "seconds_per_call": round(row.seconds / row.calls, 3) if row.calls else 0.0,
    }
    return data | ({"uses": round(row.uses)} if row.uses else {})


def _print_report(found: UsageByGroup, args: Namespace) -> None:
    room = terminal_width()
    colour = env.supports_colour(sys.stdout.isatty())
    print(_format_headline(sum_usage(found["day"]), args.days))
    sections: tuple[By, ...] = (args.by,) if args.by else _SECTIONS
    if not args.by or args.by == "day":
        print()
        for line in _draw_days(found["day"], args.days, room, colour=colour):
            print(line)
    for by in sections:
        if found[by]:
            print()
            head, *lines = _format_section(by, found[by], room)
            shown = len(lines) if args.by else _SECTION_ROWS
            for line in (head, *lines[:shown]):
                print(line)
            if len(lines) > shown:
                print(f"... {len(lines) - shown} more: hermes insights --by {by}")


def _format_headline(row: UsageRow, days: int) -> str:
    from hermes.core.text import format_plural

    cached = format_percent(row.cache_read, row.input)
    parts = [
        f"{'Today' if days == 1 else f'Last {days} days'}: {format_plural(row.calls, 'call')}",
        f"{format_count(row.input)} tokens in ({cached} from cache)",
        f"{format_count(row.output)} out",
        format_money(row.cost),
    ]
    if row.unpriced:
        parts.append(f"{format_plural(row.unpriced, 'call')} of unknown price")
    if row.failed:
        parts.append(f"{row.failed:,} failed")
    return ", ".join(parts)


def _draw_days(rows: list[UsageRow], days: int, room: int, *, colour: bool) -> list[str]:
    """A bar per day since the first with calls: dollars, or tokens where nothing has a price."""
    by_day = {row.key: row for row in rows}
    now = time.time()
    shown: list[UsageRow] = []
    for back in range(1, min(days, MAX_DAYS) + 1):
        name = time.strftime("%Y-%m-%d", time.localtime(first_day(now, back)))
        shown.insert(0, by_day.get(name, UsageRow(name)))
        if name <= min(by_day):
            break
    if any(row.cost for row in shown):
        bars = [(r.key, r.cost, format_money(r.cost)) for r in shown]
    else:
        bars = [(r.key, r.input + r.output, format_count(r.input + r.output)) for r in shown]
    return draw_bars(bars, room, colour=colour)


def _format_section(by: By, rows: list[UsageRow], room: int) -> list[str]:
    tools = by == "tool"
    head = (by.upper(), "USES" if tools else "CALLS", "IN", "CACHED", "OUT", "COST", "S/CALL")
    if by != "day":
        rows = sorted(rows, key=lambda r: (-r.cost, -(r.input + r.output), r.key))
    lines = [
        (
            one_line(row.key or "-", 48),
            f"{row.uses if tools else row.calls:,.0f}",
            format_count(row.input),
            format_percent(row.cache_read, row.input),
            format_count(row.output),
            "?" if row.unpriced and not row.cost else format_money(row.cost),
            f"{row.seconds / row.calls:.1f}" if row.calls else "-",
        )
        for row in rows
    ]
    return format_table(head, lines, room)

"""`hermes status`: shows what is running in this home, recent errors, and today's cost."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, locate_home, open_store, run_async
from hermes.cli.terminal.tables import format_age, format_count, format_money, shorten_path
from hermes.cli.terminal.text import one_line, print_report
from hermes.config import paths
from hermes.core.text import format_plural
from hermes.version import VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from hermes.config.load import Setup
    from hermes.core.store import SessionMeta

_EPILOG = """\
Shows conversations in progress, commands in the background, servers, the errors of the last day,
and today's share of the budget. Nothing is sent anywhere.

examples:
  hermes status
  hermes status --json | jq '.sessions[].id'
"""
_MAX_SESSIONS = 200
_MAX_ERRORS = 5
_DAY_SECONDS = 86400.0


def run(argv: list[str], profile: str) -> int:
    about = "Show what is running, recent errors and today's cost."
    parser = CommandParser("status", about, _EPILOG)
    parser.add_flag("--json", help="print JSON")
    args = parser.parse_command(argv, profile)
    found = run_async(_collect_status(args))
    return print_report(found, _format_status(found), json=args.json)


async def _collect_status(args: Namespace) -> dict[str, Any]:
    from msgspec import to_builtins

    from hermes.config.instances import list_instances

    setup = load_checked_setup(args.profile)
    found: dict[str, Any] = {
        "version": VERSION,
        "home": str(setup.home),
        "profile": setup.profile or paths.read_active_profile(locate_home("default")),
        "model": await _find_model(setup),
        "servers": to_builtins(list_instances(setup.home)),
        "sessions": [],
        "interrupted": [],
        "processes": _list_processes(setup.home),
        "errors": _read_errors(paths.log_file(setup.home)),
        "today": {},
    }
    if paths.database_file(setup.home).exists():
        await _read_database(setup, found)
    return found


async def _find_model(setup: Setup) -> str:
    from hermes.core.errors import ConfigError
    from hermes.llm.endpoints.endpoint import ModelChoice
    from hermes.llm.endpoints.local_servers import choose_model
    from hermes.llm.endpoints.resolver import resolve_chain

    choice = await choose_model(setup.config, setup.secrets, ModelChoice())
    try:
        target = resolve_chain(setup.config, setup.secrets, choice)[0].target
    except ConfigError:
        return ""
    return f"{target.provider}:{target.model}"


def _list_processes(home: Path) -> list[dict[str, Any]]:
    from hermes.exec.process.background_records import list_ids, load_state

    root = home / "processes"
    names = ("id", "command", "session", "cwd", "started")
    return [
        {name: getattr(state.record, name) for name in names}
        for process in list_ids(root)
        if (state := load_state(root / process)) and state.alive
    ]


def _read_errors(file: Path) -> list[dict[str, Any]]:
    from hermes.app.live.log_records import make_filter, read_tail

    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - _DAY_SECONDS))
    is_error = make_filter("error", "")
    found, _ = read_tail(
        file, _MAX_ERRORS, lambda r: is_error(r) and str(r.get("time", "")) >= since
    )
    return [{key: r.get(key, "") for key in ("time", "level", "message")} for r in found]


async def _read_database(setup: Setup, found: dict[str, Any]) -> None:
    from hermes.app.live.usage import first_day, sum_usage

    async with open_store(setup.home) as store:
        latest = await store.sessions.list_recent(limit=_MAX_SESSIONS)
        today = sum_usage(await store.ledger.sum_calls("day", first_day(time.time(), 1)))
    for meta in latest:
        if meta.state == "running":
            found["sessions"].append(_session_object(meta))
        elif meta.state == "interrupted" and meta.updated > time.time() - _DAY_SECONDS:
            found["interrupted"].append(_session_object(meta))
    found["today"] = {
        "calls": today.calls,
        "failed_calls": today.failed,
        "unpriced_calls": today.unpriced,
        "tokens": today.input + today.output,
        "cost_usd": today.cost,
        "daily_usd": setup.config.budget.daily_usd,
        "daily_tokens": setup.config.budget.daily_tokens,
    }


def _session_object(meta: SessionMeta) -> dict[str, Any]:
    return {name: getattr(meta, name) for name in ("id", "title", "source", "cwd", "updated")}


def _format_status(found: dict[str, Any]) -> list[str]:
    now = time.time()
    lines = [
        f"hermes {found['version']}, profile {found['profile']} in {found['home']}",
        f"model: {found['model'] or 'none yet; run hermes setup'}",
    ]
    for server in found["servers"]:
        where = f" at {server['address']}" if server["address"] else ""
        since = format_age(now - server["started"])
        lines.append(f"running: {server['kind']}{where}, process {server['pid']}, for {since}")
    for meta in found["sessions"]:
        where = f"{meta['source']}, {shorten_path(meta['cwd'])}"
        lines.append(f"in progress: {meta['id']} ({where}) {one_line(meta['title'], 60)}")
    for meta in found["interrupted"]:
        when = format_age(now - meta["updated"])
        lines.append(f"interrupted: {meta['id']}, {when} ago, {one_line(meta['title'], 60)}")
        lines.append(f"  resume with: hermes chat --resume {meta['id']}")
    for process in found["processes"]:
        since, command = format_age(now - process["started"]), one_line(process["command"], 80)
        lines.append(f"background: {process['id']}, for {since}: {command}")
    for error in found["errors"]:
        lines.append(f"error: {error['time'][:19]}Z {one_line(error['message'], 120)}")
    if not any(found[key] for key in ("servers", "sessions", "processes")):
        lines.append("Nothing is running.")
    return [*lines, *_format_today(found["today"])]


def _format_today(today: dict[str, Any]) -> list[str]:
    if not today:
        return []
    text = f"today: {format_plural(today['calls'], 'call')}, {format_count(today['tokens'])} tokens"
    text += f", {format_money(today['cost_usd'])}"
    if today["daily_usd"] is not None:
        text += f" of {format_money(today['daily_usd'])}"
    if today["daily_tokens"] is not None:
        text += f"; {format_count(today['daily_tokens'])} tokens allowed"
    if today["unpriced_calls"]:
        text += f"; {format_plural(today['unpriced_calls'], 'call')} of unknown price"
    failed = f"; {today['failed_calls']} failed" if today["failed_calls"] else ""
    return [text + failed]

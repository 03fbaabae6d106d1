"""`hermes status`: what is going on in this home."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from hermes.cli.main import fail
from hermes.cli.parser import Parser, profile_option

if TYPE_CHECKING:
    from pathlib import Path

    from hermes.config.load import Setup
    from hermes.core.store import SessionMeta

_EPILOG = """\
Conversations in progress, commands left running, servers, the errors of the last day, and what
today used of the budget. Nothing is sent anywhere.

examples:
  hermes status
  hermes status --json | jq '.sessions[].id'
"""
_SESSIONS = 200
_ERRORS = 5
_DAY = 86400.0


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes status", "Show what is running and what went wrong.", _EPILOG)
    parser.add_argument("--json", action="store_true", help="as JSON")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.complain(unknown)
    import asyncio

    from hermes.cli.terminal.text import dump

    found = asyncio.run(_gathered(args))
    if args.json:
        print(dump(found))
    else:
        for line in _lines(found):
            print(line)
    return 0


async def _gathered(args: Namespace) -> dict[str, Any]:
    from msgspec import to_builtins

    from hermes.config import paths
    from hermes.config.env import environment
    from hermes.config.instances import present
    from hermes.config.load import load
    from hermes.version import VERSION

    setup = load(args.profile)
    for warning in setup.warnings:
        fail(warning)
    found: dict[str, Any] = {
        "version": VERSION,
        "home": str(setup.home),
        "profile": setup.profile or paths.used_profile(paths.find_home(environment(), "default")),
        "model": await _model(setup),
        "servers": to_builtins(present(setup.home)),
        "sessions": [],
        "interrupted": [],
        "processes": _processes(setup.home),
        "errors": _errors(paths.log_file(setup.home)),
        "today": {},
    }
    if paths.database(setup.home).exists():
        await _stored(setup, found)
    return found


async def _model(setup: Setup) -> str:
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


def _processes(home: Path) -> list[dict[str, Any]]:
    from hermes.exec.process.background_records import look, names

    root = home / "processes"
    states = [state for name in names(root) if (state := look(root / name)) and state.alive]
    return [
        {
            "id": state.record.id,
            "command": state.record.command,
            "session": state.record.session,
            "cwd": state.record.cwd,
            "started": state.record.started,
        }
        for state in states
    ]


def _errors(file: Path) -> list[dict[str, Any]]:
    from hermes.cli.log_reader import latest, wanted

    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - _DAY))
    serious = wanted("error", "")
    found = latest(file, _ERRORS, lambda r: serious(r) and str(r.get("time", "")) >= since)
    return [{key: r.get(key, "") for key in ("time", "level", "message")} for r in found]


async def _stored(setup: Setup, found: dict[str, Any]) -> None:
    from hermes.cli.commands.insights import added, first_day
    from hermes.config import paths
    from hermes.store.sqlite import SqliteStore

    store = SqliteStore(paths.database(setup.home))
    try:
        for sentence in await store.ready():
            fail(sentence)
        latest = await store.sessions(limit=_SESSIONS)
        today = added(await store.ledger.totals("day", first_day(time.time(), 1)))
    finally:
        await store.close()
    for meta in latest:
        if meta.state == "running":
            found["sessions"].append(_session(meta))
        elif meta.state == "interrupted" and meta.updated > time.time() - _DAY:
            found["interrupted"].append(_session(meta))
    found["today"] = {
        "calls": today.calls,
        "failed_calls": today.failed,
        "tokens": today.input + today.output,
        "cost_usd": today.cost,
        "daily_usd": setup.config.budget.daily_usd,
        "daily_tokens": setup.config.budget.daily_tokens,
    }


def _session(meta: SessionMeta) -> dict[str, Any]:
    return {
        "id": meta.id,
        "title": meta.title,
        "source": meta.source,
        "cwd": meta.cwd,
        "updated": meta.updated,
    }


def _lines(found: dict[str, Any]) -> list[str]:
    from hermes.cli.commands.sessions import age, short_path
    from hermes.cli.terminal.text import one_line

    now = time.time()
    lines = [
        f"hermes {found['version']}, profile {found['profile']} in {found['home']}",
        f"model: {found['model'] or 'none yet; hermes setup finds one'}",
    ]
    for server in found["servers"]:
        where = f" at {server['address']}" if server["address"] else ""
        since = age(now - server["started"])
        lines.append(f"running: {server['kind']}{where}, process {server['pid']}, for {since}")
    for meta in found["sessions"]:
        where = f"{meta['source']}, {short_path(meta['cwd'])}"
        lines.append(f"in progress: {meta['id']} ({where}) {one_line(meta['title'], 60)}")
    for meta in found["interrupted"]:
        when = age(now - meta["updated"])
        lines.append(f"interrupted: {meta['id']}, {when} ago, {one_line(meta['title'], 60)}")
        lines.append(f"  to go on: hermes chat --resume {meta['id']}")
    for process in found["processes"]:
        since = age(now - process["started"])
        lines.append(
            f"background: {process['id']}, for {since}: {one_line(process['command'], 80)}"
        )
    for error in found["errors"]:
        lines.append(f"error: {error['time'][:19]}Z {one_line(error['message'], 120)}")
    if not any(found[key] for key in ("servers", "sessions", "processes")):
        lines.append("Nothing is running.")
    return [*lines, *_today(found["today"])]


def _today(today: dict[str, Any]) -> list[str]:
    if not today:
        return []
    from hermes.cli.terminal.formatting import compact, money
    from hermes.core.text import counted

    text = f"today: {counted(today['calls'], 'call')}, {compact(today['tokens'])} tokens"
    text += f", {money(today['cost_usd'])}"
    if today["daily_usd"] is not None:
        text += f" of {money(today['daily_usd'])}"
    if today["daily_tokens"] is not None:
        text += f"; {compact(today['daily_tokens'])} tokens are allowed"
    failed = f"; {today['failed_calls']} failed" if today["failed_calls"] else ""
    return [text + failed]

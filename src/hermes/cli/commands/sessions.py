"""`hermes sessions`: lists, shows, searches, exports and changes stored sessions."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from hermes.app.live.session_export import (
    export_lines,
    markdown_head,
    message_markdown,
    redact_values,
)
from hermes.cli.parser import CommandParser
from hermes.cli.session.start import find_session
from hermes.cli.startup import load_checked_setup, open_store, run_async
from hermes.cli.terminal.picker import confirm_change
from hermes.cli.terminal.tables import align_columns, format_age, shorten_path
from hermes.cli.terminal.text import format_call, one_line, strip_controls, to_json
from hermes.cli.terminal.transcript import open_new_file
from hermes.config.env import decode_argument
from hermes.core.errors import ConfigError
from hermes.core.redaction.redactor import Redactor
from hermes.core.store import SearchFilter, SessionMeta, Store

if TYPE_CHECKING:
    from hermes.batch.parquet_file import ParquetFile
    from hermes.batch.trajectories import Trajectory

_EPILOG = """\
commands:
  list                    list the latest sessions: id, age, state, messages, folder, title
  show ID                 show the conversation
  search WORDS            find messages that contain all words or "a phrase"; --since 30d,
                          --source cli and -n N narrow it
  export ID [-o FILE]     write JSON lines, or --format json, markdown, html, hermes, openai,
                          sharegpt, raw, parquet, tape (for hermes replay), trace; to stdout
                          or a new private file
  rename ID TITLE         change the title
  branch ID [TITLE]       copy a session to continue from; the original stays unchanged
  delete ID...            delete sessions; asks first, or add --yes
  prune --days N          delete sessions not used for N days; asks first, or add --yes

An ID may be shortened as long as it matches a single session. The state `interrupted` means that
the last turn did not end; resume it with hermes chat --resume ID.

examples:
  hermes sessions list --json | jq '.[0].id'
  hermes sessions search "disk full"
  hermes sessions export 20260101 --format markdown -o talk.md
  hermes sessions prune --days 90 --yes
"""
_TRAINING_FORMATS = ("hermes", "openai", "sharegpt", "raw")
"""One line with the whole conversation; see hermes batch."""
_PARQUET = "parquet"


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("sessions", "List, show, search and change stored sessions.", _EPILOG)
    parser.add_action(sorted(_ACTIONS), "list")
    parser.add_argument("words", nargs="*", metavar="ID|WORDS")
    parser.add_flag("--json", help="print JSON (list, show, search)")
    parser.add_count_option("-n", "--limit", default=20, help="list at most this many")
    parser.add_flag("--here", help="list: only sessions of this folder")
    formats = ("jsonl", "json", "markdown", "html", *_TRAINING_FORMATS, _PARQUET, "tape", "trace")
    parser.add_argument(
        "--format", metavar="F", choices=formats, default="jsonl", help="export: format"
    )
    parser.add_argument("-o", "--out", metavar="FILE", help="export: write to this new file")
    parser.add_count_option("--days", metavar="N", help="prune: not used for N days")
    parser.add_argument("--since", metavar="AGE", help="search: at most so old: 12h, 30d, 8w")
    parser.add_argument("--source", metavar="S", help="search: only this surface: cli, api, ...")
    parser.add_flag("--yes", help="delete, prune: do not ask")
    args = parser.parse_command(argv, profile)
    args.words = [decode_argument(word) for word in args.words]
    if problem := _check_usage(args):
        parser.error(problem)
    return run_async(_run_action(args))


def _check_usage(args: Namespace) -> str:
    """What is missing or too much; empty when nothing is."""
    match args.action, len(args.words):
        case "show" | "export", count if count != 1:
            return f"{args.action} needs the ID of one session"
        case "search", 0:
            return "search needs WORDS"
        case "delete" | "branch", 0:
            return f"{args.action} needs an ID"
        case "rename", 0 | 1:
            return "rename needs an ID and a TITLE"
        case "list", count if count:
            return "list takes no ID; show does"
        case "prune", count if count or args.days is None:
            return "prune needs --days N and takes no ID"
    return ""


async def _run_action(args: Namespace) -> int:
    setup = load_checked_setup(args.profile)
    args.content = setup.config.trace.content
    async with open_store(setup.home) as store:
        redactor = Redactor(setup.secrets.redactable_values())
        return await _ACTIONS[args.action](args, store, redactor)


async def _list_sessions(args: Namespace, store: Store, _: Redactor) -> int:
    folder = str(Path.cwd()) if args.here else None
    found = await store.sessions.list_recent(limit=args.limit, cwd=folder)
    if args.json:
        print(to_json([_session_object(meta) for meta in found]))
        return 0
    if not found:
        print("No sessions yet.", file=sys.stderr)
        return 0
    now = time.time()
    rows = [("ID", "AGE", "STATE", "MESSAGES", "FOLDER", "TITLE")]
    for meta in found:
        age, folder = format_age(now - meta.updated), shorten_path(meta.cwd)
        title = one_line(meta.title, 60)
        rows.append((meta.id, age, meta.state, str(meta.messages), folder, title))
    limit = os.get_terminal_size(1).columns or None if sys.stdout.isatty() else None
    for line in align_columns(rows):
        print(line[:limit])
    return 0


def _session_object(meta: SessionMeta) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(meta)
    data.pop("system")
    return data


async def _show_session(args: Namespace, store: Store, redactor: Redactor) -> int:
    meta = await find_session(store, args.words[0])
    if args.json:
        messages = [
            redact_values(redactor, {"seq": item.seq, **msgspec.to_builtins(item.message)})
            async for item in store.sessions.stream_messages(meta.id)
        ]
        print(to_json({**_session_object(meta), "system": meta.system, "messages": messages}))
        return 0
    print(markdown_head(meta))
    async for item in store.sessions.stream_messages(meta.id):
        text = redactor.redact(message_markdown(item, format_call))
        print(strip_controls(text) if sys.stdout.isatty() else text)
    return 0


async def _search_messages(args: Namespace, store: Store, redactor: Redactor) -> int:
    since = time.time() - _parse_age(args.since) if args.since else None
    within = SearchFilter(source=args.source, since=since)
    query = " ".join(f'"{word}"' if " " in word else word for word in args.words)
    hits = await store.search.find_messages(query, limit=args.limit, within=within)
    if args.json:
        rows = [
            {
                "session_id": hit.session.id,
                **{name: getattr(hit, name) for name in ("seq", "role", "snippet")},
                **{name: getattr(hit.session, name) for name in ("title", "cwd", "updated")},
            }
            for hit in hits
        ]
        print(to_json(redact_values(redactor, rows)))
        return 0
    if not hits:
        print("Nothing found.", file=sys.stderr)
    now = time.time()
    for hit in hits:
        snippet = redactor.redact(one_line(hit.snippet, 200))
        when = format_age(now - hit.session.updated)
        print(f"{hit.session.id}  {when}  {hit.role}: {snippet}")
    return 0


def _parse_age(text: str) -> float:
    """Seconds in an age such as 12h, 30d or 8w."""
    units = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
    number, unit = text[:-1], text[-1:].lower()
    if unit not in units or not number.isdigit() or len(number) > 6:
        raise ConfigError(f"--since takes an age such as 12h, 30d or 8w, not {text!r}.")
    return int(number) * units[unit]


async def _export_session(args: Namespace, store: Store, redactor: Redactor) -> int:
    meta = await find_session(store, args.words[0])
    if args.format == _PARQUET:
        return await _write_parquet(args.out, store, meta, redactor)
    if args.format in _TRAINING_FORMATS:
        lines = _list_training_lines(store, meta, redactor, args.format)
    elif args.format == "tape":
        lines = _list_tape_lines(store, meta, redactor)
    elif args.format == "trace":
        lines = _list_trace_lines(store, meta, redactor, has_content=args.content)
    else:
        lines = export_lines(store, meta, redactor, args.format, format_call)
    if args.out is None or args.out == "-":
        async for line in lines:
            print(line)
        return 0
    count = await _write_lines(Path(args.out), lines)
    print(f"{args.out}: {count} lines", file=sys.stderr)
    return 0


async def _load_trajectory(store: Store, meta: SessionMeta) -> Trajectory:
    from hermes.batch.trajectories import Trajectory

    messages = tuple(await store.sessions.load_messages(meta.id))
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(meta.updated))
    state = "done" if meta.state == "idle" else meta.state
    return Trajectory(0, meta.id, state, messages, meta.system, meta.model, when, session=meta.id)


async def _write_parquet(
    out: str | None, store: Store, meta: SessionMeta, redactor: Redactor
) -> int:
    from hermes.core.message import Message

    if out is None or out == "-":
        raise ConfigError("parquet is not text: give -o FILE.")
    found = await _load_trajectory(store, meta)
    text = redactor.redact(msgspec.json.encode(found.messages).decode())
    messages = msgspec.json.decode(text, type=tuple[Message, ...])
    file = _open_parquet(Path(out))
    file.write_trajectory(
        structs.replace(found, messages=messages, system=redactor.redact(found.system))
    )
    file.publish()
    print(f"{out}: 1 line", file=sys.stderr)
    return 0


def _open_parquet(file: Path) -> ParquetFile:
    from hermes.batch.parquet_file import ParquetFile, require_parquet

    require_parquet()
    if file.exists():
        raise ConfigError(f"Could not write {file}: File exists.")
    try:
        return ParquetFile(file)
    except OSError as error:
        raise ConfigError(f"Could not write {file}: {error.strerror}.") from None


async def _list_training_lines(
    store: Store, meta: SessionMeta, redactor: Redactor, format_name: str
) -> AsyncIterator[str]:
    from hermes.batch.trajectories import FORMATS, format_trajectory
    from hermes.tools.registry import list_toolsets

    found = await _load_trajectory(store, meta)
    names = sorted(name for tools in list_toolsets().values() for name in tools)
    form = next(form for form in FORMATS if form == format_name)
    yield redactor.redact(format_trajectory(found, form, names).decode())


async def _list_tape_lines(
    store: Store, meta: SessionMeta, redactor: Redactor
) -> AsyncIterator[str]:
    from hermes.app.live.session_tape import load_agents, load_tape
    from hermes.batch.replay.player import load_conversation
    from hermes.batch.replay.tape_file import encode_tape

    found = await load_conversation(store, meta)
    turns = [turn for part in found.metas for turn in await load_tape(store, part)]
    if not turns:
        raise ConfigError(
            f"Session {meta.id} was not recorded. Record one with --record, or trace.record: wire."
        )
    agents = await load_agents(store, {turn.agent for turn in turns})
    for line in encode_tape(meta.id, turns, agents):
        yield redactor.redact(line)


async def _list_trace_lines(
    store: Store, meta: SessionMeta, redactor: Redactor, *, has_content: bool
) -> AsyncIterator[str]:
    from hermes.app.live.spans import encode_spans
    from hermes.app.live.stored_trace import list_spans

    spans = await list_spans(store, meta, has_content=has_content)
    yield redactor.redact(encode_spans(spans).decode())


async def _write_lines(file: Path, lines: AsyncIterator[str]) -> int:
    """Writes a new file that only its owner can read; the number of lines."""
    count = 0
    try:
        with open_new_file(file) as out:
            async for line in lines:
                out.write(f"{line}\n")
                count += 1
    except OSError as error:
        raise ConfigError(f"Could not write {file}: {error.strerror}.") from None
    return count


async def _delete_sessions(args: Namespace, store: Store, _: Redactor) -> int:
    found = [await find_session(store, prefix) for prefix in args.words]
    names = ", ".join(f"{meta.id} ({meta.messages} messages)" for meta in found)
    if (code := _confirm_deletion(args, f"Permanently delete {names}?")) is not None:
        return code
    for meta in found:
        await store.sessions.delete(meta.id)
        print(f"deleted {meta.id}")
    return 0


def _confirm_deletion(args: Namespace, question: str) -> int | None:
    """None for yes, otherwise the exit status."""
    if args.yes:
        return None
    return confirm_change(f"sessions {args.action}", question, "Nothing was deleted.")


async def _prune_sessions(args: Namespace, store: Store, _: Redactor) -> int:
    before = time.time() - args.days * 86400
    every = await store.sessions.list_recent(limit=sys.maxsize)
    old = [meta for meta in every if meta.updated < before and meta.state != "running"]
    if not old:
        print(f"None of the {len(every)} sessions is that old.", file=sys.stderr)
        return 0
    question = f"Permanently delete {len(old)} of {len(every)} sessions?"
    if (code := _confirm_deletion(args, question)) is not None:
        return code
    for meta in old:
        await store.sessions.delete(meta.id)
    await store.maintenance.reclaim_space()
    left = len(every) - len(old)
    print(f"deleted {len(old)} sessions not used for {args.days} days, {left} left")
    return 0


async def _rename_session(args: Namespace, store: Store, _: Redactor) -> int:
    title = " ".join(" ".join(args.words[1:]).split())
    meta = await find_session(store, args.words[0])
    await store.sessions.update_meta(meta.id, title=title)
    print(f"{meta.id}: {one_line(title)}")
    return 0


async def _branch_session(args: Namespace, store: Store, _: Redactor) -> int:
    from hermes.app.session_records import create_session_id, find_current_session

    named = await find_session(store, args.words[0])
    meta = await find_current_session(store, named.id)
    assert meta is not None
    if meta.state == "running":
        raise ConfigError(f"A turn of {meta.id} is running; branch when it has ended.")
    now = time.time()
    child = msgspec.structs.replace(
        meta,
        id=create_session_id(now),
        parent=meta.id,
        title=" ".join(args.words[1:]) or meta.title,
        created=now,
        updated=now,
        state="idle",
        next="",
    )
    messages = await store.sessions.load_messages(meta.id)
    await store.sessions.append(child.id, messages, create=child)
    print(child.id)
    print(f"Resume with: hermes chat --resume {child.id}", file=sys.stderr)
    return 0


_ACTIONS = {
    "list": _list_sessions,
    "show": _show_session,
    "search": _search_messages,
    "export": _export_session,
    "delete": _delete_sessions,
    "prune": _prune_sessions,
    "rename": _rename_session,
    "branch": _branch_session,
}

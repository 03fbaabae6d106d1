"""`hermes sessions`: list, show, search, export, rename, branch, delete, prune."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from hermes.cli.lookup import find_session
from hermes.cli.main import EXIT_USAGE, fail
from hermes.cli.parser import Parser, positive, profile_option
from hermes.cli.terminal.text import dump, one_line, printable
from hermes.cli.terminal.transcript import markdown
from hermes.config import paths
from hermes.config.env import decode_argument
from hermes.config.load import load_setup
from hermes.core.errors import ConfigError
from hermes.core.redaction.redactor import Redactor
from hermes.core.store import SessionMeta, Store

_EPILOG = """\
commands:
  list                    the latest sessions: id, age, state, messages, folder, first words
  show ID                 the conversation, readable
  search WORDS            messages that hold all the words or "a phrase"
  export ID [-o FILE]     JSON lines, or --format markdown; to stdout or a new private file
  rename ID TITLE         call it something else
  branch ID [TITLE]       a copy to go on with; the original stays as it is
  delete ID...            for good; asks first, or give --yes
  prune --days N          delete those not used for N days; asks first, or give --yes

An ID may be shortened as long as it fits one session only. A state of interrupted means that
the last turn did not end; hermes chat --resume ID goes on with it.

examples:
  hermes sessions list --json | jq '.[0].id'
  hermes sessions search "disk full"
  hermes sessions export 20260101 --format markdown -o talk.md
  hermes sessions prune --days 90 --yes
"""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes sessions", "Look at stored sessions.", _EPILOG)
    parser.add_argument("action", choices=sorted(_ACTIONS), help="see below")
    parser.add_argument("words", nargs="*", metavar="ID|WORDS")
    parser.add_argument("--json", action="store_true", help="as JSON (list, show, search)")
    parser.add_argument("-n", "--limit", type=positive, default=20, help="at most so many")
    parser.add_argument("--here", action="store_true", help="list: only those of this folder")
    parser.add_argument("--format", choices=("jsonl", "markdown"), default="jsonl", help="export")
    parser.add_argument("-o", "--out", metavar="FILE", help="export: write here, not to stdout")
    parser.add_argument("--days", metavar="N", type=positive, help="prune: not used for so long")
    parser.add_argument("--yes", action="store_true", help="delete, prune: without asking")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        parser.complain(unknown)
    args.words = [decode_argument(word) for word in args.words]
    if wrong := _misused(args):
        parser.error(wrong)
    import asyncio

    return asyncio.run(_ACTIONS[args.action](args))


def _misused(args: Namespace) -> str:
    """What is missing or too much; empty: nothing."""
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
            return "prune takes no ID, it needs --days N"
    return ""


@asynccontextmanager
async def _store(args: Namespace) -> AsyncIterator[tuple[Store, Redactor]]:
    from hermes.store.sqlite import SqliteStore

    setup = load_setup(args.profile)
    for warning in setup.warnings:
        fail(warning)
    store: Store = SqliteStore(paths.database_file(setup.home))
    try:
        for sentence in await store.wait_until_open():
            fail(sentence)
        yield store, Redactor(setup.secrets.redactable_values())
    finally:
        await store.close()


async def _list(args: Namespace) -> int:
    folder = str(Path.cwd()) if args.here else None
    async with _store(args) as (store, _):
        found = await store.sessions.list_recent(limit=args.limit, cwd=folder)
    if args.json:
        print(dump([_public(meta) for meta in found]))
        return 0
    if not found:
        print("No sessions yet.", file=sys.stderr)
        return 0
    now = time.time()
    rows = [
        (
            meta.id,
            age(now - meta.updated),
            meta.state,
            str(meta.messages),
            short_path(meta.cwd),
            one_line(meta.title, 60),
        )
        for meta in found
    ]
    _table(("ID", "AGE", "STATE", "MESSAGES", "FOLDER", "TITLE"), rows)
    return 0


def _public(meta: SessionMeta) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(meta)
    data.pop("system")
    return data


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    limit = None
    if sys.stdout.isatty():
        limit = os.get_terminal_size(sys.stdout.fileno()).columns or None
    for row in (head, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(line.rstrip()[:limit])


def age(seconds: float) -> str:
    """How long ago, in its largest unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def short_path(path: str) -> str:
    home = str(Path.home())
    return "~" + path[len(home) :] if path == home or path.startswith(home + "/") else path


async def _show(args: Namespace) -> int:
    async with _store(args) as (store, redactor):
        meta = await find_session(store, args.words[0])
        if args.json:
            messages = [
                _clean(redactor, {"seq": item.seq, **msgspec.to_builtins(item.message)})
                async for item in store.sessions.stream_messages(meta.id)
            ]
            print(dump({**_public(meta), "system": meta.system, "messages": messages}))
            return 0
        print(markdown_head(meta))
        async for item in store.sessions.stream_messages(meta.id):
            text = redactor.clean(markdown(item))
            print(printable(text) if sys.stdout.isatty() else text)
    return 0


def markdown_head(meta: SessionMeta) -> str:
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(meta.created))
    title = one_line(meta.title) or meta.id
    return f"# {title}\n\nsession {meta.id}, {began}, {meta.model or 'no model'}, {meta.cwd}\n"


async def _search(args: Namespace) -> int:
    async with _store(args) as (store, redactor):
        hits = await store.search.find_messages(" ".join(args.words), limit=args.limit)
    if args.json:
        lines = [
            _clean(
                redactor,
                {
                    "session_id": hit.session.id,
                    "seq": hit.seq,
                    "role": hit.role,
                    "snippet": hit.snippet,
                    "title": hit.session.title,
                    "cwd": hit.session.cwd,
                    "updated": hit.session.updated,
                },
            )
            for hit in hits
        ]
        print(dump(lines))
        return 0
    if not hits:
        print("Nothing found.", file=sys.stderr)
    now = time.time()
    for hit in hits:
        snippet = redactor.clean(one_line(hit.snippet, 200))
        when = age(now - hit.session.updated)
        print(f"{hit.session.id}  {when}  {hit.role}: {snippet}")
    return 0


async def _export(args: Namespace) -> int:
    async with _store(args) as (store, redactor):
        meta = await find_session(store, args.words[0])
        lines = _lines(store, meta, redactor, args.format)
        if args.out is None or args.out == "-":
            async for line in lines:
                print(line)
            return 0
        count = await _to_file(Path(args.out), lines)
    print(f"{args.out}: {count} lines", file=sys.stderr)
    return 0


async def _lines(
    store: Store, meta: SessionMeta, redactor: Redactor, form: str
) -> AsyncIterator[str]:
    if form == "markdown":
        yield redactor.clean(markdown_head(meta))
        async for item in store.sessions.stream_messages(meta.id):
            yield redactor.clean(markdown(item))
        return
    yield dump(_clean(redactor, {"type": "session", **msgspec.to_builtins(meta)}))
    async for item in store.sessions.stream_messages(meta.id):
        head = {"type": "message", "seq": item.seq, "created": item.created}
        yield dump(_clean(redactor, {**head, **msgspec.to_builtins(item.message)}))


def _clean(redactor: Redactor, value: Any) -> Any:
    """Secrets a tool brought to light do not leave with an export."""
    match value:
        case str():
            return redactor.clean(value)
        case {"t": "media"}:
            return value
        case dict():
            return {key: _clean(redactor, item) for key, item in value.items()}
        case list() | tuple():
            return [_clean(redactor, item) for item in value]
        case _:
            return value


async def _to_file(file: Path, lines: AsyncIterator[str]) -> int:
    """A new file that only its owner can read."""
    count = 0
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            async for line in lines:
                view = memoryview(f"{line}\n".encode("utf-8", "replace"))
                while view:
                    view = view[os.write(handle, view) :]
                count += 1
        finally:
            os.close(handle)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}.") from None
    return count


async def _delete(args: Namespace) -> int:
    async with _store(args) as (store, _):
        found = [await find_session(store, prefix) for prefix in args.words]
        names = ", ".join(f"{meta.id} ({meta.messages} messages)" for meta in found)
        if (code := _agreed(args, f"Delete {names} for good?")) is not None:
            return code
        for meta in found:
            await store.sessions.delete(meta.id)
            print(f"deleted {meta.id}")
    return 0


def _agreed(args: Namespace, question: str) -> int | None:
    """None: yes. Else the exit status of no."""
    from hermes.cli.terminal.output import ask

    if args.yes:
        return None
    if not sys.stdin.isatty():
        fail(f"sessions {args.action} needs --yes when nobody is there to ask")
        return EXIT_USAGE
    if ask(question):
        return None
    print("Nothing was deleted.", file=sys.stderr)
    return 0


async def _prune(args: Namespace) -> int:
    before = time.time() - args.days * 86400
    async with _store(args) as (store, _):
        every = await store.sessions.list_recent(limit=sys.maxsize)
        old = [meta for meta in every if meta.updated < before and meta.state != "running"]
        if not old:
            print(f"None of {len(every)} sessions is that old.", file=sys.stderr)
            return 0
        question = f"Delete {len(old)} of {len(every)} sessions for good?"
        if (code := _agreed(args, question)) is not None:
            return code
        for meta in old:
            await store.sessions.delete(meta.id)
        await store.maintenance.reclaim_space()
    print(
        f"deleted {len(old)} sessions not used for {args.days} days, {len(every) - len(old)} left"
    )
    return 0


async def _rename(args: Namespace) -> int:
    title = " ".join(" ".join(args.words[1:]).split())
    async with _store(args) as (store, _):
        meta = await find_session(store, args.words[0])
        await store.sessions.update_meta(meta.id, title=title)
    print(f"{meta.id}: {one_line(title)}")
    return 0


async def _branch(args: Namespace) -> int:
    from hermes.app.session_chain import find_current
    from hermes.app.session_init import new_id

    async with _store(args) as (store, _):
        named = await find_session(store, args.words[0])
        meta = await find_current(store, named.id)
        assert meta is not None
        if meta.state == "running":
            raise ConfigError(f"A turn of {meta.id} is running; branch off when it has ended.")
        now = time.time()
        child = msgspec.structs.replace(
            meta,
            id=new_id(now),
            parent=meta.id,
            title=" ".join(args.words[1:]) or meta.title,
            created=now,
            updated=now,
            state="idle",
            next="",
        )
        await store.sessions.append(
            child.id, await store.sessions.load_messages(meta.id), create=child
        )
    print(child.id)
    print(f"to go on: hermes chat --resume {child.id}", file=sys.stderr)
    return 0


_ACTIONS = {
    "list": _list,
    "show": _show,
    "search": _search,
    "export": _export,
    "delete": _delete,
    "prune": _prune,
    "rename": _rename,
    "branch": _branch,
}

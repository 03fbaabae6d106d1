"""The store: what goes in comes out, in order, once, and nobody gets in anybody's way."""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.core.errors import StoreError
from hermes.core.message import (
    Media,
    Message,
    Native,
    Target,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
    Usage,
    user,
)
from hermes.core.store import SessionMeta, Stored
from hermes.core.text import clean
from hermes.store import codec, connection, migrations, search
from hermes.store.sqlite import SqliteStore

Raw = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(path)
    yield opened
    await opened.close()


@pytest.fixture
async def other(path: Path) -> AsyncIterator[SqliteStore]:
    """What another process would be: its own connections and its own owner's lock."""
    opened = SqliteStore(path)
    yield opened
    await opened.close()


# -- messages come back as they were ---------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | TEXT
    # -0.0 == 0.0 and large floats print in more than one way, but they come back equal
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
EXTRA = st.none() | st.dictionaries(TEXT, JSON, min_size=1, max_size=3)
MEDIA = st.builds(Media, TEXT, st.binary(max_size=60), TEXT, TEXT)
TEXTS = st.builds(Text, TEXT, EXTRA)
PARTS = st.one_of(
    TEXTS,
    st.builds(Thinking, TEXT, EXTRA),
    MEDIA,
    st.builds(ToolCall, TEXT, TEXT, TEXT, EXTRA),
    st.builds(
        ToolReturn,
        TEXT,
        TEXT,
        st.lists(TEXTS | MEDIA, max_size=3).map(tuple),
        st.booleans(),
    ),
    st.builds(Native, st.dictionaries(TEXT, JSON, max_size=3)),
)
USAGE = st.builds(
    Usage,
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    cost=st.none() | st.floats(0, 1e6),
    estimated=st.booleans(),
)
MESSAGES = st.builds(
    Message,
    st.sampled_from(["user", "assistant", "tool"]),
    st.lists(PARTS, max_size=4).map(tuple),
    st.sampled_from(["normal", "steer", "injected", "summary"]),
    st.none() | st.builds(Target, TEXT, TEXT, TEXT),
    st.none() | st.sampled_from(["end", "tool_use", "length", "filtered", "aborted", "died"]),
    st.none() | USAGE,
)


Through = Callable[[list[Message]], tuple[list[Message], list[Stored]]]


@pytest.fixture
def through(path: Path) -> Iterator[Through]:
    """Written by one store, read by another."""
    names = itertools.count()
    first, second = SqliteStore(path), SqliteStore(path)

    async def run(messages: list[Message]) -> tuple[list[Message], list[Stored]]:
        name = str(next(names))
        await first.sessions.append(name, messages, create=SessionMeta(name))
        return await second.sessions.load_messages(name), [
            row async for row in second.sessions.stream_messages(name)
        ]

    async def close() -> None:
        await first.close()
        await second.close()

    with asyncio.Runner() as runner:
        yield lambda messages: runner.run(run(messages))
        runner.run(close())


SHARED = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SHARED
@given(messages=st.lists(MESSAGES, max_size=6))
def test_round_trip_is_exact(through: Through, messages: list[Message]) -> None:
    loaded, exported = through(messages)
    assert loaded == messages
    assert [row.message for row in exported] == messages
    assert [row.seq for row in exported] == list(range(len(messages)))


DIRTY = st.text(
    st.characters() | st.sampled_from(["\0", "\ud800", "\udfff", "\udc80", "\ufffe"]), max_size=12
)


@SHARED
@given(text=DIRTY, call=DIRTY, extra=st.dictionaries(DIRTY, DIRTY, max_size=2))
def test_text_no_database_takes_is_cleaned(
    through: Through, text: str, call: str, extra: dict[str, str]
) -> None:
    message = Message("assistant", (Text(text, extra or None), ToolCall(call, call, call)))
    (loaded,), _ = through([message])
    assert loaded.text == clean(text)
    assert loaded.calls[0].args == clean(call)
    cleaned = {clean(key): clean(value) for key, value in extra.items()}
    assert loaded.parts[0] == Text(clean(text), cleaned or None)


@pytest.mark.parametrize(
    "value",
    [2**80, -(2**70), float("nan"), float("inf"), {1: "a"}, {"deep": [{"x": (1, 2)}]}, {"a", "b"}],
    ids=["big", "negative", "nan", "inf", "int key", "tuple", "set"],
)
def test_values_json_does_not_know_never_abort_a_write(through: Through, value: Any) -> None:
    (loaded,), _ = through([Message("assistant", (Text("kept", {"odd": value}),))])
    assert loaded.text == "kept"


async def test_dirty_names_of_sessions_and_folders(store: SqliteStore) -> None:
    folder = os.fsdecode(b"/caf\xe9")
    await store.sessions.create(SessionMeta("a", cwd=folder, title="t\0t", system="s\ud800"))
    found = await store.sessions.find_latest(cwd=folder)
    assert found is not None and (found.title, found.system) == ("t\ufffdt", "s\ufffd")
    assert (
        await store.sessions.get_meta("\ud800") is None
        and await store.sessions.find_by_prefix("\0") == []
    )


# -- sessions --------------------------------------------------------------------------------------


async def test_first_append_creates_all_or_nothing(store: SqliteStore, other: SqliteStore) -> None:
    meta = SessionMeta("s", "api", "key", "/work", "title", "system", "model", "parent")
    await store.sessions.append("s", [user("one"), user("two")], state="running", create=meta)
    found = await other.sessions.get_meta("s")
    assert found is not None
    assert (found.source, found.key, found.cwd, found.title) == ("api", "key", "/work", "title")
    assert (found.system, found.model, found.parent) == ("system", "model", "parent")
    assert (found.state, found.messages) == ("running", 2)
    assert found.created and found.updated >= found.created
    with pytest.raises(StoreError) as refused:
        await store.sessions.append("s", [user("three")], create=meta)
    assert refused.value.code == "exists"
    assert [m.text for m in await other.sessions.load_messages("s")] == ["one", "two"]


async def test_unknown_sessions(store: SqliteStore) -> None:
    for call in (
        store.sessions.append("nope", [user("x")]),
        store.sessions.set_state("nope", "idle"),
        store.sessions.update_meta("nope", title="x"),
    ):
        with pytest.raises(StoreError) as refused:
            await call
        assert refused.value.code == "missing"
    assert (
        await store.sessions.load_messages("nope") == []
        and await store.sessions.get_meta("nope") is None
    )
    assert await store.sessions.delete("nope") is False
    assert [row async for row in store.sessions.stream_messages("nope")] == []


async def test_lists_are_newest_first_and_by_place(path: Path) -> None:
    now = iter(range(1000, 2000))
    store = SqliteStore(path, clock=lambda: float(next(now)))
    for name, cwd, source, key in (
        ("20260101-a", "/x", "cli", ""),
        ("20260102-b", "/y", "cli", ""),
        ("20260102-c", "/x", "telegram", "42"),
    ):
        await store.sessions.create(SessionMeta(name, source, key, cwd, system="long"))
    await store.sessions.append("20260101-a", [user("hello")])
    ids = [m.id for m in await store.sessions.list_recent()]
    assert ids == ["20260101-a", "20260102-c", "20260102-b"]
    assert [m.id for m in await store.sessions.list_recent(limit=1)] == ids[:1]
    assert [m.id for m in await store.sessions.list_recent(cwd="/x")] == [
        "20260101-a",
        "20260102-c",
    ]
    assert [m.id for m in await store.sessions.list_recent(cwd="/x", source="telegram")] == [
        "20260102-c"
    ]
    latest = await store.sessions.find_latest(cwd="/x")
    assert latest is not None and (latest.id, latest.system) == ("20260101-a", "long")
    by_key = await store.sessions.find_latest(source="telegram", key="42")
    assert by_key is not None and by_key.id == "20260102-c"
    assert await store.sessions.find_latest(cwd="/nowhere") is None
    assert [m.id for m in await store.sessions.find_by_prefix("20260102")] == [
        "20260102-b",
        "20260102-c",
    ]
    assert await store.sessions.find_by_prefix("20260102-b%") == []
    await store.close()


async def test_describe_changes_only_what_is_given(store: SqliteStore) -> None:
    await store.sessions.create(SessionMeta("s", title="old", model="m1"))
    await store.sessions.update_meta("s", title="new")
    await store.sessions.update_meta("s", model="m2")
    found = await store.sessions.get_meta("s")
    assert found is not None and (found.title, found.model) == ("new", "m2")


async def test_long_sessions_are_exported_whole(store: SqliteStore) -> None:
    messages = [user(f"m{n}") for n in range(1203)]
    await store.sessions.append("s", messages, create=SessionMeta("s"))
    await store.sessions.append("t", messages[:3], create=SessionMeta("t"))
    rows_ = [row async for row in store.sessions.stream_messages("s")]
    assert [row.seq for row in rows_] == list(range(1203))
    assert [row.message for row in rows_] == messages == await store.sessions.load_messages("s")


async def test_delete_removes_everything(store: SqliteStore, other: SqliteStore) -> None:
    await store.sessions.append("s", [user("findme one")], create=SessionMeta("s", system="x"))
    await store.sessions.append("t", [user("findme two")], create=SessionMeta("t"))
    assert len(await store.search.find_messages("findme")) == 2
    assert await store.sessions.delete("s") is True
    assert [hit.session.id for hit in await other.search.find_messages("findme")] == ["t"]
    assert (
        await other.sessions.load_messages("s") == [] and await other.sessions.get_meta("s") is None
    )
    await store.sessions.append("s", [user("again findme")], create=SessionMeta("s"))
    assert [m.text for m in await other.sessions.load_messages("s")] == ["again findme"]
    assert len(await other.search.find_messages("findme")) == 2


async def test_messages_cannot_be_changed(path: Path, store: SqliteStore) -> None:
    await store.sessions.append("s", [user("said")], create=SessionMeta("s"))
    db = apsw.Connection(str(path))
    with pytest.raises(apsw.ConstraintError, match="append-only"):
        db.execute("UPDATE messages SET body = x''")
    db.close()


# -- turns and their owners ------------------------------------------------------------------------


async def test_one_process_at_a_time_runs_a_session(store: SqliteStore, other: SqliteStore) -> None:
    await store.sessions.append("s", [user("hi")], state="running", create=SessionMeta("s"))
    for call in (
        other.sessions.append("s", [user("me too")], state="running"),
        other.sessions.append("s", [user("me too")]),
        other.sessions.set_state("s", "idle"),
        other.sessions.delete("s"),
    ):
        with pytest.raises(StoreError, match="Session s is in use by another process") as refused:
            await call
        assert refused.value.code == "in_use"
    await store.sessions.append("s", [Message("assistant", (Text("done"),))], state="idle")
    await other.sessions.append("s", [user("now me")], state="running")
    assert [m.text for m in await store.sessions.load_messages("s")] == ["hi", "done", "now me"]


async def test_a_turn_whose_process_is_gone_was_interrupted(path: Path, other: SqliteStore) -> None:
    store = SqliteStore(path)
    await store.sessions.append(
        "s", [user("hi")], state="running", create=SessionMeta("s", cwd="/x")
    )
    assert [m.state for m in await other.sessions.list_recent()] == ["running"]
    locks = list((path.parent / "run").glob("?" * 32 + ".lock"))
    assert [stat.S_IMODE(f.stat().st_mode) for f in locks] == [0o600]
    assert stat.S_IMODE((path.parent / "run").stat().st_mode) == 0o700
    await store.close()
    assert [m.state for m in await other.sessions.list_recent()] == ["interrupted"]
    found = await other.sessions.find_latest(cwd="/x")
    assert found is not None and found.state == "interrupted"
    await other.sessions.append("s", [user("go on")], state="running")
    assert [m.state for m in await other.sessions.list_recent()] == ["running"]


async def test_files_of_dead_processes_are_swept(path: Path, store: SqliteStore) -> None:
    code = """
import asyncio, os, sys, pathlib
from hermes.core.message import user
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
async def main():
    store = SqliteStore(pathlib.Path(sys.argv[1]))
    await store.sessions.append("dead", [user("hi")], state="running", create=SessionMeta("dead"))
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(path))
    assert await killed.wait() == -9
    (left,) = (path.parent / "run").glob("?" * 32 + ".lock")
    found = await store.sessions.get_meta("dead")
    assert found is not None and (found.state, found.messages) == ("interrupted", 1)
    await store.sessions.append("mine", [user("hi")], state="running", create=SessionMeta("mine"))
    assert not left.exists()
    await store.sessions.append("dead", [user("taken over")], state="running")


# -- threads, groups, ends -------------------------------------------------------------------------


class Pause:
    """Holds the writer's or the reader's thread until it is let go."""

    def __init__(self, worker: Any) -> None:
        self._go = threading.Event()
        self._future = worker.submit(lambda _: self._go.wait(20), mode="alone")

    async def end(self) -> None:
        self._go.set()
        await self._future


async def test_what_waits_together_is_committed_together(store: SqliteStore) -> None:
    commits: list[int] = []

    def hook(db: apsw.Connection) -> None:
        db.set_commit_hook(lambda: commits.append(1) is not None)

    await store.sessions.create(SessionMeta("s"))
    await store._database.writer.submit(hook, mode="alone")
    pause = Pause(store._database.writer)
    calls = [store.sessions.append("s" if n % 10 else "nope", [user(f"m{n}")]) for n in range(100)]
    calls.append(store.sessions.create(SessionMeta("s")))
    waiting = asyncio.gather(*calls, return_exceptions=True)
    await asyncio.sleep(0)
    await pause.end()
    results = await waiting
    assert len(commits) == 1
    assert [n for n, r in enumerate(results) if isinstance(r, StoreError)] == [
        *range(0, 100, 10),
        100,
    ]
    assert [r for r in results if r is not None and not isinstance(r, StoreError)] == []
    assert [m.text for m in await store.sessions.load_messages("s")] == [
        f"m{n}" for n in range(100) if n % 10
    ]


async def test_a_job_that_fails_half_way_takes_back_its_own_changes(store: SqliteStore) -> None:
    await store.sessions.create(SessionMeta("s"))

    def half(db: apsw.Connection) -> None:
        db.execute("UPDATE sessions SET title = 'half'")
        raise ValueError("half way")

    pause = Pause(store._database.writer)
    first = asyncio.ensure_future(store.sessions.append("s", [user("a")]))
    await asyncio.sleep(0)
    bad = store._database.writer.submit(half)
    second = asyncio.ensure_future(store.sessions.append("s", [user("b")]))
    await asyncio.sleep(0)
    await pause.end()
    await asyncio.gather(first, second)
    with pytest.raises(ValueError, match="half way"):
        await bad
    with pytest.raises(ValueError, match="half way"):
        await store._database.writer.submit(half)
    found = await store.sessions.get_meta("s")
    assert found is not None and (found.title, found.messages) == ("", 2)


async def test_a_group_that_fails_as_a_whole_is_tried_one_by_one(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a nearly full disk does: the sum does not fit, some of the parts do."""
    await store.sessions.create(SessionMeta("s"))

    def greedy(db: apsw.Connection) -> None:
        db.execute("INSERT INTO systems VALUES (1, ?)", ("x" * 100,))
        raise apsw.FullError("database or disk is full")

    pause = Pause(store._database.writer)
    first = store.sessions.append("s", [user("a")])
    last = store.sessions.append("s", [user("b")])
    tasks = [asyncio.ensure_future(first)]
    await asyncio.sleep(0)
    bad = store._database.writer.submit(greedy)
    tasks.append(asyncio.ensure_future(last))
    await asyncio.sleep(0)
    await pause.end()
    await asyncio.gather(*tasks)
    with pytest.raises(StoreError) as refused:
        await bad
    assert refused.value.code == "full"
    assert [m.text for m in await store.sessions.load_messages("s")] == ["a", "b"]
    found = await store.sessions.get_meta("s")
    assert found is not None and found.system == ""


async def test_a_bug_on_the_thread_reaches_the_caller_and_stops_nobody(store: SqliteStore) -> None:
    await store.sessions.create(SessionMeta("s"))
    await store._database.writer.submit(lambda db: db.set_commit_hook(lambda: 1 / 0), mode="alone")
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(store.sessions.append("s", [user("lost")]), 10)
    await store.sessions.append("s", [user("kept")])
    assert [m.text for m in await store.sessions.load_messages("s")] == ["kept"]


async def test_reads_do_not_wait_for_writes_nor_writes_for_reads(store: SqliteStore) -> None:
    await store.sessions.append("s", [user("hi")], create=SessionMeta("s"))
    writing = Pause(store._database.writer)
    assert len(await asyncio.wait_for(store.sessions.load_messages("s"), 10)) == 1
    await writing.end()
    reading = Pause(store._database.reader)
    await asyncio.wait_for(store.sessions.append("s", [user("there")]), 10)
    await reading.end()


async def test_cancelling_the_wait_does_not_undo_the_write(store: SqliteStore) -> None:
    await store.sessions.create(SessionMeta("s"))
    pause = Pause(store._database.writer)
    task = asyncio.ensure_future(store.sessions.append("s", [user("hi")]))
    await asyncio.sleep(0)
    task.cancel()
    await pause.end()
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.sessions.append("s", [user("there")])
    assert [m.text for m in await store.sessions.load_messages("s")] == ["hi", "there"]


async def test_close_writes_what_was_submitted(path: Path) -> None:
    store = SqliteStore(path)
    await store.sessions.create(SessionMeta("s"))
    before = threading.active_count()
    waiting = [asyncio.ensure_future(store.sessions.append("s", [user(f"{n}")])) for n in range(50)]
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    await asyncio.gather(*waiting)
    assert threading.active_count() < before
    assert sorted(f.name for f in path.parent.iterdir()) == ["run", "state.db"]
    with pytest.raises(StoreError) as refused:
        await store.sessions.append("s", [user("late")])
    assert refused.value.code == "closed"
    with pytest.raises(StoreError):
        await store.sessions.load_messages("s")
    again = SqliteStore(path)
    assert len(await again.sessions.load_messages("s")) == 50
    await again.close()


async def test_open_does_not_wait_and_closing_unopened_is_fine(path: Path) -> None:
    unused = SqliteStore(path)
    await unused.close()
    assert not path.parent.exists()
    store = SqliteStore(path)
    store.open()
    assert await store.wait_until_open() == ()
    assert path.exists()
    await store.close()


def test_one_store_serves_several_loops(path: Path) -> None:
    store = SqliteStore(path)
    asyncio.run(store.sessions.append("s", [user("one")], create=SessionMeta("s")))
    asyncio.run(store.sessions.append("s", [user("two")]))

    async def rest() -> list[Message]:
        try:
            return await store.sessions.load_messages("s")
        finally:
            await store.close()

    assert [m.text for m in asyncio.run(rest())] == ["one", "two"]


def run_python(code: str, *args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=30,
        **options,
    )


def test_exit_without_close_neither_hangs_nor_loses(path: Path) -> None:
    code = """
import asyncio, pathlib, sys
from hermes.core.message import user
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
store = SqliteStore(pathlib.Path(sys.argv[1]))
async def main():
    await store.sessions.create(SessionMeta("s"))
    for n in range(20):
        asyncio.ensure_future(store.sessions.append("s", [user(str(n))]))
    await asyncio.sleep(0)
asyncio.run(main())
"""
    start = time.monotonic()
    done = run_python(code, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - start < 10

    async def count() -> int:
        store = SqliteStore(path)
        found = len(await store.sessions.load_messages("s"))
        await store.close()
        return found

    assert asyncio.run(count()) == 20


def test_a_fork_cannot_use_its_parents_store(path: Path) -> None:
    code = """
import asyncio, os, pathlib, sys
from hermes.core.errors import StoreError
from hermes.core.message import user
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
store = SqliteStore(pathlib.Path(sys.argv[1]))
asyncio.run(store.sessions.append("s", [user("parent")], create=SessionMeta("s")))
if (pid := os.fork()) == 0:
    try:
        asyncio.run(store.sessions.append("s", [user("child")]))
    except StoreError as error:
        asyncio.run(store.close())
        sys.exit(7 if error.code == "closed" else 2)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
async def main():
    await store.sessions.append("s", [user("parent again")])
    print([m.text for m in await store.sessions.load_messages("s")])
    await store.close()
asyncio.run(main())
"""
    done = run_python(code, path)
    assert (done.stdout, done.stderr) == ("7\n['parent', 'parent again']\n", "")


def test_apsw_is_not_imported_before_it_is_needed() -> None:
    code = """
import pathlib, sys
from hermes.store.sqlite import SqliteStore
SqliteStore(pathlib.Path("/nowhere/state.db"))
print([m for m in ("apsw", "sqlite3", "random", "concurrent.futures.thread") if m in sys.modules])
"""
    assert run_python(code).stdout == "[]\n"


# -- search ----------------------------------------------------------------------------------------


async def found(store: SqliteStore, query: str) -> set[str]:
    return {hit.session.id for hit in await store.search.find_messages(query)}


async def fill(store: SqliteStore, **texts: str) -> None:
    for name, text in texts.items():
        await store.sessions.append(name, [user(text)], create=SessionMeta(name))


async def test_search_finds_words_phrases_and_tool_output(store: SqliteStore) -> None:
    await fill(store, a="the quick brown fox", b="brown quick", c="Ünïcode café")
    await store.sessions.append(
        "d",
        [Message("tool", (ToolReturn("1", "terminal", (Text("exit status: brown"),)),))],
        create=SessionMeta("d"),
    )
    await store.sessions.append(
        "e", [Message("assistant", (Thinking("brown secret"),))], create=SessionMeta("e")
    )
    assert await found(store, "brown") == {"a", "b", "d"}
    assert await found(store, "BROWN quick") == {"a", "b"}
    assert await found(store, '"quick brown"') == {"a"}
    assert await found(store, '"quick brown') == {"a"}
    assert await found(store, "unicode cafe") == {"c"}
    (hit,) = await store.search.find_messages("fox")
    assert (hit.session.id, hit.seq, hit.role) == ("a", 0, "user")
    assert hit.snippet == "the quick brown fox"


async def test_search_inside_scripts_without_spaces(store: SqliteStore) -> None:
    await fill(store, a="输入超过最大长度限制", b="最大的长度", c="設定ファイルを読む")
    assert await found(store, "最大长度") == {"a"}
    assert await found(store, "ファイル") == {"c"}
    assert (await store.search.find_messages("最大长度"))[0].snippet == "输入超过最大长度限制"


QUERIES = [
    "",
    " ",
    '"',
    '""',
    '"""',
    "'",
    "*",
    "fox*",
    "^fox",
    "fox AND",
    "AND OR NOT",
    "NOT fox",
    "NEAR(",
    "NEAR(fox brown, 2)",
    "fox NEAR/2 brown",
    "text:fox",
    "{text}: fox",
    "-fox",
    "+fox",
    "(fox",
    "fox)",
    "fox OR",
    "fox;--",
    "fox\0bar",
    "\ud800",
    "%",
    "_",
    "\\",
    "😀",
    "a" * 5000,
    " ".join(["fox"] * 500),
    '"fox" "' * 50,
    "́",
    "[fox]",
    "fox\nbrown",
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: repr(q[:20]))
async def test_no_query_is_an_error(store: SqliteStore, query: str) -> None:
    await fill(store, a="fox")
    for hit in await store.search.find_messages(query):
        assert hit.session.id == "a"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet='fox"*^():{}-+ANDORTE\0 \ud800é最', max_size=30), max_size=20))
def test_no_query_is_an_error_fuzzed(queries: list[str]) -> None:
    db = apsw.Connection(":memory:")
    db.execute(migrations.SEARCH_TABLE)
    for query in queries:
        terms = search.parse_terms(query)
        if match := search.match_expression(terms):
            db.execute("SELECT rowid FROM search WHERE search MATCH ?", (match,)).fetchall()
        search.make_snippet("some fox", search.compile_terms(terms or ["x"]))
    db.close()


async def test_operators_are_words(store: SqliteStore) -> None:
    await fill(store, a="salt and pepper", b="salt pepper", c="near and far")
    assert await found(store, "salt AND pepper") == {"a"}
    assert await found(store, "salt OR pepper") == set()
    assert await found(store, "NEAR(") == {"c"}


async def test_snippets_show_the_place(store: SqliteStore) -> None:
    await fill(store, a="word " * 500 + "needle in\n\nhay " + "word " * 500)
    (hit,) = await store.search.find_messages("needle")
    assert "needle in hay" in hit.snippet and "\n" not in hit.snippet
    assert hit.snippet.startswith("…") and hit.snippet.endswith("…") and len(hit.snippet) < 200


async def test_search_sees_every_append_of_everybody(
    store: SqliteStore, other: SqliteStore
) -> None:
    await store.sessions.append(
        "s", [user(f"needle {n}") for n in range(700)], create=SessionMeta("s")
    )
    await other.sessions.append("t", [user("needle other")], create=SessionMeta("t"))
    assert len(await store.search.find_messages("needle", limit=2000)) == 701
    await other.sessions.append("t", [user("needle last")])
    assert [h.seq for h in await store.search.find_messages("needle last")] == [1]
    assert await store.search.find_messages("needle", limit=0) == []


async def test_long_messages_are_searchable_up_to_a_bound(store: SqliteStore) -> None:
    filler = "x" * (codec.SEARCHABLE_LENGTH - 100)
    await fill(store, a=f"early {filler} late " + "y" * 200 + " beyond")
    assert await found(store, "early") == await found(store, "late") == {"a"}
    assert await found(store, "beyond") == set()


DAMAGE = [
    "DELETE FROM search_data",
    "DELETE FROM search_config",
    "DROP TABLE search_config",
    "DROP TABLE search_data",
    "DROP TABLE search_docsize",
    "UPDATE search_data SET block = randomblob(80) WHERE id > 10",
]


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_index_is_rebuilt_and_costs_no_message(path: Path, damage: str) -> None:
    store = SqliteStore(path)
    await fill(store, a="needle one", b="needle two")
    assert await found(store, "needle") == {"a", "b"}
    await store.close()
    db = apsw.Connection(str(path))
    db.execute(damage)
    db.close()
    store = SqliteStore(path)
    await store.sessions.append("a", [user("needle three")])
    assert [h.seq for h in await store.search.find_messages("three")] == [1]
    assert await found(store, "needle") == {"a", "b"}
    assert any("rebuilt" in notice for notice in await store.wait_until_open())
    assert await store.maintenance.check_integrity() == []
    await store.close()


async def test_deleting_works_with_a_damaged_index(path: Path) -> None:
    store = SqliteStore(path)
    await fill(store, a="needle one", b="needle two")
    await store.search.find_messages("needle")
    await store.close()
    db = apsw.Connection(str(path))
    db.execute("DELETE FROM search_data")
    db.close()
    store = SqliteStore(path)
    assert await store.sessions.delete("a") is True
    assert await found(store, "needle") == {"b"}
    await store.close()


# -- the file --------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_are_private_whatever_the_umask(path: Path, umask: int) -> None:
    code = """
import asyncio, os, pathlib, sys
from hermes.core.message import user
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
path = pathlib.Path(sys.argv[1])
async def main():
    store = SqliteStore(path)
    await store.sessions.append("s", [user("x")], state="running", create=SessionMeta("s"))
    await store.search.find_messages("x")
    await store.maintenance.back_up(str(path.parent / "copy.db"))
    for file in sorted(path.parent.rglob("*")):
        mode = file.stat().st_mode & 0o777
        if mode != (0o700 if file.is_dir() else 0o600):
            print(oct(mode), file)
    print(sorted(f.name for f in path.parent.iterdir()))
    await store.close()
mask = os.umask(int(sys.argv[2]))
asyncio.run(main())
print(os.umask(0) == int(sys.argv[2]))
"""
    path.parent.mkdir(mode=0o700)
    done = run_python(code, path, umask)
    names = ["copy.db", "run", "state.db", "state.db-shm", "state.db-wal"]
    assert (done.stdout, done.stderr) == (f"{names}\nTrue\n", "")


async def test_a_file_others_could_read_is_made_private(path: Path, store: SqliteStore) -> None:
    await fill(store, a="x")
    path.chmod(0o644)
    other = SqliteStore(path)
    (notice,) = await other.wait_until_open()
    assert "private now" in notice
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await other.close()


async def test_backup_is_one_consistent_private_file(tmp_path: Path, store: SqliteStore) -> None:
    await store.sessions.create(SessionMeta("s", system="sys"))
    target = tmp_path / "copy" / "state.db"
    target.parent.mkdir()
    stop = asyncio.Event()

    async def write() -> int:
        count = 0
        while not stop.is_set():
            await store.sessions.append("s", [user(f"m{count}"), user(f"n{count}")])
            count += 1
        return count

    writing = asyncio.ensure_future(write())
    await store.sessions.append("s", [user("before"), user("before")])
    await store.maintenance.back_up(str(target))
    stop.set()
    await writing
    assert [f.name for f in target.parent.iterdir()] == ["state.db"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    copy = SqliteStore(target)
    loaded = await copy.sessions.load_messages("s")
    assert len(loaded) % 2 == 0 and len(loaded) >= 2
    assert loaded == (await store.sessions.load_messages("s"))[: len(loaded)]
    assert await copy.maintenance.check_integrity() == []
    await copy.close()


async def test_backup_never_overwrites(tmp_path: Path, store: SqliteStore) -> None:
    await fill(store, a="x")
    target = tmp_path / "precious"
    target.write_text("mine")
    with pytest.raises(StoreError) as refused:
        await store.maintenance.back_up(str(target))
    assert refused.value.code == "exists" and target.read_text() == "mine"
    with pytest.raises(StoreError):
        await store.maintenance.back_up(str(tmp_path / "no" / "such" / "folder"))
    assert await found(store, "x") == {"a"}


async def test_a_database_without_schema_is_migrated(path: Path) -> None:
    path.parent.mkdir()
    db = apsw.Connection(str(path))
    db.execute("VACUUM")
    db.close()
    store = SqliteStore(path)
    await fill(store, a="x")
    assert await found(store, "x") == {"a"}
    await store.close()
    db = apsw.Connection(str(path))
    assert db.pragma("user_version") == migrations.SCHEMA_VERSION
    assert db.pragma("journal_mode") == "wal"
    db.close()


async def test_migrations_apply_in_order_and_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(path)
    await fill(store, a="x")
    await store.close()
    steps = (
        *migrations.MIGRATIONS,
        lambda db: db.execute("CREATE TABLE later (x)"),
        lambda db: db.execute("INSERT INTO later VALUES (1)"),
    )
    monkeypatch.setattr(migrations, "MIGRATIONS", steps)
    for module in (migrations, connection):
        monkeypatch.setattr(module, "SCHEMA_VERSION", len(steps))
    stores = [SqliteStore(path) for _ in range(3)]
    await asyncio.gather(*(s.wait_until_open() for s in stores))
    assert await found(stores[0], "x") == {"a"}
    for s in stores:
        await s.close()
    db = apsw.Connection(str(path))
    assert db.execute("SELECT count(*) FROM later").get == 1
    db.close()


async def test_a_failed_migration_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(path)
    await fill(store, a="x")
    await store.close()

    def fails(db: apsw.Connection) -> None:
        db.execute("DROP TABLE messages")
        db.execute("nonsense")

    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, fails))
    for module in (migrations, connection):
        monkeypatch.setattr(module, "SCHEMA_VERSION", len(migrations.MIGRATIONS))
    store = SqliteStore(path)
    with pytest.raises(StoreError):
        await store.wait_until_open()
    await store.close()
    monkeypatch.undo()
    store = SqliteStore(path)
    assert await found(store, "x") == {"a"}
    await store.close()


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        (f"PRAGMA user_version = {migrations.SCHEMA_VERSION + 1}", "newer"),
        ("PRAGMA application_id = 7", "foreign"),
    ],
)
async def test_newer_and_foreign_files_are_refused_untouched(
    path: Path, raw_database: Raw, sql: str, code: str
) -> None:
    store = SqliteStore(path)
    await fill(store, a="x")
    await store.close()
    db = apsw.Connection(str(path))
    db.execute(sql)
    db.close()
    with raw_database():
        before = path.read_bytes()
    store = SqliteStore(path)
    for call in (
        store.wait_until_open(),
        store.sessions.append("a", [user("y")]),
        store.sessions.load_messages("a"),
    ):
        with pytest.raises(StoreError) as refused:
            await call
        assert refused.value.code == code and len(str(refused.value)) <= 300
    assert ("pdate Hermes" in str(refused.value)) == (code == "newer")
    await store.close()
    with raw_database():
        assert path.read_bytes() == before


def test_an_engine_with_the_wal_bug_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.40.1")
    with pytest.raises(StoreError, match=r"3\.40\.1"):
        connection.open_writer(path, [])
    assert not path.exists()


async def test_simultaneous_first_starts(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(6)]
    await asyncio.gather(
        *(
            s.sessions.append(f"s{n}", [user("x")], create=SessionMeta(f"s{n}"))
            for n, s in enumerate(stores)
        )
    )
    assert len(await stores[0].sessions.list_recent()) == 6
    for s in stores:
        await s.close()
    assert sorted(f.name for f in path.parent.iterdir()) == ["run", "state.db"]


def test_the_guard_notices_a_raw_open(tmp_path: Path) -> None:
    """The guard of conftest.py, which every test runs under, can fail."""
    from tests import conftest

    target = tmp_path / "state.db-wal"
    target.write_text("x")
    assert len(conftest._opened) == 1
    conftest._opened.clear()


async def test_the_room_of_what_was_deleted_is_given_back_when_nobody_is_in_the_way(
    path: Path,
) -> None:
    store, other = SqliteStore(path), SqliteStore(path)
    for n in range(4):
        await store.sessions.append(f"s{n}", [user("x" * 1_000_000)], create=SessionMeta(f"s{n}"))
    await other.sessions.append(
        "theirs", [user("kept")], create=SessionMeta("theirs"), state="running"
    )
    for n in range(4):
        await store.sessions.delete(f"s{n}")
    await store.maintenance.reclaim_space()
    assert path.stat().st_size > 2_000_000  # the other one would have to wait for it
    await other.close()
    await store.maintenance.reclaim_space()
    assert path.stat().st_size < 500_000
    assert [m.text for m in await store.sessions.load_messages("theirs")] == ["kept"]
    await store.close()

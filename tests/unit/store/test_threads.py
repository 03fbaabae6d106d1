"""The store's threads: groups of writes, failures, closing, several loops, forks."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes.core.errors import StoreError
from hermes.core.message import Message, user_message
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
from tests.unit.store.stores import run_python


class Pause:
    """Holds the writer's or the reader's thread until it is let go."""

    def __init__(self, worker: Any) -> None:
        self._go, begun = threading.Event(), threading.Event()
        self._future = worker.submit(lambda _: (begun.set(), self._go.wait(90)), mode="alone")
        begun.wait(90)  # otherwise the thread could take some of the next jobs together with this

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
    calls = [
        store.sessions.append("s" if n % 10 else "nope", [user_message(f"m{n}")])
        for n in range(100)
    ]
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
    assert [r for r in results if not isinstance(r, StoreError)] == list(range(90))
    assert [m.text for m in await store.sessions.load_messages("s")] == [
        f"m{n}" for n in range(100) if n % 10
    ]


async def test_a_job_that_fails_half_way_takes_back_its_own_changes(store: SqliteStore) -> None:
    await store.sessions.create(SessionMeta("s"))

    def half(db: apsw.Connection) -> None:
        db.execute("UPDATE sessions SET title = 'half'")
        raise ValueError("half way")

    pause = Pause(store._database.writer)
    first = asyncio.ensure_future(store.sessions.append("s", [user_message("a")]))
    await asyncio.sleep(0)
    bad = store._database.writer.submit(half)
    second = asyncio.ensure_future(store.sessions.append("s", [user_message("b")]))
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
    first = store.sessions.append("s", [user_message("a")])
    last = store.sessions.append("s", [user_message("b")])
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
        await asyncio.wait_for(store.sessions.append("s", [user_message("lost")]), 90)
    await store.sessions.append("s", [user_message("kept")])
    assert [m.text for m in await store.sessions.load_messages("s")] == ["kept"]


async def test_reads_do_not_wait_for_writes_nor_writes_for_reads(store: SqliteStore) -> None:
    await store.sessions.append("s", [user_message("hi")], create=SessionMeta("s"))
    writing = Pause(store._database.writer)
    assert len(await asyncio.wait_for(store.sessions.load_messages("s"), 90)) == 1
    await writing.end()
    reading = Pause(store._database.reader)
    await asyncio.wait_for(store.sessions.append("s", [user_message("there")]), 90)
    await reading.end()


async def test_cancelling_the_wait_does_not_undo_the_write(store: SqliteStore) -> None:
    await store.sessions.create(SessionMeta("s"))
    pause = Pause(store._database.writer)
    task = asyncio.ensure_future(store.sessions.append("s", [user_message("hi")]))
    await asyncio.sleep(0)
    task.cancel()
    await pause.end()
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.sessions.append("s", [user_message("there")])
    assert [m.text for m in await store.sessions.load_messages("s")] == ["hi", "there"]


async def test_close_writes_what_was_submitted(path: Path) -> None:
    store = SqliteStore(path)
    await store.sessions.create(SessionMeta("s"))
    before = threading.active_count()
    waiting = [
        asyncio.ensure_future(store.sessions.append("s", [user_message(f"{n}")])) for n in range(50)
    ]
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    await asyncio.gather(*waiting)
    assert threading.active_count() < before
    assert sorted(f.name for f in path.parent.iterdir()) == ["run", "state.db"]
    with pytest.raises(StoreError) as refused:
        await store.sessions.append("s", [user_message("late")])
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
    asyncio.run(store.sessions.append("s", [user_message("one")], create=SessionMeta("s")))
    asyncio.run(store.sessions.append("s", [user_message("two")]))

    async def rest() -> list[Message]:
        try:
            return await store.sessions.load_messages("s")
        finally:
            await store.close()

    assert [m.text for m in asyncio.run(rest())] == ["one", "two"]


def test_exit_without_close_neither_hangs_nor_loses(path: Path) -> None:
    code = """
import asyncio, pathlib, sys
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.store import db_thread
from hermes.store.sqlite import SqliteStore
db_thread.EXIT_TIMEOUT = 600
store = SqliteStore(pathlib.Path(sys.argv[1]))
async def main():
    await store.sessions.create(SessionMeta("s"))
    for n in range(20):
        asyncio.ensure_future(store.sessions.append("s", [user_message(str(n))]))
    await asyncio.sleep(0)
asyncio.run(main())
"""
    done = run_python(code, path)
    assert (done.returncode, done.stderr) == (0, "")

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
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
store = SqliteStore(pathlib.Path(sys.argv[1]))
asyncio.run(store.sessions.append("s", [user_message("parent")], create=SessionMeta("s")))
if (pid := os.fork()) == 0:
    try:
        asyncio.run(store.sessions.append("s", [user_message("child")]))
    except StoreError as error:
        asyncio.run(store.close())
        sys.exit(7 if error.code == "closed" else 2)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
async def main():
    await store.sessions.append("s", [user_message("parent again")])
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

"""Sessions: created, listed, changed, deleted, and run by one process at a time."""

from __future__ import annotations

import asyncio
import stat
import sys
from pathlib import Path

import apsw
import pytest

from hermes.core.errors import StoreError
from hermes.core.message import Message, Text, user_message
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
from tests.unit.store.conftest import MakeStore
from tests.unit.store.stores import on_both_databases


@on_both_databases
async def test_first_append_creates_all_or_nothing(store: SqliteStore, other: SqliteStore) -> None:
    meta = SessionMeta("s", "api", "key", "/work", "title", "system", "model", "parent")
    await store.sessions.append(
        "s", [user_message("one"), user_message("two")], state="running", create=meta
    )
    found = await other.sessions.get_meta("s")
    assert found is not None
    assert (found.source, found.key, found.cwd, found.title) == ("api", "key", "/work", "title")
    assert (found.system, found.model, found.parent) == ("system", "model", "parent")
    assert (found.state, found.messages) == ("running", 2)
    assert found.created and found.updated >= found.created
    with pytest.raises(StoreError) as refused:
        await store.sessions.append("s", [user_message("three")], create=meta)
    assert refused.value.code == "exists"
    assert [m.text for m in await other.sessions.load_messages("s")] == ["one", "two"]


@on_both_databases
async def test_unknown_sessions(store: SqliteStore) -> None:
    for call in (
        store.sessions.append("nope", [user_message("x")]),
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


@on_both_databases
async def test_lists_are_newest_first_and_by_place(make_store: MakeStore) -> None:
    now = iter(range(1000, 2000))
    store = make_store(clock=lambda: float(next(now)))
    for name, cwd, source, key in (
        ("20260101-a", "/x", "cli", ""),
        ("20260102-b", "/y", "cli", ""),
        ("20260102-c", "/x", "telegram", "42"),
    ):
        await store.sessions.create(SessionMeta(name, source, key, cwd, system="long"))
    await store.sessions.append("20260101-a", [user_message("hello")])
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


@on_both_databases
async def test_describe_changes_only_what_is_given(store: SqliteStore) -> None:
    await store.sessions.create(SessionMeta("s", title="old", model="m1"))
    await store.sessions.update_meta("s", title="new")
    await store.sessions.update_meta("s", model="m2")
    found = await store.sessions.get_meta("s")
    assert found is not None and (found.title, found.model) == ("new", "m2")


@on_both_databases
async def test_long_sessions_are_exported_whole(store: SqliteStore) -> None:
    messages = [user_message(f"m{n}") for n in range(1203)]
    await store.sessions.append("s", messages, create=SessionMeta("s"))
    await store.sessions.append("t", messages[:3], create=SessionMeta("t"))
    rows_ = [row async for row in store.sessions.stream_messages("s")]
    assert [row.seq for row in rows_] == list(range(1203))
    assert [row.message for row in rows_] == messages == await store.sessions.load_messages("s")


@on_both_databases
async def test_delete_removes_everything(store: SqliteStore, other: SqliteStore) -> None:
    await store.sessions.append(
        "s", [user_message("findme one")], create=SessionMeta("s", system="x")
    )
    await store.sessions.append("t", [user_message("findme two")], create=SessionMeta("t"))
    assert len(await store.search.find_messages("findme")) == 2
    assert await store.sessions.delete("s") is True
    assert [hit.session.id for hit in await other.search.find_messages("findme")] == ["t"]
    assert (
        await other.sessions.load_messages("s") == [] and await other.sessions.get_meta("s") is None
    )
    await store.sessions.append("s", [user_message("again findme")], create=SessionMeta("s"))
    assert [m.text for m in await other.sessions.load_messages("s")] == ["again findme"]
    assert len(await other.search.find_messages("findme")) == 2


async def test_messages_cannot_be_changed(path: Path, store: SqliteStore) -> None:
    await store.sessions.append("s", [user_message("said")], create=SessionMeta("s"))
    db = apsw.Connection(str(path))
    with pytest.raises(apsw.ConstraintError, match="append-only"):
        db.execute("UPDATE messages SET body = x''")
    db.close()


# -- turns and their processes ---------------------------------------------------------------------


@on_both_databases
async def test_one_process_at_a_time_runs_a_session(store: SqliteStore, other: SqliteStore) -> None:
    await store.sessions.append("s", [user_message("hi")], state="running", create=SessionMeta("s"))
    for call in (
        other.sessions.append("s", [user_message("me too")], state="running"),
        other.sessions.append("s", [user_message("me too")]),
        other.sessions.set_state("s", "idle"),
        other.sessions.delete("s"),
    ):
        with pytest.raises(StoreError, match="Session s is in use by another process") as refused:
            await call
        assert refused.value.code == "in_use"
    await store.sessions.append("s", [Message("assistant", (Text("done"),))], state="idle")
    await other.sessions.append("s", [user_message("now me")], state="running")
    assert [m.text for m in await store.sessions.load_messages("s")] == ["hi", "done", "now me"]


async def test_a_turn_whose_process_is_gone_was_interrupted(path: Path, other: SqliteStore) -> None:
    store = SqliteStore(path)
    await store.sessions.append(
        "s", [user_message("hi")], state="running", create=SessionMeta("s", cwd="/x")
    )
    assert [m.state for m in await other.sessions.list_recent()] == ["running"]
    locks = list((path.parent / "run").glob("?" * 32 + ".lock"))
    assert {stat.S_IMODE(f.stat().st_mode) for f in locks} == {0o600}
    assert stat.S_IMODE((path.parent / "run").stat().st_mode) == 0o700
    await store.close()
    assert [m.state for m in await other.sessions.list_recent()] == ["interrupted"]
    found = await other.sessions.find_latest(cwd="/x")
    assert found is not None and found.state == "interrupted"
    await other.sessions.append("s", [user_message("go on")], state="running")
    assert [m.state for m in await other.sessions.list_recent()] == ["running"]


async def test_files_of_dead_processes_are_swept(path: Path, store: SqliteStore) -> None:
    code = """
import asyncio, os, sys, pathlib
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
from tests.unit.store.conftest import MakeStore
from tests.unit.store.stores import on_both_databases
async def main():
    store = SqliteStore(pathlib.Path(sys.argv[1]))
    await store.sessions.append("dead", [user_message("hi")], state="running",
                                create=SessionMeta("dead"))
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(path))
    assert await killed.wait() == -9
    (left,) = (path.parent / "run").glob("?" * 32 + ".lock")
    found = await store.sessions.get_meta("dead")
    assert found is not None and (found.state, found.messages) == ("interrupted", 1)
    await store.sessions.append(
        "mine", [user_message("hi")], state="running", create=SessionMeta("mine")
    )
    assert not left.exists()
    await store.sessions.append("dead", [user_message("taken over")], state="running")

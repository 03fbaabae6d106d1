"""The store on a damaged file: noticed, left alone, salvaged (F67)."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes.core.errors import StoreError
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.store.connection import open_writer
from hermes.store.sqlite import SqliteStore
from tests.unit.store.children import PRELUDE, check_sentence, fill, read_texts
from tests.unit.store.stores import Raw


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def zero_header(data: bytearray) -> bytearray:
    data[:100] = bytes(100)
    return data


DAMAGES: dict[str, Callable[[bytearray], bytes | bytearray]] = {
    "header zeroed": zero_header,
    "empty": lambda data: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "cut inside a page": lambda data: data[: len(data) - 1000],
    "text": lambda data: b"this is no database at all\n" * 500,
    "one page": lambda data: data[:4096],
    "schema page": lambda data: data[:100] + b"\xff" * 3996 + data[4096:],
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_f67_damage_is_seen_at_open_and_the_file_left_alone(
    path: Path, raw_database: Raw, damage: str
) -> None:
    await fill(path, 50, 500)
    with raw_database():
        path.write_bytes(DAMAGES[damage](bytearray(path.read_bytes())))
        before = digest(path)
    store = SqliteStore(path)
    for call in (
        store.wait_until_open(),
        store.sessions.load_messages("s"),
        store.sessions.append("s", [user_message("x")]),
    ):
        with pytest.raises(StoreError) as refused:
            await call
        check_sentence(refused.value, "damaged")
        assert str(path)[-60:] in str(refused.value)
    await store.close()
    with raw_database():
        assert digest(path) == before
    store = SqliteStore(path)
    aside = (await store.maintenance.salvage()).damaged_file
    with raw_database():
        assert digest(aside) == before
    await store.sessions.append("t", [user_message("fresh start")], create=SessionMeta("t"))
    assert len(await store.sessions.load_messages("t")) == 1
    await store.close()


@pytest.mark.parametrize(
    ("damage", "least"), [("half", 100), ("ragged", 249), ("a page", 200), ("text", 0)]
)
async def test_f67_what_can_be_read_is_saved(
    path: Path, raw_database: Raw, damage: str, least: int
) -> None:
    """In order, and every session goes on; the damaged file is kept as it was."""
    store = SqliteStore(path)
    for i in range(25):
        said = [user_message(f"{i} {k} " + "x" * 2000) for k in range(10)]
        await store.sessions.append(f"s{i}", said, create=SessionMeta(f"s{i}"), state="idle")
    await store.close()
    with raw_database():
        data = path.read_bytes()
        page = (len(data) // 8192) * 4096
        broken = {
            "half": data[: len(data) // 2],
            "ragged": data[:-1000],
            "a page": data[:page] + b"\xff" * 4096 + data[page + 4096 :],
            "text": b"this is no database at all\n" * 500,
        }[damage]
        path.write_bytes(broken)
    store = SqliteStore(path)
    saved = await store.maintenance.salvage()
    with raw_database():
        assert saved.damaged_file.read_bytes() == broken
    assert saved.messages >= least and not await store.maintenance.check_integrity()
    assert not saved.sessions or saved.messages + saved.lost == 250
    left = {
        f"s{i}": [m.text[:6].split()[1] for m in await store.sessions.load_messages(f"s{i}")]
        for i in range(25)
    }
    assert sum(map(len, left.values())) == saved.messages
    assert all(found == sorted(found) for found in left.values())
    for name in left if saved.sessions else ():
        await store.sessions.append(name, [user_message("go on")], state="idle")
        assert (await store.sessions.load_messages(name))[-1].text == "go on"
    await store.close()


@pytest.mark.parametrize(
    ("table", "pages"),
    [
        ("sessions", "leaf"),
        ("messages", "internal"),
        ("messages", "leaf"),
        ("sqlite_schema", "leaf"),
        ("sqlite_schema", "internal"),
    ],
)
async def test_f67_one_bad_page_costs_only_its_own_rows(
    path: Path, raw_database: Raw, table: str, pages: str
) -> None:
    """Nothing that was deleted comes back."""
    store = SqliteStore(path)
    for i in range(60):
        said = [user_message(f"{i} {k} " + "x" * (9000 if k == 7 else 300)) for k in range(40)]
        await store.sessions.append(f"s{i}", said, create=SessionMeta(f"s{i}", cwd="/somewhere"))
    for i in range(50, 60):
        await store.sessions.delete(f"s{i}")
    await store.close()
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = db.execute(
        "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ?", (table, pages)
    ).fetchall()
    db.close()
    bad = int(str(found[len(found) // 2][0]))
    with raw_database():
        data = bytearray(path.read_bytes())
        begin = (bad - 1) * 4096 + (100 if bad == 1 else 0)
        data[begin : bad * 4096] = b"\xff" * (bad * 4096 - begin)
        path.write_bytes(data)
    store = SqliteStore(path)
    result = await store.maintenance.salvage()
    listed = await store.sessions.list_recent(limit=100)
    assert len(listed) == result.sessions == 50
    kept = sum([len(await store.sessions.load_messages(meta.id)) for meta in listed])
    assert kept == result.messages and not await store.maintenance.check_integrity()
    if (table, pages) == ("messages", "leaf"):
        assert 2000 > kept >= 1980 and result.lost == 2000 - kept
    else:
        assert kept == 2000 and not result.lost
    assert (result.nameless > 0) == (table == "sessions")
    assert await store.search.find_messages("3 17")
    await store.close()


async def test_f67_a_cut_file_keeps_every_whole_message(path: Path, raw_database: Raw) -> None:
    """The rows of its sessions and the list of unused pages are behind the cut; new sessions get
    the numbers of the lost ones and are none the worse for it."""
    store = SqliteStore(path)
    for i in range(60):
        said = [user_message(f"{i} " + "x" * 300)] * 40
        meta = SessionMeta(f"s{i}", title="t" * (900 * (i > 10)), system="frozen")
        await store.sessions.append(f"s{i}", said, create=meta)
    for i in range(30, 60):
        await store.sessions.delete(f"s{i}")
    await store.close()
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    pages = db.execute("SELECT name, pagetype, pageno, ncell FROM dbstat").fetchall()
    db.close()
    rows = [int(str(no)) for name, kind, no, _ in pages if (name, kind) == ("sessions", "leaf")]
    cut = min(rows) - 1
    whole = sum(
        int(str(cells))
        for name, kind, no, cells in pages
        if (name, kind) == ("messages", "leaf") and int(str(no)) <= cut
    )
    with raw_database():
        path.write_bytes(path.read_bytes()[: cut * 4096])
    store = SqliteStore(path)
    result = await store.maintenance.salvage()
    assert result.messages >= whole > 100 and result.nameless and result.may_revive
    assert "some of which you may have deleted" in result.summary
    for i in range(70):
        await store.sessions.append(
            f"n{i}", [user_message("new")], create=SessionMeta(f"n{i}", system="another")
        )
        meta = await store.sessions.get_meta(f"n{i}")
        assert meta and meta.system == "another"
    assert not await store.maintenance.check_integrity()
    await store.close()


async def test_f67_a_message_that_only_its_reader_finds_damaged(path: Path) -> None:
    """SQLite finds nothing wrong; what people are told to do keeps the rest of the session."""
    await fill(path, 5, 10)
    db = apsw.Connection(str(path))
    db.execute("DROP TRIGGER messages_stay")
    db.execute("UPDATE messages SET body = replace(body, '\"', x'01') WHERE seq = 2")
    db.close()
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="doctor --fix") as refused:
        await store.sessions.load_messages("s")
    check_sentence(refused.value, "damaged")
    assert not await store.maintenance.check_integrity()
    assert await store.maintenance.list_unreadable() == ["message 2 of session s cannot be read"]
    result = await store.maintenance.salvage()
    assert (result.messages, result.lost) == (4, 1)
    assert len(await store.sessions.load_messages("s")) == 4
    await store.close()


async def test_f67_setting_aside_waits_for_no_living_neighbour(path: Path) -> None:
    other, store = SqliteStore(path), SqliteStore(path)
    await other.sessions.append("s", [user_message("x")], state="running", create=SessionMeta("s"))
    with pytest.raises(StoreError) as refused:
        await store.maintenance.salvage()
    check_sentence(refused.value, "in_use")
    assert len(await store.sessions.load_messages("s")) == 1
    await store.close()
    await other.close()


async def test_f67_a_removed_wal_is_told(path: Path) -> None:
    code = """
async def main():
    await store.sessions.create(SessionMeta("s"))
    await put("in the wal only")
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    killed = subprocess.run([sys.executable, "-c", PRELUDE + code, str(path)], check=False)
    assert killed.returncode == -9
    path.with_name("state.db-wal").unlink()
    store = SqliteStore(path)
    (notice,) = await store.wait_until_open()
    assert "may be missing" in notice
    await store.sessions.create(SessionMeta("works"))
    await store.close()


@pytest.mark.parametrize(
    ("damage", "is_told"),
    [
        (lambda data: b"", True),
        (lambda data: data[: len(data) // 2], True),
        (lambda data: data[:100] + b"\xff" * 8 + data[108:], True),
        (lambda data: bytes(32) + data[32:], True),
        (lambda data: data, False),
    ],
    ids=["empty", "cut", "overwritten", "without header", "whole"],
)
async def test_f67_a_damaged_wal_is_told(
    path: Path, raw_database: Raw, damage: Callable[[bytes], bytes], is_told: bool
) -> None:
    """SQLite takes such a log for one that ends there. What a crash left of its index knows more;
    not while another process is at work."""
    code = """
async def main():
    await store.sessions.create(SessionMeta("s"))
    for number in range(5):
        await put(f"in the wal only {number}")
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    killed = subprocess.run([sys.executable, "-c", PRELUDE + code, str(path)], check=False)
    assert killed.returncode == -9
    with raw_database():
        wal = path.with_name("state.db-wal")
        wal.write_bytes(damage(wal.read_bytes()))
    store = SqliteStore(path)
    notices = await store.wait_until_open()
    assert [("may be missing" in notice) for notice in notices] == [True] * is_told
    assert is_told or len(await store.sessions.load_messages("s")) == 5
    other = SqliteStore(path)
    assert not await other.wait_until_open()
    await other.close()
    await store.close()
    store = SqliteStore(path)
    assert not await store.wait_until_open(), "it is told once"
    await store.close()


async def test_f67_a_wal_that_another_process_completes_meanwhile_is_no_loss(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
async def main():
    fact = Fact(0, "profile", "memory", "mine", "stored", 1.0)
    await store.facts.change(lambda table: table.insert_fact(fact))
    print("written", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await store.close()
from hermes.core.store import Fact
asyncio.run(main())
"""
    other = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None and other.stdout.readline() == "written\n"

    def open_after_the_other(path: Path, notices: list[str]) -> Any:
        other.communicate("go on\n")
        return open_writer(path, notices)

    monkeypatch.setattr("hermes.store.database.open_writer", open_after_the_other)
    store = SqliteStore(path)
    assert not await store.wait_until_open()
    assert len(await store.facts.read(lambda table: table.list_scopes())) == 1
    await store.close()


async def test_f67_a_kept_wal_loses_nothing(path: Path) -> None:
    code = """
async def main():
    await store.sessions.create(SessionMeta("s"))
    await put("in the wal only")
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", PRELUDE + code, str(path)], check=False)
    path.with_name("state.db-shm").unlink()
    assert await read_texts(path) == ["in the wal only"]


async def test_f67_what_only_the_wal_holds_is_salvaged(path: Path, raw_database: Raw) -> None:
    code = """
async def main():
    await store.sessions.create(SessionMeta("s"))
    await put("in the wal only")
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", PRELUDE + code, str(path)], check=False)
    with raw_database():
        path.write_bytes(zero_header(bytearray(path.read_bytes())))
    store = SqliteStore(path)
    assert (await store.maintenance.salvage()).messages == 1
    await store.close()
    assert await read_texts(path) == ["in the wal only"]


async def test_f67_a_text_that_is_none_is_damage(path: Path) -> None:
    await fill(path, 3, 10)
    db = apsw.Connection(str(path))
    db.execute("UPDATE sessions SET title = CAST(x'ff61' AS TEXT)")
    db.close()
    store = SqliteStore(path)
    with pytest.raises(StoreError) as refused:
        await store.sessions.list_recent()
    check_sentence(refused.value, "damaged")
    assert len(await store.sessions.load_messages("s")) == 3, "what can be read is"
    await store.close()


async def test_f67_random_damage_never_wedges(
    path: Path, raw_database: Raw, tmp_path: Path
) -> None:
    """40 overwritten stretches and cuts: every call answers or raises a StoreError, and whenever
    messages come back changed or are missing, a call or a check of the file has said so."""
    await fill(path, 200, 300)
    with raw_database():
        good = path.read_bytes()
    originals = await read_texts(path)
    seed = int(os.environ.get("HERMES_TEST_SEED", "0")) or random.randrange(1 << 30)
    print(f"HERMES_TEST_SEED={seed}")
    rnd = random.Random(seed)
    noticed = 0
    for number in range(40):
        target = tmp_path / str(number) / "state.db"
        target.parent.mkdir()
        data = bytearray(good)
        if rnd.random() < 0.3:
            data = data[: rnd.randrange(1, len(data))]
        else:
            at = rnd.randrange(len(data) - 64)
            data[at : at + 64] = rnd.randbytes(64)
        with raw_database():
            target.write_bytes(data)
        store = SqliteStore(target)
        problems: list[Any] = []
        loaded = await noting(problems, store.sessions.load_messages("s"))
        problems += await noting(problems, store.maintenance.check_integrity()) or []
        assert problems or [m.text for m in loaded] == originals, f"case {number}"
        noticed += bool(problems)
        await noting(problems, store.search.find_messages("x"))
        await noting(problems, store.sessions.list_recent())
        await noting(
            problems, asyncio.wait_for(store.sessions.append("s", [user_message("after")]), 90)
        )
        await store.close()
    assert noticed >= 8, "the damage was mostly where nothing is"


async def noting(problems: list[Any], call: Awaitable[Any]) -> Any:
    try:
        return await call
    except StoreError as error:
        assert len(str(error)) <= 300
        problems.append(error)
        return None


_NOT_COPIED = {
    "messages",
    "sessions",
    "pending",
    "reservations",
    "search_words",
    "sqlite_schema",
    "sqlite_sequence",
}


async def test_f67_rows_are_salvaged_into_the_table_they_come_from(
    path: Path, raw_database: Raw
) -> None:
    """Whole numbers in every numeric column, so that no two tables or indexes look alike."""
    store = SqliteStore(path)
    await store.wait_until_open()
    await store.close()
    samples = {"TEXT": "x", "INTEGER": 7, "REAL": 7.0, "BLOB": b"x"}
    # Messages and sessions are checked for what they say; the rest is copied as it is.
    with raw_database():
        db = apsw.Connection(str(path))
        found = db.execute("PRAGMA table_list")
        kinds = {str(name): str(kind) for schema, name, kind, *_ in found if schema == "main"}
        named = {name for name, kind in kinds.items() if kind == "table"}
        tables = sorted(named - _NOT_COPIED)
        for table in tables:
            columns = list(db.execute(f"PRAGMA table_info({table})"))
            values = tuple(samples[str(column[2])] for column in columns)
            marks = ", ".join("?" * len(values))
            db.execute(f"INSERT INTO {table} VALUES ({marks})", values)
        before = {table: list(db.execute(f"SELECT * FROM {table}")) for table in tables}
        columns = "n, id, source, key, cwd, title, model, parent, created, updated"
        db.execute(
            f"INSERT INTO sessions ({columns}) VALUES (7, 'x', '', '', '', '', '', '', 7, 7)"
        )
        db.close()
    store = SqliteStore(path)
    await store.maintenance.salvage()
    await store.close()
    with raw_database():
        db = apsw.Connection(str(path))
        assert {table: list(db.execute(f"SELECT * FROM {table}")) for table in tables} == before
        db.close()

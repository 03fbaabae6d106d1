"""The database file: private, backed up, migrated, refused when it is not ours."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import apsw
import pytest

from hermes.core.errors import StoreError
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.store import connection, migrations
from hermes.store.sqlite import SqliteStore
from tests.unit.store.stores import Raw, fill, find_sessions, run_python


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_are_private_whatever_the_umask(path: Path, umask: int) -> None:
    code = """
import asyncio, os, pathlib, sys
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
path = pathlib.Path(sys.argv[1])
async def main():
    store = SqliteStore(path)
    await store.sessions.append("s", [user_message("x")], state="running", create=SessionMeta("s"))
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
            await store.sessions.append("s", [user_message(f"m{count}"), user_message(f"n{count}")])
            count += 1
        return count

    writing = asyncio.ensure_future(write())
    await store.sessions.append("s", [user_message("before"), user_message("before")])
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
    assert await find_sessions(store, "x") == {"a"}


async def test_a_database_without_schema_is_migrated(path: Path) -> None:
    path.parent.mkdir()
    db = apsw.Connection(str(path))
    db.execute("VACUUM")
    db.close()
    store = SqliteStore(path)
    await fill(store, a="x")
    assert await find_sessions(store, "x") == {"a"}
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
    assert await find_sessions(stores[0], "x") == {"a"}
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
    assert await find_sessions(store, "x") == {"a"}
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
        store.sessions.append("a", [user_message("y")]),
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
            s.sessions.append(f"s{n}", [user_message("x")], create=SessionMeta(f"s{n}"))
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
        await store.sessions.append(
            f"s{n}", [user_message("x" * 1_000_000)], create=SessionMeta(f"s{n}")
        )
    await other.sessions.append(
        "theirs", [user_message("kept")], create=SessionMeta("theirs"), state="running"
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

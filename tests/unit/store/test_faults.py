"""The store when the disk, the file, the lock or the neighbour misbehaves (F63-F67, R3, R15)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes.core.errors import StoreError
from hermes.core.message import user
from hermes.core.store import SessionMeta
from hermes.store import connection
from hermes.store.sqlite import SqliteStore

Raw = Callable[[], AbstractContextManager[None]]
STRACE = shutil.which("strace")
ROOT = os.geteuid() == 0

PRELUDE = """
import asyncio, json, os, pathlib, resource, sys
from hermes.core.errors import StoreError
from hermes.core.message import user
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
path = pathlib.Path(sys.argv[1])
store = SqliteStore(path)
acked, refused = [], []
async def put(text):
    try:
        await store.sessions.append("s", [user(text)])
        acked.append(text)
    except StoreError as error:
        refused.append([text, error.code, str(error)])
def report():
    print(json.dumps({"acked": acked, "refused": refused}))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(path)
    yield opened
    await opened.close()


def child(code: str, path: Path, *args: object, prefix: tuple[str, ...] = ()) -> dict[str, Any]:
    done = subprocess.run(
        [*prefix, sys.executable, "-c", PRELUDE + code, str(path), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


async def texts(path: Path) -> list[str]:
    store = SqliteStore(path)
    try:
        return [m.text for m in await store.sessions.load_messages("s")]
    finally:
        await store.close()


async def fill(path: Path, count: int = 5, size: int = 10) -> None:
    store = SqliteStore(path)
    messages = [user(f"{n} " + "x" * size) for n in range(count)]
    await store.sessions.append("s", messages, create=SessionMeta("s"))
    await store.search.find_messages("nothing")
    await store.close()


def sentence(error: StoreError, code: str) -> None:
    """What a person is told: what failed, what was lost, what to do; short."""
    text = str(error)
    assert error.code == code, text
    assert len(text) <= 300 and "\n" not in text
    assert any(word in text for word in ("lost", "saved", "safe", "left as it is")), text


# -- no room ---------------------------------------------------------------------------------------

FILL = """
async def main():
    await store.sessions.create(SessionMeta("s"))
    for n in range(5):
        await put(f"early {n}")
    limit()
    for n in range(40):
        await put(f"{n} " + "y" * 20_000)
    await asyncio.gather(*(put(f"group {n} " + "z" * 20_000) for n in range(5)))
    lift()
    for n in range(5):
        await put(f"late {n}")
    await store.close()
    report()
asyncio.run(main())
"""


async def check_full(path: Path, result: dict[str, Any]) -> None:
    codes = {code for _, code, _ in result["refused"]}
    assert codes == {"full"}, result["refused"]
    for _, code, text in result["refused"]:
        sentence(StoreError(text, code), "full")
    assert [t for t in result["acked"] if t.startswith(("early", "late"))] == [
        *(f"early {n}" for n in range(5)),
        *(f"late {n}" for n in range(5)),
    ]
    assert await texts(path) == result["acked"]
    store = SqliteStore(path)
    assert await store.maintenance.check_integrity() == []
    await store.close()


async def test_f63_file_size_limit(path: Path) -> None:
    code = """
def limit():
    size = 150_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
def lift():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""
    await check_full(path, child(code + FILL, path))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KB."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = ROOT and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", str(folder)],
        capture_output=True,
    )
    if not made or made.returncode:
        pytest.skip("needs root and mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_f63_disk_full(small_disk: Path) -> None:
    code = """
ballast = path.parent / "ballast"
def limit():
    with ballast.open("wb") as file:
        file.write(b"x" * 150_000)
def lift():
    ballast.unlink()
"""
    path = small_disk / "state.db"
    await check_full(path, child(code + FILL, path))


async def test_f63_no_room_to_create(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096) == 4096:
                pass
        except OSError:
            pass
    path = small_disk / "state.db"
    store = SqliteStore(path)
    with pytest.raises(StoreError) as refused:
        await store.sessions.create(SessionMeta("s"))
    sentence(refused.value, "full")
    assert not path.exists()
    ballast.unlink()
    await store.sessions.create(SessionMeta("s"))
    assert await store.sessions.get_meta("s") is not None
    await store.close()


# -- the disk fails --------------------------------------------------------------------------------

WRITES = """
async def main():
    try:
        await store.sessions.create(SessionMeta("s"))
        acked.append("created")
    except StoreError as error:
        refused.append(["created", error.code, str(error)])
    for n in range(12):
        await put(f"m{n}")
    try:
        await store.close()
    finally:
        report()
asyncio.run(main())
"""


@pytest.mark.skipif(not STRACE, reason="needs strace")
@pytest.mark.parametrize("when", ["3", "14", "14..15", "15..16", "15..17", "14+", "1+"])
@pytest.mark.parametrize("call", ["fdatasync,fsync", "pwrite64"])
async def test_f64_io_error_is_never_acknowledged(path: Path, call: str, when: str) -> None:
    """A write or a sync fails once, for a while, or from some moment on. When the sync of a commit
    and the one of the closing checkpoint fail, the commit is found again after reopening."""
    inject = (
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:error=EIO:when={when}",
    )
    result = child(WRITES, path, prefix=(str(STRACE), "-f", *inject))
    for _, code, text in result["refused"]:
        sentence(StoreError(text, code), code)
        assert code in ("io", "missing"), result["refused"]
    if when.endswith("+"):
        assert result["refused"]
    acked = [t for t in result["acked"] if t != "created"]
    stored = await texts(path)
    assert len(stored) == len(set(stored)), "stored twice"
    unsure = {t for t, *_ in result["refused"]}
    assert [t for t in stored if t not in unsure] == acked
    assert set(acked) <= set(stored)


# -- not writable ----------------------------------------------------------------------------------


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    mounted: list[Path] = []

    def freeze(folder: Path) -> None:
        if not ROOT:
            folder.chmod(0o500)
            return
        bound = subprocess.run(["mount", "--bind", folder, folder], capture_output=True)
        if bound.returncode:
            pytest.skip("needs mount")
        mounted.append(folder)
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)

    yield freeze
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("existing", [False, True])
async def test_f65_read_only_home(
    path: Path, read_only: Callable[[Path], None], existing: bool
) -> None:
    path.parent.mkdir()
    if existing:
        await fill(path)
    read_only(path.parent)
    store = SqliteStore(path)
    for call in (store.wait_until_open(), store.sessions.create(SessionMeta("t"))):
        with pytest.raises(StoreError) as refused:
            await call
        sentence(refused.value, "readonly")
        assert "HERMES_HOME" in str(refused.value)
    await store.close()


async def test_f65_home_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("not a folder")
    store = SqliteStore(tmp_path / "home" / "state.db")
    with pytest.raises(StoreError):
        await store.wait_until_open()
    await store.close()


async def test_f65_missing_home_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "state.db"
    store = SqliteStore(path)
    await store.sessions.create(SessionMeta("s"))
    assert path.parent.stat().st_mode & 0o777 == 0o700
    await store.close()


# -- locked by somebody ----------------------------------------------------------------------------


class Holder:
    """Another process that keeps the write lock until it is told to let go."""

    def __init__(self, path: Path) -> None:
        code = (
            "import apsw, sys; db = apsw.Connection(sys.argv[1]);"
            "db.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "held\n"

    def let_go(self) -> None:
        self._process.communicate("")


async def test_f66_waits_for_a_lock(path: Path, store: SqliteStore) -> None:
    await store.sessions.create(SessionMeta("s"))
    holder = Holder(path)
    waiting = asyncio.ensure_future(store.sessions.append("s", [user("patient")]))
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done and await store.sessions.load_messages("s") == []
    await asyncio.to_thread(holder.let_go)
    await asyncio.wait_for(waiting, 10)
    assert [m.text for m in await store.sessions.load_messages("s")] == ["patient"]


async def test_f66_gives_up_on_a_lock_that_stays(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connection.LOCK_TIMEOUT == 5.0
    monkeypatch.setattr(connection, "LOCK_TIMEOUT", 0.3)
    await store.sessions.create(SessionMeta("s"))
    holder = Holder(path)
    calls = [store.sessions.append("s", [user("refused")]) for _ in range(3)]
    results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
    for result in results:
        assert isinstance(result, StoreError)
        sentence(result, "busy")
    await asyncio.to_thread(holder.let_go)
    await store.sessions.append("s", [user("saved")])
    assert [m.text for m in await store.sessions.load_messages("s")] == ["saved"]


# -- damage ----------------------------------------------------------------------------------------


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
        store.sessions.append("s", [user("x")]),
    ):
        with pytest.raises(StoreError) as refused:
            await call
        sentence(refused.value, "damaged")
        assert str(path)[-60:] in str(refused.value)
    await store.close()
    with raw_database():
        assert digest(path) == before
    store = SqliteStore(path)
    aside = (await store.maintenance.salvage()).damaged_file
    with raw_database():
        assert digest(aside) == before
    await store.sessions.append("t", [user("fresh start")], create=SessionMeta("t"))
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
        said = [user(f"{i} {k} " + "x" * 2000) for k in range(10)]
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
        await store.sessions.append(name, [user("go on")], state="idle")
        assert (await store.sessions.load_messages(name))[-1].text == "go on"
    await store.close()


async def test_f67_setting_aside_waits_for_no_living_neighbour(path: Path) -> None:
    other, store = SqliteStore(path), SqliteStore(path)
    await other.sessions.append("s", [user("x")], state="running", create=SessionMeta("s"))
    with pytest.raises(StoreError) as refused:
        await store.maintenance.salvage()
    sentence(refused.value, "in_use")
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
    assert await texts(path) == ["in the wal only"]


async def test_f67_a_text_that_is_none_is_damage(path: Path) -> None:
    await fill(path, 3, 10)
    db = apsw.Connection(str(path))
    db.execute("UPDATE sessions SET title = CAST(x'ff61' AS TEXT)")
    db.close()
    store = SqliteStore(path)
    with pytest.raises(StoreError) as refused:
        await store.sessions.list_recent()
    sentence(refused.value, "damaged")
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
    originals = await texts(path)
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
        await noting(problems, asyncio.wait_for(store.sessions.append("s", [user("after")]), 10))
        await store.close()
    assert noticed >= 8, "the damage was mostly where nothing is"


async def noting(problems: list[Any], call: Awaitable[Any]) -> Any:
    try:
        return await call
    except StoreError as error:
        assert len(str(error)) <= 300
        problems.append(error)
        return None


# -- many processes (R3) ---------------------------------------------------------------------------

NEIGHBOUR = """
import time
async def main():
    name, count = sys.argv[2], int(sys.argv[3])
    waits = []
    for n in range(count):
        start = time.monotonic()
        await store.sessions.append(
            name, [user(f"{name} {n}")], create=SessionMeta(name) if n == 0 else None
        )
        waits.append(time.monotonic() - start)
        if n % 50 == 7:
            assert len(await store.sessions.load_messages(name)) == n + 1
        if n % 100 == 33:
            await store.search.find_messages(name)
    await store.close()
    waits.sort()
    print(json.dumps({"p99": waits[len(waits) * 99 // 100], "max": waits[-1]}))
asyncio.run(main())
"""


def _checkpoint(db: apsw.Connection) -> None:
    with contextlib.suppress(apsw.BusyError):  # another process is at it
        db.wal_checkpoint()


@pytest.mark.timeout(120)
async def test_r3_eight_processes_a_reader_checkpoints_and_backups(
    path: Path, tmp_path: Path
) -> None:
    count, processes = 500, 8
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PRELUDE + NEIGHBOUR,
            str(path),
            f"p{n}",
            str(count),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for n in range(processes)
    ]
    outputs = asyncio.gather(*(c.communicate() for c in children))
    store = SqliteStore(path)
    backups = 0
    while not outputs.done():
        await store.maintenance.back_up(str(tmp_path / f"{backups}.bak"))
        backups += 1
        for meta in await store.sessions.list_recent():
            assert len(await store.sessions.load_messages(meta.id)) >= meta.messages
        await store._database.writer.submit(_checkpoint, mode="alone")
        await asyncio.wait([outputs], timeout=0.2)
    figures = []
    for out, err in await outputs:
        assert not err, err.decode()
        figures.append(json.loads(out))
    print(f"{backups} backups; {figures}")
    for n in range(processes):
        expected = [f"p{n} {k}" for k in range(count)]
        assert [m.text for m in await store.sessions.load_messages(f"p{n}")] == expected
    assert await store.maintenance.check_integrity() == []
    assert len(await store.search.find_messages("p3", limit=1000)) == count
    await store.close()
    for n in range(backups):
        db = apsw.Connection(str(tmp_path / f"{n}.bak"))
        assert db.execute("PRAGMA integrity_check").get == "ok"
        counts = db.execute(
            "SELECT s.count - (SELECT count(*) FROM messages m WHERE m.session = s.n)"
            " FROM sessions s"
        )
        assert all(difference == 0 for (difference,) in counts)
        db.close()


# -- nobody opens the file (R2) --------------------------------------------------------------------


@pytest.mark.skipif(not STRACE, reason="needs strace")
def test_files_are_born_private_and_opened_by_sqlite_only(path: Path, tmp_path: Path) -> None:
    """Every file is created with at most 0600, never widened, and the database is opened by no
    code but the library's: Python's own opens would show as openat without O_NOFOLLOW."""
    log = tmp_path / "trace"
    code = """
import asyncio, os
async def main():
    await store.sessions.append("s", [user("x")], state="running", create=SessionMeta("s"))
    await store.search.find_messages("x")
    await store.maintenance.back_up(str(path.parent / "copy.db"))
    await store.close()
    report()
os.umask(0)
asyncio.run(main())
"""
    trace = ("-f", "-qq", "-o", str(log), "-e", "trace=openat,creat,chmod,fchmod,fchmodat,open")
    child(code, path, prefix=(str(STRACE), *trace))
    home = str(path.parent)
    lines = [line for line in log.read_text().splitlines() if home in line or "fchmod(" in line]
    created = [line for line in lines if "O_CREAT" in line]
    assert any("state.db" in line for line in created)
    for line in created:
        assert "0600)" in line, line
    for line in lines:
        if "chmod" in line:
            assert "0600)" in line, line
    opens = [line for line in lines if ".db" in line and "openat" in line]
    assert opens
    for line in opens:
        assert "O_NOFOLLOW" in line, line

"""The store when the disk, its permissions or a lock misbehave (F63-F66)."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes.core.errors import StoreError
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.store import connection
from hermes.store.errors import translate_error
from hermes.store.sqlite import SqliteStore
from tests.unit.store.children import ROOT, STRACE, check_sentence, fill, read_texts, run_child

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
        check_sentence(StoreError(text, code), "full")
    assert [t for t in result["acked"] if t.startswith(("early", "late"))] == [
        *(f"early {n}" for n in range(5)),
        *(f"late {n}" for n in range(5)),
    ]
    assert await read_texts(path) == result["acked"]
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
    await check_full(path, run_child(code + FILL, path))


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
    await check_full(path, run_child(code + FILL, path))


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
    check_sentence(refused.value, "full")
    assert not path.exists()
    ballast.unlink()
    await store.sessions.create(SessionMeta("s"))
    assert await store.sessions.get_meta("s") is not None
    await store.close()


async def test_f63_room_for_a_part_of_what_is_created(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    for room in range(0, 512_000, 16_384):
        ballast.write_bytes(bytes(512_000 - room))
        path = small_disk / "state.db"
        store = SqliteStore(path)
        with suppress(StoreError):
            await store.sessions.create(SessionMeta("s"))
        with suppress(StoreError):
            await store.close()
        ballast.unlink()
        store = SqliteStore(path)
        await store.sessions.create(SessionMeta("t"))
        assert await store.maintenance.check_integrity() == []
        await store.close()
        for file in small_disk.glob("state.db*"):
            file.unlink()


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
    result = run_child(WRITES, path, prefix=(str(STRACE), "-f", *inject))
    for _, code, text in result["refused"]:
        check_sentence(StoreError(text, code), code)
        assert code in ("io", "missing"), result["refused"]
    if when.endswith("+"):
        assert result["refused"]
    acked = [t for t in result["acked"] if t != "created"]
    stored = await read_texts(path)
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
        check_sentence(refused.value, "readonly")
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


async def test_f66_waits_for_a_lock(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOCK_TIMEOUT", 60.0)
    await store.sessions.create(SessionMeta("s"))
    holder = Holder(path)
    waiting = asyncio.ensure_future(store.sessions.append("s", [user_message("patient")]))
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done and await store.sessions.load_messages("s") == []
    await asyncio.to_thread(holder.let_go)
    await asyncio.wait_for(waiting, 90)
    assert [m.text for m in await store.sessions.load_messages("s")] == ["patient"]


async def test_f66_gives_up_on_a_lock_that_stays(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connection.LOCK_TIMEOUT == 5.0
    monkeypatch.setattr(connection, "LOCK_TIMEOUT", 0.3)
    await store.sessions.create(SessionMeta("s"))
    holder = Holder(path)
    calls = [store.sessions.append("s", [user_message("refused")]) for _ in range(3)]
    results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 90)
    for result in results:
        assert isinstance(result, StoreError)
        check_sentence(result, "busy")
    await asyncio.to_thread(holder.let_go)
    await store.sessions.append("s", [user_message("saved")])
    assert [m.text for m in await store.sessions.load_messages("s")] == ["saved"]


# -- permissions of files that hold nothing --------------------------------------------------------

MEND = """
import shutil, tempfile
from hermes.store import codec, search_index
import apsw, msgspec, hermes.core.text
home = pathlib.Path(tempfile.mkdtemp(dir="/tmp", prefix="hermes-test-"))
if os.geteuid() == 0:
    os.chown(home, 65534, 65534)
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
path = home / "state.db"

async def main():
    first = SqliteStore(path)
    await first.sessions.append(
        "s", [user_message("one")], create=SessionMeta("s"), state="running"
    )
    await first._database.reader.close()
    copies = {f.name: f.read_bytes() for f in home.iterdir() if f.is_file()}
    await first.close()
    for name, content in copies.items():  # as a killed process leaves them
        (home / name).write_bytes(content)
    stale = home / "run" / ("a" * 32 + ".lock")
    stale.touch()
    for file in (home / "state.db-shm", home / "run" / "database.lock", stale):
        assert file.exists(), file
        file.chmod(0)
    again = SqliteStore(path)
    await again.sessions.append("s", [user_message("two")], state="running")
    acked.extend(m.text for m in await again.sessions.load_messages("s"))
    await again.close()
    path.unlink()
    (home / "run" / "database.lock").chmod(0)
    fresh = SqliteStore(path)
    await fresh.sessions.create(SessionMeta("t"))
    await fresh.close()
    acked.append("fresh")

try:
    asyncio.run(main())
finally:
    shutil.rmtree(home)
    report()
"""


async def test_f65_stale_files_with_wrong_permissions_are_mended(path: Path) -> None:
    assert run_child(MEND, path)["acked"] == ["one", "two", "fresh"]


def test_f71_too_many_open_files_are_no_failure_of_the_disk(path: Path) -> None:
    for error, number in (
        (OSError(errno.EMFILE, "Too many open files"), 0),
        (apsw.CantOpenError("unable to open database file"), errno.EMFILE),
    ):
        check_sentence(translated := translate_error(error, path, number), "files")
        assert "ulimit" in str(translated) and "disk" not in str(translated)

"""Opens the database: creates it whole and private, refuses what is damaged, newer or foreign."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.core.errors import StoreError
from hermes.store import errors as faults
from hermes.store import process_locks as locks
from hermes.store.migrations import APPLICATION, VERSION, migrate, version

if TYPE_CHECKING:
    from apsw import Connection

PATIENCE = 5.0
"""Seconds to wait for a lock that another process holds."""
ENGINE = (3, 51, 3)
"""Before it, two connections that write or checkpoint a WAL at once could corrupt the file."""


def writer(path: Path, notices: list[str]) -> Connection:
    """The one connection that writes. What the user should know is added to `notices`."""
    import apsw

    if tuple(map(int, apsw.sqlite_lib_version().split("."))) < ENGINE:
        raise StoreError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt databases; Hermes does not use it. "
            "Nothing was touched. Install apsw 3.51.3 or newer from its wheel.",
            "engine",
        )
    try:
        _inspect(path, notices)
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    except (apsw.Error, OSError, UnicodeError) as error:
        raise faults.explain(error, path) from error
    try:
        db.set_busy_handler(patience())
        _accept(db, path)
        if version(db) < VERSION:
            migrate(db)
        _use_wal(db, path)
        # In one go: each statement that crosses into SQLite gives up the interpreter lock.
        db.execute(
            "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;"
            "PRAGMA journal_size_limit = 33554432"
        ).fetchall()
    except (apsw.Error, StoreError) as error:
        errno = db.system_errno
        db.close(True)
        raise faults.explain(error, path, errno) from error
    return db


def reader(path: Path) -> Connection:
    """For a database that a writer of this process has opened before."""
    import apsw

    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        db.set_busy_handler(patience())
    except apsw.Error as error:
        raise faults.explain(error, path) from error
    return db


def patience() -> Callable[[int], bool]:
    """A busy handler: waits with jitter, so that processes in step get out of it."""
    deadline = 0.0

    def wait(attempt: int) -> bool:
        nonlocal deadline
        now = time.monotonic()
        if attempt == 0:
            deadline = now + PATIENCE
        if now >= deadline:
            return False
        time.sleep(min(0.001 * (attempt + 1), 0.025) * (0.5 + os.urandom(1)[0] / 255))
        return True

    return wait


def _inspect(path: Path, notices: list[str]) -> None:
    """What can be told without opening the file, which is SQLite's alone to do."""
    try:
        found = path.stat()
    except FileNotFoundError:
        _make(path)
        found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise faults.fault("damaged", path, "not a file")
    if found.st_size == 0:
        # Ours appear whole, by a rename: an empty one is what some accident left.
        raise faults.fault("damaged", path, "it is empty")
    if found.st_mode & 0o077:
        for file in files(path):
            with suppress(FileNotFoundError):
                file.chmod(0o600)
        notices.append(f"{path} could be read by other users; it is private now.")
    _, wal, shm, _ = files(path)
    if shm.exists() and not wal.exists():
        # SQLite removes the second file last. Without it, what was not yet copied is gone.
        notices.append(
            f"{path}-wal has been removed by someone: the last messages before the last crash "
            "may be missing. Everything else is there."
        )


def _accept(db: Connection, path: Path) -> None:
    """The first read; SQLite itself notices a bad header and a file cut short."""
    _, wal, *_ = files(path)
    pending = wal.exists() and wal.stat().st_size
    if not pending and path.stat().st_size % int(db.pragma("page_size")):
        raise faults.fault("damaged", path, "its last page is cut short")
    found = version(db)
    mine = int(db.pragma("application_id")) == APPLICATION
    tables = db.execute("SELECT count(*) FROM sqlite_schema").get
    if not mine and (tables or found):
        raise faults.foreign(path)
    if found > VERSION:
        raise faults.newer(path, found, VERSION)


def _use_wal(db: Connection, path: Path) -> None:
    """A no-op, except for a restored backup. SQLite does not wait for others here by itself."""
    import apsw

    wait, attempt, found = patience(), 0, ""
    while not found:
        try:
            found = db.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if not wait(attempt):
                raise
            attempt += 1
    if found != "wal":
        raise faults.fault("unopened", path, "this file system cannot share it between processes")


def _make(path: Path) -> None:
    """Built under another name and renamed: whoever sees the database sees all of it."""
    import apsw

    locks.make_folder(path.parent)
    lock = path.parent / "run" / "database.lock"
    with locks.exclusive(lock):
        if path.exists():
            return
        fresh = path.with_name(path.name + ".new")
        remove(fresh)
        db = private(fresh, lock)
        try:
            db.set_busy_handler(patience())
            _use_wal(db, path)
            migrate(db)
        except apsw.Error:
            db.close(True)
            with suppress(OSError):
                remove(fresh)
            raise
        db.close()
        fresh.rename(path)
        sync_folder(path.parent)


def private(path: Path, like: Path) -> Connection:
    """A new database file with the permissions of `like` (0600) from its first byte, whatever the
    umask is; its sidecars inherit them."""
    import apsw

    uri = f"{path.absolute().as_uri()}?modeof={like.absolute().as_uri().removeprefix('file://')}"
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    return apsw.Connection(uri, flags=flags)


def files(path: Path) -> tuple[Path, Path, Path, Path]:
    """The database and what SQLite keeps beside it."""
    wal, shm, journal = (path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))
    return path, wal, shm, journal


def remove(path: Path) -> None:
    for file in files(path):
        file.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Makes a rename survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""Opens the database: creates it complete and private; refuses damaged, newer or foreign files."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.config.private_files import restore_access, sync_folder
from hermes.core.errors import StoreError
from hermes.store import errors
from hermes.store.migrations import APPLICATION_ID, SCHEMA_VERSION, migrate, read_version
from hermes.store.process_locks import exclusive_lock, make_folder

if TYPE_CHECKING:
    from apsw import Connection

LOCK_TIMEOUT = 5.0
"""Seconds to wait for a lock that another process holds."""
_CHECKED_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'search%'"
MIN_SQLITE_VERSION = (3, 51, 3)
"""In earlier ones, two connections that write or checkpoint a WAL at once can corrupt the file."""


def open_writer(path: Path, notices: list[str]) -> Connection:
    """The one connection that writes. Adds to `notices` what the user should be told."""
    import apsw

    if tuple(map(int, apsw.sqlite_lib_version().split("."))) < MIN_SQLITE_VERSION:
        raise StoreError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt databases; Hermes does not use it. "
            "Nothing was touched. Install apsw 3.51.3 or newer from its wheel.",
            "engine",
        )
    try:
        _check_file(path, notices)
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    except (apsw.Error, OSError, UnicodeError) as error:
        raise errors.translate_error(error, path) from error
    try:
        if db.readonly("main"):  # SQLite falls back to reading without a word
            raise errors.error_of_kind("readonly", path, "read-only")
        db.set_busy_handler(make_busy_handler())
        _check_contents(db, path)
        if read_version(db) < SCHEMA_VERSION:
            migrate(db)
        _enable_wal(db, path)
        # In one call: each one that crosses into SQLite releases the interpreter lock.
        db.execute(
            "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;"
            "PRAGMA journal_size_limit = 33554432"
        ).fetchall()
    except (apsw.Error, StoreError) as error:
        errno = db.system_errno
        db.close(True)
        raise errors.translate_error(error, path, errno) from error
    return db


def open_reader(path: Path) -> Connection:
    """A read-only connection; a writer of this process must have opened the database before."""
    import apsw

    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        db.set_busy_handler(make_busy_handler())
    except apsw.Error as error:
        raise errors.translate_error(error, path) from error
    return db


def open_read_only(path: Path) -> Connection:
    """A connection for a disk that is full or mounted read-only, where SQLite cannot create the
    shared memory of a WAL."""
    import apsw

    try:
        _, wal, *_ = database_files(path)
        if not (wal.exists() and wal.stat().st_size > 0):
            # Without a WAL the file alone is complete, and nobody can change it here.
            db, version = _connect_to_read(path, "?immutable=1")
        else:
            try:
                db, version = _connect_to_read(path)
            except apsw.Error:
                # The shared memory is missing, or a crash left it unusable: the index of the WAL
                # is built again in this process, which takes a lock that a read-only file refuses.
                locks = "" if os.access(path, os.W_OK) else "?vfs=unix-none"
                db, version = _connect_to_read(path, locks, "PRAGMA locking_mode = EXCLUSIVE")
    except (apsw.Error, OSError) as error:
        raise errors.translate_error(error, path) from error
    if version != SCHEMA_VERSION:
        raise errors.error_of_kind("newer" if version > SCHEMA_VERSION else "readonly", path)
    return db


def _connect_to_read(path: Path, query: str = "", setup: str = "") -> tuple[Connection, int]:
    """The connection, and the schema's version as the first thing read through it."""
    import apsw

    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    db = apsw.Connection(path.absolute().as_uri() + query, flags=flags)
    try:
        db.execute(setup).fetchall()
        return db, read_version(db)
    except apsw.Error:
        db.close(True)
        raise


def find_damage(db: Connection, path: Path) -> StoreError | None:
    """The first inconsistency of the file, if any; the search index, which can be rebuilt, is left
    out. The work is about a second for 500 MB."""
    import apsw

    try:
        tables = [str(name) for (name,) in db.execute(_CHECKED_TABLES)]
        for table in tables:
            found = db.execute(f"PRAGMA quick_check({table})").fetchall()
            if found != [("ok",)]:
                return errors.error_of_kind("damaged", path, " ".join(str(found[0][0]).split()))
    except apsw.Error as error:
        return errors.translate_error(error, path)
    return None


def make_busy_handler() -> Callable[[int], bool]:
    """A busy handler that waits with jitter, so that processes do not retry in step."""
    deadline = 0.0

    def wait_for_lock(attempt: int) -> bool:
        nonlocal deadline
        now = time.monotonic()
        if attempt == 0:
            deadline = now + LOCK_TIMEOUT
        if now >= deadline:
            return False
        time.sleep(min(0.001 * (attempt + 1), 0.025) * (0.5 + os.urandom(1)[0] / 255))
        return True

    return wait_for_lock


def _check_file(path: Path, notices: list[str]) -> None:
    """Everything that can be checked without opening the file: only SQLite may do that."""
    try:
        found = path.stat()
    except FileNotFoundError:
        _create_database(path)
        found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise errors.error_of_kind("damaged", path, "not a file")
    if found.st_size == 0:
        # Ours appear complete, by a rename: an empty file is the result of some accident.
        raise errors.error_of_kind("damaged", path, "it is empty")
    if found.st_mode & 0o077:
        for file in database_files(path):
            with suppress(FileNotFoundError):
                file.chmod(0o600)
        notices.append(f"{path} was readable by other users; it is private now.")
    _, wal, shm, _ = database_files(path)
    if shm.exists() and not os.access(shm, os.R_OK | os.W_OK):
        restore_access(shm)
    for file in (path, wal):
        if not os.access(file, os.R_OK | os.W_OK):
            with suppress(OSError):  # of another owner: opening it says so
                file.chmod(0o600)
    if shm.exists() and not wal.exists():
        # SQLite removes the -shm file last. Without the WAL, whatever only it held is gone.
        notices.append(
            f"{path}-wal was deleted by another program: the last messages before the last crash "
            "may be missing. Everything else is intact."
        )


def _check_contents(db: Connection, path: Path) -> None:
    """The first read; SQLite itself notices a bad header and missing pages."""
    _, wal, *_ = database_files(path)
    if not (wal.exists() and wal.stat().st_size) and path.stat().st_size % int(
        db.pragma("page_size")
    ):
        raise errors.error_of_kind("damaged", path, "its last page is cut short")
    found = read_version(db)
    is_ours = int(db.pragma("application_id")) == APPLICATION_ID
    tables = db.execute("SELECT count(*) FROM sqlite_schema").get
    if not is_ours and (tables or found):
        raise errors.error_of_kind("foreign", path)
    if found > SCHEMA_VERSION:
        known = f"schema {found}; this one knows {SCHEMA_VERSION}"
        raise errors.error_of_kind("newer", path, known)


def _enable_wal(db: Connection, path: Path) -> None:
    """Changes something only in a new or restored database. SQLite itself does not wait here."""
    import apsw

    wait, attempt, mode = make_busy_handler(), 0, ""
    while not mode:
        try:
            mode = db.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if not wait(attempt):
                raise
            attempt += 1
    if mode != "wal":
        reason = "this file system cannot share it between processes"
        raise errors.error_of_kind("unopened", path, reason)


def _create_database(path: Path) -> None:
    """Built under another name and renamed: no process ever sees an incomplete database."""
    import apsw

    make_folder(path.parent)
    lock = path.parent / "run" / "database.lock"
    with exclusive_lock(lock):
        if path.exists():
            return
        fresh = path.with_name(path.name + ".new")
        remove_database(fresh)
        db = create_private(fresh, lock)
        try:
            db.set_busy_handler(make_busy_handler())
            _enable_wal(db, path)
            migrate(db)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # closing it would not say that it failed
        except apsw.Error:
            db.close(True)
            with suppress(OSError):
                remove_database(fresh)
            raise
        db.close()
        fresh.rename(path)
        sync_folder(path.parent)


def create_private(path: Path, like: Path) -> Connection:
    """Create a database with the permissions of `like` (0600) from its first byte on, whatever
    the umask; the files SQLite puts beside it inherit them."""
    import apsw

    uri = f"{path.absolute().as_uri()}?modeof={like.absolute().as_uri().removeprefix('file://')}"
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    return apsw.Connection(uri, flags=flags)


def database_files(path: Path) -> tuple[Path, Path, Path, Path]:
    """The database and the files SQLite keeps beside it: WAL, shared memory, journal."""
    wal, shm, journal = (path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))
    return path, wal, shm, journal


def remove_database(path: Path) -> None:
    for file in database_files(path):
        file.unlink(missing_ok=True)

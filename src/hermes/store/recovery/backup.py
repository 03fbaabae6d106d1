"""Copies and moves of the whole database: online backups, damaged files moved aside."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.config.private_files import sync_folder
from hermes.core.errors import StoreError
from hermes.store import connection, errors
from hermes.store.process_locks import ProcessLock, exclusive_lock

if TYPE_CHECKING:
    from apsw import Connection


def copy_database(db: Connection, path: Path, locks: Path) -> None:
    """Write a consistent copy, one file with mode 0600; it appears complete or not at all."""
    import apsw

    lock = locks / "backup.lock"
    try:
        with exclusive_lock(lock):
            if path.exists():
                raise _exists_error(path)
            part = path.with_name(path.name + ".part")
            connection.remove_database(part)
            try:
                _copy_pages(connection.create_private(part, lock), db)
                _publish_file(part, path)
            finally:
                connection.remove_database(part)
    except (apsw.CorruptError, apsw.NotADBError):
        raise
    except (apsw.Error, OSError) as error:
        raise errors.translate_error(error, path) from error


def _copy_pages(target: Connection, source: Connection) -> None:
    try:
        target.set_busy_handler(connection.make_busy_handler())
        # All pages in one step: a snapshot that later writes neither change nor restart.
        with target.backup("main", source, "main") as copying:
            copying.step(-1)
        # Leaves one plain file that can be read without a WAL beside it.
        target.execute("PRAGMA journal_mode = DELETE").fetchall()
    finally:
        target.close(True)


def _publish_file(part: Path, path: Path) -> None:
    try:
        os.link(part, path)
    except FileExistsError:
        raise _exists_error(path) from None
    except OSError:
        # This file system has no hard links.
        if path.exists():
            raise _exists_error(path) from None
        part.rename(path)
    sync_folder(path.parent)


def _exists_error(path: Path) -> StoreError:
    return StoreError(f"{path} already exists; it was not changed. Choose another name.", "exists")


def merge_wal(path: Path) -> None:
    """Bring everything into the one file so that it can be moved; refused while another process
    has it open."""
    import apsw

    db = connection.open_writer(path, [])
    try:
        # SQLite gives up the WAL only for a sole user; it reports others instead of waiting.
        is_sole_user = str(db.pragma("journal_mode", "delete")) == "delete"
    except apsw.BusyError:
        is_sole_user = False
    finally:
        db.close(True)
    if not is_sole_user:
        raise StoreError(
            f"Another hermes is using {path}. Nothing was changed or lost. End it (hermes status "
            "shows what is running), then try again.",
            "in_use",
        )


def require_sole_process(process: ProcessLock) -> None:
    """Raise a StoreError while any other process uses the database."""
    if process.list_others():
        raise StoreError(
            "Other Hermes processes are using this database. Nothing was changed or lost. "
            "End them, then try again.",
            "in_use",
        )


def move_aside(path: Path, process: ProcessLock) -> Path:
    """Rename a damaged database, deleting nothing. This process must have no connection open."""
    require_sole_process(process)
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        if aside.exists():
            raise _exists_error(aside)
        old_files, new_files = (connection.database_files(p) for p in (path, aside))
        for old, new in zip(old_files, new_files, strict=True):
            if old.exists():
                old.rename(new)
        sync_folder(path.parent)
    except OSError as error:
        raise errors.translate_error(error, path) from error
    return aside

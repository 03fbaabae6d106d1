"""Copies of the whole database: the online backup, and a damaged file put aside."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.core.errors import StoreError
from hermes.store import connection as connect
from hermes.store import errors as faults
from hermes.store import process_locks as locks

if TYPE_CHECKING:
    from apsw import Connection

LEAST_FREE = 256
"""Pages that are worth the work."""
MOST_LEFT = 65_536
"""Pages that are written anew in less time than an idle server's next turn waits."""


def backup(db: Connection, path: Path, run: Path) -> None:
    """A consistent copy in one file, 0600, complete or not there at all."""
    import apsw

    try:
        with locks.exclusive(run / "backup.lock"):
            if path.exists():
                raise _taken(path)
            part = path.with_name(path.name + ".part")
            connect.remove(part)
            try:
                _fill(connect.private(part, run / "backup.lock"), db)
                _publish(part, path)
            finally:
                connect.remove(part)
    except (apsw.CorruptError, apsw.NotADBError):
        raise
    except (apsw.Error, OSError) as error:
        raise faults.explain(error, path) from error


def _fill(target: Connection, source: Connection) -> None:
    try:
        target.set_busy_handler(connect.patience())
        # All pages in one step: a snapshot that later writes neither change nor restart.
        with target.backup("main", source, "main") as copying:
            copying.step(-1)
        # One plain file, which needs no sidecars to be read.
        target.execute("PRAGMA journal_mode = DELETE").fetchall()
    finally:
        target.close(True)


def _publish(part: Path, path: Path) -> None:
    try:
        os.link(part, path)
    except FileExistsError:
        raise _taken(path) from None
    except OSError:
        # No hard links here.
        if path.exists():
            raise _taken(path) from None
        part.rename(path)
    connect.sync_folder(path.parent)


def _taken(path: Path) -> StoreError:
    return StoreError(
        f"{path} exists already; it was left as it is. Choose another name.", "exists"
    )


def fold(path: Path) -> None:
    """Everything into the one file, which nobody else may have open: then it can be moved."""
    import apsw

    db = connect.writer(path, [])
    try:
        # SQLite leaves the WAL only when it is alone; it says so rather than waiting.
        alone = str(db.pragma("journal_mode", "delete")) == "delete"
    except apsw.BusyError:
        alone = False
    finally:
        db.close(True)
    if not alone:
        raise StoreError(
            f"Another hermes uses {path}. Nothing was changed or lost. End it (hermes status "
            "shows what runs), then try again.",
            "in_use",
        )


def alone(owner: locks.Owner) -> None:
    """Refused while anybody else uses the database."""
    if owner.others():
        raise StoreError(
            "Other Hermes processes are using this database. Nothing was changed or lost. "
            "End them, then try again.",
            "in_use",
        )


def set_aside(path: Path, owner: locks.Owner) -> Path:
    """With no connection of this process open. Nothing is deleted."""
    alone(owner)
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        if aside.exists():
            raise _taken(aside)
        for file, new in zip(connect.files(path), connect.files(aside), strict=True):
            if file.exists():
                file.rename(new)
        connect.sync_folder(path.parent)
    except OSError as error:
        raise faults.explain(error, path) from error
    return aside


def shrink(db: Connection, owner: locks.Owner) -> None:
    """Written anew, when a quarter of it is empty and no other process would wait for that; else
    what is written next fills the room."""
    import apsw

    free, pages = (int(db.pragma(name)) for name in ("freelist_count", "page_count"))
    small = free < LEAST_FREE or free * 4 < pages
    if small or pages - free > MOST_LEFT or owner.others():
        return
    db.execute("VACUUM")
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

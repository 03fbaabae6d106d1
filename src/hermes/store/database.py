"""One SQLite file with its two threads: one connection writes, the other reads."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hermes.core.errors import StoreError
from hermes.store.connection import find_damage, open_read_only, open_reader, open_writer
from hermes.store.db_thread import DatabaseThread, do_nothing
from hermes.store.errors import error_of_kind
from hermes.store.process_locks import ProcessLock, exclusive_lock
from hermes.store.recovery.log_index import read_log_index
from hermes.store.recovery.salvage import salvage_database
from hermes.store.writer_thread import Upkeep, WriterThread

if TYPE_CHECKING:
    from apsw import Connection

log = logging.getLogger(__name__)

T = TypeVar("T")

SALVAGE_TIMEOUT = 60.0
"""Seconds to wait for another process that salvages the same file."""

_LOG_DAMAGED = (
    "{path}-wal was damaged or cut short: the last messages before the last crash may be missing. "
    "Everything else is intact."
)


class Database:
    """Only SQLite ever opens the file; the writer opens it before anything is read. Where the file
    cannot be written, `read_only` serves readers all the same."""

    def __init__(
        self, path: Path, upkeep: Upkeep, *, checked_size: int | None, read_only: bool = False
    ) -> None:
        self.path = path
        self.notices: list[str] = []
        """What the user should be told, one sentence each."""
        self.read_only = read_only
        self.process = ProcessLock(path.parent / "run")
        self._checked_size = checked_size
        self.writer: DatabaseThread
        if read_only:
            self.writer = self.reader = DatabaseThread(path, self._open_read_only)
        else:
            self.writer = WriterThread(path, self._open_writer, upkeep)
            self.reader = DatabaseThread(path, self._open_reader)
        self._is_open = self._was_open = False

    async def wait_until_open(self) -> None:
        await self.writer.submit(do_nothing, mode="alone")

    async def read(self, run: Callable[[Connection], T]) -> T:
        if not self._is_open:
            await self.wait_until_open()
        return await self.reader.submit(run)

    async def read_separately(self, run: Callable[[Connection], T]) -> T:
        """For long reads: on a thread and connection of their own, so that others do not wait."""
        if not self._is_open:
            await self.wait_until_open()
        thread = DatabaseThread(self.path, self._open_reader)
        try:
            return await thread.submit(run)
        finally:
            await thread.close()

    async def close_reader(self) -> None:
        """The next read opens it again."""
        await self.reader.run_without_connection(do_nothing)

    async def replace_file(self, run: Callable[[], T]) -> T:
        """Run with both connections closed; the next call opens whatever file is there then."""
        self._is_open = False
        await self.close_reader()
        return await self.writer.run_without_connection(run)

    def find_problem(self) -> StoreError | None:
        found = self.reader.failure
        damage = found if found is not None and found.code == "damaged" else None
        return self._find_loss() or self.writer.failure or damage

    def _open_writer(self) -> Connection:
        self._require_file()
        with suppress(OSError):
            self.process.announce()  # whoever opens the file must know of each other
        try:
            db = self._open_sound()
        except StoreError as error:
            if error.code != "damaged" or self._checked_size is None or self._was_open:
                raise
            db = self._open_salvaged(error)
        self._is_open = self._was_open = True
        return db

    def _open_sound(self) -> Connection:
        """The writer's connection; a small file is checked completely before it is used."""
        index = None if self._was_open else read_log_index(self.path)
        if index:  # what another process was just changing says nothing: it is read again
            index = None if self.process.list_others() else read_log_index(self.path)
        db = open_writer(self.path, self.notices)
        if index and index.misses_frames(db, self.path) and not self.process.list_others():
            self.notices.append(_LOG_DAMAGED.format(path=self.path))
        if not self._was_open and self.path.stat().st_size <= (self._checked_size or 0):
            try:
                damage = find_damage(db, self.path)
            except StoreError as error:
                damage = error
            if damage is not None:
                db.close(True)
                raise damage
        return db

    def _open_salvaged(self, damage: StoreError) -> Connection:
        """Replace the damaged file, unless another process uses it or has replaced it already."""
        with exclusive_lock(self.path.parent / "run" / "salvage.lock", SALVAGE_TIMEOUT):
            try:
                return self._open_sound()
            except StoreError as error:
                if error.code != "damaged":
                    raise
            try:
                result = salvage_database(self.path, self.process)
            except StoreError as error:
                raise damage from error
        notice = (
            f"The session database was damaged; {result.summary}. The damaged file is kept as "
            f"{result.damaged_file}; a backup may hold more (hermes import)."
        )
        log.warning(notice)
        self.notices.append(notice)
        return open_writer(self.path, self.notices)

    def _open_reader(self) -> Connection:
        self._require_file()
        return open_reader(self.path)

    def _require_file(self) -> None:
        if problem := self._find_loss():
            raise problem

    def _find_loss(self) -> StoreError | None:
        """A file that was open and is gone is not replaced by an empty one."""
        gone = self._was_open and not self.path.exists()
        return error_of_kind("gone", self.path) if gone else None

    def _open_read_only(self) -> Connection:
        db = open_read_only(self.path)
        self._is_open = True
        return db

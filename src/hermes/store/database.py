"""One SQLite file with its two threads: one connection writes, the other reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hermes.store.connection import open_reader, open_writer
from hermes.store.db_thread import DatabaseThread, do_nothing
from hermes.store.process_locks import ProcessLock
from hermes.store.writer_thread import Upkeep, WriterThread

if TYPE_CHECKING:
    from apsw import Connection

T = TypeVar("T")


class Database:
    """Only SQLite ever opens the file; the writer opens it before anything is read."""

    def __init__(self, path: Path, upkeep: Upkeep) -> None:
        self.path = path
        self.notices: list[str] = []
        """What the user should be told, one sentence each."""
        self.process = ProcessLock(path.parent / "run")
        self.writer = WriterThread(path, self._open_writer, upkeep)
        self.reader = DatabaseThread(path, partial(open_reader, path))
        self._is_open = False

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
        thread = DatabaseThread(self.path, partial(open_reader, self.path))
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

    def _open_writer(self) -> Connection:
        db = open_writer(self.path, self.notices)
        self._is_open = True
        return db

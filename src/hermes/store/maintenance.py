"""Care of the database file: backups, unused space, integrity, salvage."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.core.errors import StoreError
from hermes.store.codec import decode_message
from hermes.store.database import Database
from hermes.store.process_locks import ProcessLock
from hermes.store.recovery.backup import copy_database
from hermes.store.recovery.salvage import SalvageResult, salvage_database

if TYPE_CHECKING:
    from apsw import Connection

log = logging.getLogger(__name__)

MIN_FREE_PAGES = 256
"""Fewer are not worth the work."""
MAX_USED_PAGES = 65_536
"""More would take so long to rewrite that the next turn of an idle server might have to wait."""


class SqliteMaintenance:
    """Implements `core.store.StoreMaintenance`, and the salvage of a damaged file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def back_up(self, path: str) -> None:
        locks = self._database.path.parent / "run"
        await self._database.read_separately(lambda db: copy_database(db, Path(path), locks))

    async def reclaim_space(self) -> None:
        process = self._database.process
        try:
            await self._database.close_reader()  # it would keep the old pages in use
            await self._database.writer.submit(
                lambda db: _vacuum_if_worthwhile(db, process), mode="alone"
            )
        except StoreError as error:
            log.info("the space of deleted sessions will be reclaimed later: %s", error)

    async def check_integrity(self) -> list[str]:
        return await self._database.read_separately(_run_integrity_check)

    async def list_unreadable(self) -> list[str]:
        """The messages that SQLite takes for sound, because it does not know what they mean."""
        return await self._database.read_separately(_list_unreadable)

    def find_problem(self) -> StoreError | None:
        return self._database.find_problem()

    async def salvage(self) -> SalvageResult:
        """Rename a damaged database and continue with whatever can be read of it."""
        path, process = self._database.path, self._database.process
        return await self._database.replace_file(lambda: salvage_database(path, process))


def _run_integrity_check(db: "Connection") -> list[str]:
    """Leaves out the search index, which can be rebuilt."""
    found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)")]
    return [] if found == ["ok"] else found


def _list_unreadable(db: "Connection") -> list[str]:
    found = []
    rows = db.execute(
        "SELECT s.id, m.seq, m.body FROM messages m LEFT JOIN sessions s ON s.n = m.session"
    )
    for session, seq, body in rows:
        try:
            decode_message(body, seq)
        except StoreError:
            found.append(f"message {seq} of session {session or '(lost)'} cannot be read")
    return found


def _vacuum_if_worthwhile(db: "Connection", process: ProcessLock) -> None:
    """Rewrites the file when a quarter of it is unused and no other process would have to wait;
    otherwise new messages fill the space."""
    import apsw

    free, pages = (int(db.pragma(name)) for name in ("freelist_count", "page_count"))
    has_little = free < MIN_FREE_PAGES or free * 4 < pages
    if has_little or pages - free > MAX_USED_PAGES or process.list_others():
        return
    db.execute("VACUUM")
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

"""The store of conversations: one SQLite file, opened and closed here."""

import time
from collections.abc import Callable
from pathlib import Path

from hermes.store.database import Database
from hermes.store.fact_search import SqliteFactTable
from hermes.store.maintenance import SqliteMaintenance
from hermes.store.search import SqliteSearch
from hermes.store.search_index import IndexBacklog
from hermes.store.sessions import SqliteSessions
from hermes.store.tables.facts import SqlFacts
from hermes.store.tables.jobs import SqlJobs
from hermes.store.tables.ledger import SqlLedger
from hermes.store.tables.mailbox import SqlMailbox, SqlPairings
from hermes.store.tables.objects import SqlObjects


class SqliteStore:
    """Implements `core.store.Store`. The constructor opens nothing: `open` starts opening on the
    writer's thread, and so does the first call, which then waits for it."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        checked_size: int | None = None,
        read_only: bool = False,
    ) -> None:
        """`checked_size`: a damaged database is salvaged when it is opened, and one of at most so
        many bytes is checked completely; None: a damaged one is refused. `read_only`: for a disk
        that cannot be written."""
        backlog = IndexBacklog()
        self._database = database = Database(
            Path(path), backlog.index_pending, checked_size=checked_size, read_only=read_only
        )
        self.ledger = SqlLedger(database)
        self.objects = SqlObjects(database, clock)
        self.mailbox = SqlMailbox(database, clock)
        self.pairings = SqlPairings(database, clock)
        self.sessions = SqliteSessions(database, self.ledger, backlog, clock)
        self.jobs = SqlJobs(database)
        self.search = SqliteSearch(database)
        self.facts = SqlFacts(database, lambda db: SqliteFactTable(db, clock))
        self.maintenance = SqliteMaintenance(database)

    def open(self) -> None:
        """Start opening without waiting; a failure is raised by the first call that needs it."""
        self._database.writer.start()

    async def wait_until_open(self) -> tuple[str, ...]:
        await self._database.wait_until_open()
        return tuple(self._database.notices)

    async def close(self) -> None:
        """Write everything submitted, checkpoint, and release the file."""
        await self._database.reader.close()
        self.ledger.flush()
        await self._database.writer.close()
        self._database.process.release()

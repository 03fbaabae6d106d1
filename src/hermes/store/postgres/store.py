"""The store of conversations on PostgreSQL, opened and closed here."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from hermes.core.errors import StoreError
from hermes.store.postgres.database import PATIENCE, PostgresDatabase, TenantDatabase
from hermes.store.postgres.facts import PostgresFactTable
from hermes.store.postgres.ledger import PostgresLedger
from hermes.store.postgres.search import PostgresSearch
from hermes.store.postgres.sessions import PostgresSessions
from hermes.store.postgres.shared.event_blocks import PostgresObjects
from hermes.store.tables.facts import SqlFacts
from hermes.store.tables.jobs import SqlJobs
from hermes.store.tables.mailbox import SqlMailbox, SqlPairings

LEASE_SECONDS = 10.0


class PostgresStore:
    """Implements `core.store.Store` for one tenant, or for the current one of each call. The
    constructor opens nothing: the first call does."""

    def __init__(
        self,
        database: PostgresDatabase,
        *,
        tenant: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.database = database
        rows = TenantDatabase(database, tenant)
        self.ledger = PostgresLedger(rows)
        self.objects = PostgresObjects(rows, clock)
        self.mailbox = SqlMailbox(rows, clock)
        self.pairings = SqlPairings(rows, clock)
        self.search = PostgresSearch(rows)
        self.sessions = PostgresSessions(rows, self.ledger, self.search, clock)
        self.jobs = SqlJobs(rows.make_exclusive("jobs"))
        self.facts = SqlFacts(rows.make_exclusive("facts"), lambda db: PostgresFactTable(db, clock))
        self.maintenance = PostgresMaintenance(database)

    async def wait_until_open(self) -> tuple[str, ...]:
        await self.database.wait_until_open()
        return ()

    async def close(self) -> None:
        """Write everything submitted, and give up what this process runs."""
        self.ledger.flush()
        await self.database.close()


class PostgresMaintenance:
    """Implements `core.store.StoreMaintenance`: the server cares for its files itself."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def back_up(self, path: str) -> None:
        raise StoreError(
            "The conversations are in PostgreSQL, which Hermes does not back up. Nothing was "
            "written. Use pg_dump or the backups of your database server.",
            "io",
        )

    async def reclaim_space(self) -> None:
        """PostgreSQL does it by itself."""

    async def check_integrity(self) -> list[str]:
        return []

    def find_problem(self) -> StoreError | None:
        return self._database.find_problem()


def open_postgres(
    url: str, *, node: str = "", lease_seconds: float = LEASE_SECONDS, patience: float = PATIENCE
) -> PostgresStore:
    """The store of the current tenant in a database that `hermes cluster init` has prepared."""
    name = node or f"{socket.gethostname()}-{os.urandom(3).hex()}"
    return PostgresStore(
        PostgresDatabase(url, node=name, lease_seconds=lease_seconds, patience=patience)
    )

"""The files of sessions as they were after their last turn."""

from __future__ import annotations

from msgspec import Struct

from hermes.store.postgres.connection import PostgresConnection
from hermes.store.postgres.database import TenantDatabase


class Snapshot(Struct, frozen=True):
    version: int
    node: str
    """The node that made it."""
    missing: str
    """Files that were too large, one a line."""
    body: bytes


class SnapshotTable:
    """One for each session; a newer one replaces it."""

    def __init__(self, database: TenantDatabase) -> None:
        self._database = database

    async def find_version(self, session: str) -> int:
        """0: there is none."""
        sql = "SELECT version FROM snapshots WHERE session = ?"
        return await self._database.read(lambda db: int(db.execute(sql, (session,)).get or 0))

    async def load(self, session: str) -> Snapshot | None:
        sql = "SELECT version, node, missing, body FROM snapshots WHERE session = ?"

        def select_snapshot(db: PostgresConnection) -> Snapshot | None:
            row = db.execute(sql, (session,)).fetchone()
            return Snapshot(*row) if row else None

        return await self._database.read(select_snapshot)

    async def save(self, session: str, snapshot: Snapshot) -> bool:
        """False: another node has saved one meanwhile."""
        made = (snapshot.version, snapshot.node, snapshot.missing, snapshot.body)

        def put_snapshot(db: PostgresConnection) -> bool:
            db.execute(_PUT, (session, *made))
            return bool(db.changes())

        return await self._database.writer.submit(put_snapshot)


_PUT = (
    "INSERT INTO snapshots AS s (session, version, node, missing, body) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (session) DO UPDATE SET version = excluded.version, node = excluded.node,"
    " missing = excluded.missing, body = excluded.body, made = clock_timestamp()"
    " WHERE s.version < excluded.version"
)

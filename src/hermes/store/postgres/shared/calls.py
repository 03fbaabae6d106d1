"""The calls of tools that sessions have begun, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.store.postgres.connection import PostgresConnection
from hermes.store.postgres.database import TenantDatabase


class PostgresCalls:
    """A call is started, then done or unknown. A later one of the same id replaces it."""

    def __init__(self, database: TenantDatabase) -> None:
        self._database = database

    async def mark_started(self, session_id: str, run_id: str, call_id: str) -> None:
        await self._execute(_MARK, session_id, call_id, session_id)

    async def remove_mark(self, session_id: str, run_id: str, call_id: str) -> None:
        sql = "DELETE FROM calls WHERE session = ? AND call = ? AND state = 'started'"
        await self._execute(sql, session_id, call_id)

    async def list_started(self, session_id: str, run_id: str) -> frozenset[str]:
        sql = "SELECT call FROM calls WHERE session = ? AND state = 'started'"
        return await self._database.read(
            lambda db: frozenset(call for (call,) in db.execute(sql, (session_id,)))
        )

    async def close_run(self, session_id: str, run_id: str, unknown: Sequence[str]) -> None:
        sql = (
            "UPDATE calls SET state = CASE WHEN call = ANY(?) THEN 'unknown' ELSE 'done' END"
            " WHERE session = ? AND state = 'started'"
        )
        await self._execute(sql, list(unknown), session_id)

    async def _execute(self, sql: str, *values: object) -> None:
        def execute(db: PostgresConnection) -> None:
            db.execute(sql, values)

        await self._database.writer.submit(execute)


_MARK = (
    "INSERT INTO calls (session, call, epoch) VALUES (?, ?, coalesce((SELECT epoch FROM sessions"
    " WHERE id = ?), 0)) ON CONFLICT (session, call) DO UPDATE SET epoch = excluded.epoch,"
    " started = excluded.started, state = excluded.state"
)

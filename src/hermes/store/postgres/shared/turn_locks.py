"""Locks that make the turns of a session run one after the other on all nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hermes.core.errors import StoreError
from hermes.store.postgres.connection import PostgresConnection
from hermes.store.postgres.database import TenantDatabase, UnreadResult

if TYPE_CHECKING:
    from psycopg import Connection

KIND = "turn_lock"
_FIRST_WAIT = 0.02
_LONGEST_WAIT = 0.25
_RETRY_SECONDS = 1.0
log = logging.getLogger(__name__)


class TurnLocks:
    """Each is held by one node; one of a dead node is free. Within a node others see to it that a
    lock is asked for by one task at a time."""

    def __init__(self, database: TenantDatabase) -> None:
        self._database = database
        self._releasing: dict[str, asyncio.Task[None]] = {}
        """By name: a lock is not taken again before it was given back."""

    @asynccontextmanager
    async def hold_lock(self, name: str) -> AsyncIterator[None]:
        """Hold the lock until the block ends; wait for other nodes."""
        if (releasing := self._releasing.get(name)) is not None:
            await asyncio.shield(releasing)
        wait = _FIRST_WAIT
        try:
            while not await self._try_to_take(name):
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)
            yield
        finally:  # also where nobody waited for it any more when it was taken
            self._releasing[name] = asyncio.create_task(self._give_back(name))

    async def _try_to_take(self, name: str) -> bool:
        me = self._database.process.acquire()

        def take_lock(db: PostgresConnection) -> UnreadResult:
            rows = db.execute(_TAKE, (KIND, name, me.encode()))
            return UnreadResult(lambda: rows.fetchone() is not None)

        return bool(await self._database.writer.submit(take_lock))

    async def _give_back(self, name: str) -> None:
        me = self._database.process.name.encode()
        sql = "DELETE FROM objects WHERE kind = ? AND id = ? AND body = ?"

        def delete_lock(db: PostgresConnection) -> None:
            db.execute(sql, (KIND, name, me))

        try:
            while True:
                try:
                    return await self._database.writer.submit(delete_lock)
                except StoreError as error:
                    if error.code in ("fenced", "closed"):
                        return
                    log.warning("the lock of %s was not given back yet: %s", name, error)
                    await asyncio.sleep(_RETRY_SECONDS)
        finally:
            del self._releasing[name]


def remove_dead_locks(db: Connection[Any]) -> None:
    """Forget the locks of nodes that cannot write any more."""
    db.execute(
        "DELETE FROM public.objects o USING public.tenants t WHERE o.tenant = t.id"
        f" AND o.kind = '{KIND}' AND NOT EXISTS (SELECT 1 FROM public.nodes n"
        " WHERE n.owner = convert_from(o.body, 'UTF8') AND NOT n.condemned)"
    )


_TAKE = (
    "INSERT INTO objects AS o (kind, id, owner, created, used, body)"
    " VALUES (?1, ?2, '', extract(epoch FROM now())::float8, 0, ?3)"
    " ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body WHERE o.body = excluded.body"
    " OR NOT EXISTS (SELECT 1 FROM public.nodes n WHERE n.owner = convert_from(o.body, 'UTF8')"
    " AND NOT n.condemned) RETURNING 1"
)

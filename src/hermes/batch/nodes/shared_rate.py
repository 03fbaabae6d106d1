"""Keeps the model calls of a run on all nodes together below so many a minute."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from hermes.batch.rate_limit import NextStart, Rates
from hermes.store.postgres.database import TenantDatabase

if TYPE_CHECKING:
    from hermes.store.postgres.connection import PostgresConnection
    from hermes.store.postgres.store import PostgresStore

T = TypeVar("T")


class SharedRate:
    """Implements `CallLimit`; the times are those of the database's clock. A node waits for one
    start at a time: what it would have reserved when it dies is lost to the others."""

    def __init__(self, store: PostgresStore, name: str, rates: Rates) -> None:
        self._rows = TenantDatabase(store.database, None)
        self._names = (f"batch:{name}:requests", f"batch:{name}:tokens")
        self._rates = rates
        self._turn = asyncio.Lock()

    async def admit(self, size: int) -> None:
        async with self._turn:
            wait = await self._change(lambda due, now: self._rates.take_start(due, now, size) - now)
            await asyncio.sleep(max(0.0, wait))

    def charge(self, tokens: int) -> None:
        if self._rates.token:
            self._change(lambda due, now: self._rates.charge(due, now, tokens)).add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )

    def _change(self, change: Callable[[NextStart, float], T]) -> asyncio.Future[T]:
        def change_rows(db: PostgresConnection) -> T:
            found = [self._lock_row(db, name) for name in self._names]
            now = float(db.execute("SELECT extract(epoch FROM clock_timestamp())::float8").get)
            due = NextStart(*found)
            result = change(due, now)
            for name, at in zip(self._names, (due.by_requests, due.by_tokens), strict=True):
                db.db.execute(_PUT, (at, db.tenant, name))
            return result

        return self._rows.writer.submit(change_rows)

    def _lock_row(self, db: PostgresConnection, name: str) -> float:
        db.db.execute(_ADD, (db.tenant, name))
        row = db.db.execute(_LOCK, (db.tenant, name)).fetchone()
        return float(row[0]) if row else 0.0


_ADD = "INSERT INTO public.limits (tenant, name, amount) VALUES (%s, %s, 0) ON CONFLICT DO NOTHING"
_LOCK = "SELECT amount FROM public.limits WHERE tenant = %s AND name = %s FOR UPDATE"
_PUT = "UPDATE public.limits SET amount = %s WHERE tenant = %s AND name = %s"

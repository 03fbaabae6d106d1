"""What only one node does at a time: who holds it, and the wake that finds the next holder."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hermes.store.postgres.connection import PostgresConnection
from hermes.store.postgres.database import PostgresDatabase
from hermes.store.postgres.engine import SINGLETONS, Defer, Wake
from hermes.store.postgres.errors import translate_error

if TYPE_CHECKING:
    from psycopg import Connection

    from hermes.store.postgres.lease import NodeLease


class SingletonTable:
    """A holder that has died is replaced only after the database refuses what it writes."""

    def __init__(self, database: PostgresDatabase, defer: Defer) -> None:
        self._database = database
        self._defer = defer

    async def announce(self, name: str) -> None:
        """Have some node become the holder when there is none."""
        wake = Wake(0, name, SINGLETONS)
        await self._database.writer.submit(lambda db: self._defer(db.db, wake))

    async def acquire(self, name: str) -> bool:
        """Whether this node is the holder from now on."""
        lease = self._database.lease
        me = lease.acquire()
        sql = "SELECT owner FROM public.singletons WHERE name = %s"
        row = await self._database.read(lambda db: db.db.execute(sql, (name,)).fetchone())
        holder = row[0] if row else ""
        if holder != me and not await asyncio.to_thread(_confirm_death, lease, holder):
            return False

        def put_holder(db: PostgresConnection) -> bool:
            return db.db.execute(_TAKE, (name, me, me, holder)).fetchone() is not None

        return await self._database.writer.submit(put_holder)

    async def release(self, name: str) -> None:
        """Let another node have it."""
        me, wake = self._database.lease.name, Wake(0, name, SINGLETONS)

        def delete_holder(db: PostgresConnection) -> None:
            sql = "DELETE FROM public.singletons WHERE name = %s AND owner = %s"
            db.db.execute(sql, (name, me))
            self._defer(db.db, wake)

        await self._database.writer.submit(delete_holder)


class Holder(Struct, frozen=True):
    node: str
    age: float
    """Seconds since its last sign of life."""


def find_holder(db: Connection[Any], name: str) -> Holder | None:
    """The living node that does it now."""
    row = db.execute(
        "SELECT n.name, extract(epoch FROM clock_timestamp() - n.beat)::float8"
        " FROM public.singletons s JOIN public.nodes n USING (owner)"
        " WHERE s.name = %s AND public.is_alive(n.owner)",
        (name,),
    ).fetchone()
    return Holder(*row) if row else None


def _confirm_death(lease: NodeLease, holder: str) -> bool:
    import psycopg

    try:
        return lease.confirm_death(holder)
    except psycopg.Error as error:
        raise translate_error(error) from error


def renew_singletons(db: Connection[Any], defer: Defer) -> int:
    """Find new holders where nobody looks for one: the tables of the engine were lost. How many
    there are."""
    rows = db.execute(
        "SELECT name FROM public.singletons s WHERE NOT EXISTS (SELECT 1"
        " FROM public.procrastinate_jobs j WHERE j.lock = 'singleton:' || s.name"
        " AND j.status IN ('todo', 'doing'))"
    ).fetchall()
    with db.transaction():
        for (name,) in rows:
            defer(db, Wake(0, name, SINGLETONS))
    return len(rows)


_TAKE = (
    "INSERT INTO public.singletons AS s (name, owner) VALUES (%s, %s) ON CONFLICT (name)"
    " DO UPDATE SET owner = excluded.owner, since = clock_timestamp() WHERE s.owner IN (%s, %s)"
    " RETURNING 1"
)

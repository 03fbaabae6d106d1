"""What nodes tell each other of the keys of providers: pauses, rates, and renewed logins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg

from hermes.core.errors import StoreError
from hermes.store.postgres.connection import Connect, PostgresConnection
from hermes.store.postgres.database import PostgresDatabase
from hermes.store.postgres.shared.seal import seal_text, unseal_text

if TYPE_CHECKING:
    from psycopg import Connection

log = logging.getLogger(__name__)


class PostgresKeys:
    """Implements `llm.auth.cooldown.SharedKeys`. Times are those of the database's clock."""

    def __init__(self, database: PostgresDatabase, cluster_key: str) -> None:
        """`cluster_key`: seals logins; empty: each node has its own."""
        self._database = database
        self._cluster_key = cluster_key

    def tell_nodes(self, digest: str, kind: str, seconds: float, why: str) -> None:
        values = (digest, kind, seconds, why, self._database.lease.name)

        def put_row(db: PostgresConnection) -> None:
            db.db.execute(_PUT_COOLING, values)

        self._database.writer.submit(put_row).add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )

    async def ask_nodes(self, digests: Sequence[str]) -> list[tuple[str, str, float, str]]:
        values = (list(digests), self._database.lease.name)
        try:
            return await self._database.read(
                lambda db: db.db.execute(_GET_COOLING, values).fetchall()
            )
        except StoreError as error:  # the limit is hit again, that is all
            log.warning("what other nodes know of keys could not be read: %s", error)
            return []

    async def reserve_start(self, digest: str, interval: float) -> float:
        values = (f"credential {digest}", interval, interval, interval)

        def take_start(db: PostgresConnection) -> float:
            row = db.db.execute(_TAKE_START, values).fetchone()
            return float(row[0]) if row else 0.0

        try:
            return await self._database.writer.submit(take_start)
        except StoreError as error:  # the provider counts, too
            log.warning("the rate of a key could not be counted: %s", error)
            return 0.0

    @asynccontextmanager
    async def hold_login(self, name: str) -> AsyncIterator[SealedLogin | None]:
        if not self._cluster_key:
            yield None
            return
        row = SealedLogin(name, self._cluster_key)
        try:
            await asyncio.to_thread(row.lock_row, self._database.open_apart)
        except (psycopg.Error, StoreError) as error:
            log.warning("the login %s is renewed by this node alone: %s", name, error)
            yield None
            return
        try:
            yield row
        finally:
            await asyncio.to_thread(row.unlock_row)


class SealedLogin:
    """Implements `llm.auth.cooldown.LoginRow`: the row is locked until the block ends."""

    def __init__(self, name: str, cluster_key: str) -> None:
        self.body = b""
        self._name = name
        self._key = cluster_key
        self._db: Connection[Any] | None = None

    def lock_row(self, connect: Connect) -> None:
        self._db = db = connect()
        db.autocommit = False
        sql = "INSERT INTO public.logins (name, body) VALUES (%s, '') ON CONFLICT DO NOTHING"
        db.execute(sql, (self._name,))
        sql = "SELECT body FROM public.logins WHERE name = %s FOR UPDATE"
        row = db.execute(sql, (self._name,)).fetchone()
        self.body = unseal_text(bytes(row[0]), self._key) if row else b""

    def unlock_row(self) -> None:
        if self._db is not None:
            with suppress(psycopg.Error):
                self._db.commit()
            self._db.close()

    async def save(self, body: bytes) -> None:
        await asyncio.to_thread(self._update_row, body)

    def _update_row(self, body: bytes) -> None:
        assert self._db is not None
        sql = "UPDATE public.logins SET body = %s, changed = clock_timestamp() WHERE name = %s"
        try:
            self._db.execute(sql, (seal_text(body, self._key), self._name))
            self._db.commit()
        except psycopg.Error as error:  # this node has it in its file
            log.error("the renewed login to %s was not shared: %s", self._name, error)


_PUT_COOLING = (
    "INSERT INTO public.cooling AS c (digest, kind, until, why, owner)"
    " VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s), %s, %s)"
    " ON CONFLICT (digest, kind) DO UPDATE SET until = greatest(c.until, excluded.until),"
    " why = excluded.why, owner = excluded.owner"
)
_GET_COOLING = (
    "SELECT digest, kind, extract(epoch FROM until - clock_timestamp())::float8, why"
    " FROM public.cooling WHERE digest = ANY(%s) AND until > clock_timestamp() AND owner <> %s"
)
_TAKE_START = (
    "INSERT INTO public.limits AS l (tenant, name, amount, filled)"
    " VALUES (0, %s, 0, clock_timestamp() + make_interval(secs => %s))"
    " ON CONFLICT (tenant, name) DO UPDATE SET"
    " filled = greatest(l.filled, clock_timestamp()) + make_interval(secs => %s)"
    " RETURNING greatest(0, extract(epoch FROM l.filled - clock_timestamp())::float8 - %s)"
)

"""What all nodes count together: requests, tokens and turns of tenants."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from msgspec import Struct

from hermes.core.errors import StoreError
from hermes.core.text import replace_invalid
from hermes.store.postgres.connection import PostgresConnection
from hermes.store.postgres.database import PostgresDatabase
from hermes.store.postgres.ledger import TOKENS
from hermes.store.postgres.tenants import find_key_owner, find_tenant_by_id
from hermes.store.tables.tenancy import KeyOwner, Tenant

T = TypeVar("T")
log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
SLICE_SECONDS = 1.0
"""For so long a node uses what it has taken of a rate; the rest is given back."""
_TAKE = "SELECT * FROM hermes.take_tokens(%s, %s, %s, %s, %s)"
_MEASURE_SHARE = 50
"""Storage is measured again after so many times what measuring took."""


class _RateSlice(Struct):
    """What is left of what this node took of a rate, and since when."""

    left: float
    taken: float


class TurnSlot(Struct, frozen=True):
    """A turn that counts towards the limit of its tenant."""

    tenant: int
    id: str
    owner: str


class SharedLimits:
    """Implements the limits of tenants over all nodes of one database."""

    def __init__(
        self, database: PostgresDatabase, wake: Callable[[PostgresConnection, str], None]
    ) -> None:
        """`wake`: wakes a session in the transaction of the connection."""
        self._database = database
        self._wake = wake
        self._slices: dict[tuple[int, str], _RateSlice] = {}
        self._sizes: dict[int, tuple[int, float]] = {}
        """By tenant: its bytes, and until when that counts."""
        self._ending: set[asyncio.Task[None]] = set()
        """Turns that have ended and still count."""

    async def find_key_owner(self, key: str) -> KeyOwner | None:
        return await self._database.read(lambda db: find_key_owner(db.db, key))

    async def find_tenant(self, id: int) -> Tenant | None:
        return await self._database.read(lambda db: find_tenant_by_id(db.db, id))

    async def is_foreign_session(self, tenant: int, session_id: str) -> bool:
        """Whether another tenant has a session of this id."""
        sql = "SELECT EXISTS (SELECT 1 FROM public.sessions WHERE id = %s AND tenant <> %s)"
        values = (replace_invalid(session_id), tenant)
        row = await self._database.read(lambda db: db.db.execute(sql, values).fetchone())
        return bool(row and row[0])

    async def take_request(self, tenant: int, bucket: str, per_minute: int, burst: float) -> float:
        """Count a request; the seconds after which it may be made, 0: now."""
        per_second = per_minute / 60.0
        held = self._slices.get((tenant, bucket))
        now = time.monotonic()
        if held is not None and now - held.taken > SLICE_SECONDS:
            self._slices.pop((tenant, bucket))
            if held.left >= 1:
                await self._add_amount(tenant, bucket, held.left)
            held = None
        if held is None or held.left < 1:
            most = max(1.0, per_second * SLICE_SECONDS)
            taken, remaining = await self._take_tokens(tenant, bucket, per_minute, burst, most)
            if taken < 1:
                return (1.0 - remaining) / per_second
            held = self._slices.setdefault((tenant, bucket), _RateSlice(0.0, now))
            held.left += taken
            held.taken = now
        held.left -= 1
        return 0.0

    async def count_tokens(self, tenant: int, per_minute: int) -> float:
        """The seconds after which a tenant may use tokens again; 0: now."""
        _, remaining = await self._take_tokens(tenant, TOKENS, per_minute, float(per_minute), 0.0)
        return max(0.0, (1.0 - remaining) / (per_minute / 60.0))

    async def measure_storage(self, tenant: int) -> int:
        """The bytes of what is stored for a tenant; a moment old at most."""
        now = time.monotonic()
        size, until = self._sizes.get(tenant, (0, 0.0))
        if now >= until:
            size = await self._database.read(lambda db: _sum_bytes(db, tenant))
            took = time.monotonic() - now
            self._sizes[tenant] = size, now + took * _MEASURE_SHARE
        return size

    @asynccontextmanager
    async def hold_turn(
        self, tenant: int, limit: int, row_id: int | None = None
    ) -> AsyncIterator[bool]:
        """Count a turn until the block ends; whether it may run. Turns of nodes that died do not
        count. `row_id`: of the inbox, which waits until another turn of the tenant ends."""
        turn = TurnSlot(tenant, secrets.token_hex(8), self._database.lease.acquire())
        is_held = True
        try:
            is_held = await self._write(lambda db: _insert_turn(db, turn, limit, row_id))
            yield is_held
        finally:  # also where nobody waited for it any more when it was counted
            if is_held:
                ending = asyncio.create_task(self._give_back(turn))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)

    async def _give_back(self, turn: TurnSlot) -> None:
        while True:
            try:
                return await self._write(lambda db: self._end_turn(db, turn))
            except StoreError as error:
                if error.code in ("fenced", "closed"):
                    return
                log.warning("a turn of tenant %s still counts: %s", turn.tenant, error)
                await asyncio.sleep(_RETRY_SECONDS)

    def _end_turn(self, db: PostgresConnection, turn: TurnSlot) -> None:
        """Make room, and wake a session of the tenant that waits for it."""
        db.use_tenant(turn.tenant)
        _lock_turns(db, turn.tenant)
        sql = "DELETE FROM public.turn_slots WHERE tenant = %s AND id = %s"
        db.db.execute(sql, (turn.tenant, turn.id))
        session = db.execute(_WAKE_NEXT).get
        if session is not None:
            self._wake(db, session)

    async def _take_tokens(
        self, tenant: int, bucket: str, per_minute: int, burst: float, most: float
    ) -> tuple[float, float]:
        """How many were taken of a bucket, and how many are left."""
        values = (tenant, bucket, burst, per_minute / 60.0, most)

        def take_tokens(db: PostgresConnection) -> tuple[float, float]:
            row = db.db.execute(_TAKE, values).fetchone()
            assert row is not None
            return float(row[0]), float(row[1])

        return await self._write(take_tokens)

    async def _add_amount(self, tenant: int, name: str, amount: float) -> None:
        sql = "UPDATE public.limits SET amount = amount + %s WHERE tenant = %s AND name = %s"

        def add_amount(db: PostgresConnection) -> None:
            db.db.execute(sql, (amount, tenant, name))

        await self._write(add_amount)

    async def _write(self, run: Callable[[PostgresConnection], T]) -> T:
        return await self._database.writer.submit(run)


def _sum_bytes(db: PostgresConnection, tenant: int) -> int:
    row = db.db.execute(
        "SELECT (SELECT coalesce(sum(octet_length(body)), 0) FROM public.messages"
        " WHERE tenant = %(t)s) + (SELECT coalesce(sum(octet_length(body)), 0)"
        " FROM public.objects WHERE tenant = %(t)s)",
        {"t": tenant},
    ).fetchone()
    return int(row[0]) if row else 0


def _lock_turns(db: PostgresConnection, tenant: int) -> None:
    """What waits and what makes room for it must not miss each other."""
    db.db.execute("SELECT pg_advisory_xact_lock(%s, hashtext('turns'))", (tenant,))


def _insert_turn(db: PostgresConnection, turn: TurnSlot, limit: int, row_id: int | None) -> bool:
    tenant = turn.tenant
    _lock_turns(db, tenant)
    sql = "DELETE FROM public.turn_slots WHERE tenant = %s AND NOT public.is_alive(owner)"
    db.db.execute(sql, (tenant,))
    sql = (
        "INSERT INTO public.turn_slots (tenant, id, owner) SELECT %s, %s, %s"
        " WHERE (SELECT count(*) FROM public.turn_slots WHERE tenant = %s) < %s RETURNING 1"
    )
    if db.db.execute(sql, (tenant, turn.id, turn.owner, tenant, limit)).fetchone():
        return True
    if row_id is not None:
        sql = "UPDATE public.session_inbox SET woken = false WHERE tenant = %s AND id = %s"
        db.db.execute(sql, (tenant, row_id))
    return False


_WAKE_NEXT = (
    "UPDATE session_inbox SET woken = true WHERE id = (SELECT id FROM session_inbox"
    " WHERE NOT woken ORDER BY id LIMIT 1) RETURNING session"
)

"""The ledger of a cluster: nodes take slices of a cap and give back what they do not use."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf
from typing import Any

import msgspec
from msgspec import Struct, structs

from hermes.core.ledger import Cap, CapLevel, CapWarning, Decide, Entry
from hermes.core.text import replace_invalid
from hermes.store.db_thread import do_nothing
from hermes.store.postgres.connection import PostgresConnection
from hermes.store.postgres.database import TenantDatabase
from hermes.store.tables.connection import SqlConnection
from hermes.store.tables.ledger import (
    ADD_SPENT,
    INSERT_LINE,
    PendingEntry,
    SqlLedger,
    estimate_lost_call,
    insert_reservation,
    list_columns,
    log_failure,
    record_warnings,
)
from hermes.store.tables.tenancy import CURRENT_TENANT, OPERATOR, enter_tenant

SLICE_SHARE = 0.01
"""The part of what is left of a cap that a node takes at once."""
_ATTEMPTS = 20
_LOOK_SECONDS = 1.0
_ROUNDING = 1e-9
TOKENS = "tokens"
"""The bucket of `tokens_per_minute`."""
_COLUMNS = {"usd": ("usd", "reserved_usd"), "tokens": ("tokens", "reserved_tokens")}
_SETTLE = (
    f"WITH line AS ({INSERT_LINE} RETURNING 1), added AS ("
    + ADD_SPENT.replace(
        "VALUES (?, ?, ?)",
        "SELECT scope, u, t FROM (SELECT ?::float8 AS u, ?::float8 AS t,"
        " unnest(?::text[]) AS scope) AS s WHERE EXISTS (SELECT 1 FROM line)",
    )
    + ")"
    "{} , gone AS (DELETE FROM reservations WHERE id = ? RETURNING owner, asks)"
    " SELECT (SELECT owner FROM gone), (SELECT asks FROM gone), (SELECT count(*) FROM line)"
)
_COUNT_TOKENS = (
    ", counted AS (UPDATE public.limits SET amount = amount - ? WHERE tenant = ? AND name = ?"
    " AND EXISTS (SELECT 1 FROM line))"
)
DEAREST_KIND = "dearest_call"
_PLENTY = 8
"""A cap has plenty where this many times what is reserved is left."""
_LEVELS = {
    unit: (
        f"SELECT (SELECT {spent} FROM spent WHERE scope = ?),"
        f" (SELECT {reserved} FROM spent WHERE scope = ?),"
        " (SELECT amount - used FROM slices WHERE scope = ? AND unit = ? AND owner = ?),"
        " (SELECT convert_from(body, 'UTF8')::float8 FROM objects WHERE kind = ? AND id = ?)"
    )
    for unit, (spent, reserved) in _COLUMNS.items()
}
_PUT_DEAREST = (
    "INSERT INTO objects (kind, id, owner, created, used, body) VALUES (?, ?, '', ?, ?, ?)"
    " ON CONFLICT (kind, id) DO UPDATE SET used = excluded.used, body = excluded.body"
    " WHERE convert_from(objects.body, 'UTF8')::float8"
    " < convert_from(excluded.body, 'UTF8')::float8"
)
_asks_decoder = msgspec.json.Decoder(list[tuple[str, str, float]])


class PostgresLedger(SqlLedger):
    """Implements `core.ledger.Ledger` for the current tenant. A cap is one row, which admits a
    slice only where `spent + reserved + ask <= limit`; a call within the slice of its node does
    not touch it. What a node holds and uses is in the database alone: a transaction that is
    repeated or lost changes both or nothing."""

    def __init__(self, database: TenantDatabase) -> None:
        super().__init__(database)
        self._by_tenant: dict[int, dict[int, PendingEntry]] = {}
        self._looked: dict[int, float] = {}
        """When calls of the dead were last looked for."""

    @property
    def _pending(self) -> dict[int, PendingEntry]:
        return self._by_tenant.setdefault(CURRENT_TENANT.get(), {})

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for tenant in [tenant for tenant, entries in self._by_tenant.items() if entries]:
            with enter_tenant(tenant):
                self._submit(do_nothing).add_done_callback(log_failure)

    def _reserve_entry(
        self, db: SqlConnection, caps: Sequence[Cap], decide: Decide
    ) -> tuple[Entry | None, list[CapLevel]]:
        tenant, now = _find_tenant(db), time.monotonic()
        if now - self._looked.get(tenant, -_LOOK_SECONDS) >= _LOOK_SECONDS:
            self._looked[tenant] = now
            self._settle_dead_calls(db)
        owner = self._process.acquire()
        levels: list[CapLevel] = []
        for _ in range(_ATTEMPTS):
            states = [_read_cap(db, owner, cap) for cap in caps]
            levels = [state.level for state in states]
            entry = decide(levels)
            if entry is None:
                break
            asks = [
                (state.level.cap, max(state.least, _measure_entry(entry, state.level.cap.unit)))
                for state in states
            ]
            both = list(zip(states, asks, strict=True))
            if any(state.least and ask > state.rest for state, (_, ask) in both):
                return None, [_fill_level(level) for level in levels]
            missing = [(state, ask) for state, (_, ask) in both if ask > state.room]
            if not all(_take_slice(db, owner, state, ask) for state, ask in missing):
                continue
            for cap, ask in asks:
                _use_slice(db, owner, cap, ask)
            insert_reservation(db, self._process, entry)
            body = msgspec.json.encode([(cap.scope, cap.unit, ask) for cap, ask in asks]).decode()
            db.execute("UPDATE reservations SET asks = ? WHERE id = ?", (body, entry.id))
            return entry, levels
        return None, levels

    def _settle_entry(
        self, db: SqlConnection, entry: Entry, caps: Sequence[Cap] = ()
    ) -> list[CapWarning]:
        assert isinstance(db, PostgresConnection)
        rows = db.execute(*_build_settlement(entry, db.tenant))
        if caps:
            is_new = _finish_settlement(db, rows.fetchall(), entry)
            return record_warnings(db, caps) if is_new else []
        db.read_later(lambda: _finish_settlement(db, rows.fetchall(), entry))
        return []

    def _undo_reservation(self, db: SqlConnection, entry: Entry) -> None:
        _delete_reservation(db, entry)

    def _settle_dead_calls(self, db: SqlConnection) -> None:
        rows: list[Any] = db.execute(
            "SELECT entry FROM reservations WHERE owner <> ? AND NOT public.is_alive(owner)",
            (self._process.name,),
        ).fetchall()
        for (body,) in rows:
            self._settle_entry(db, estimate_lost_call(body))
        gone: list[Any] = db.execute(
            "DELETE FROM slices WHERE owner <> ? AND NOT public.is_alive(owner)"
            " RETURNING scope, unit, amount",
            (self._process.name,),
        ).fetchall()
        for scope, unit, amount in gone:
            _return_amount(db, scope, unit, amount)


def _build_settlement(entry: Entry, tenant: int) -> tuple[str, tuple[Any, ...]]:
    """One statement that ends a reservation and, unless its line is there already, counts it; it
    returns the reservation and whether the line is new."""
    scopes = [replace_invalid(scope) for scope in entry.scopes]
    values = (*list_columns(entry), entry.cost or 0.0, entry.tokens, scopes)
    if tenant != OPERATOR:
        return _SETTLE.format(_COUNT_TOKENS), (*values, entry.tokens, tenant, TOKENS, entry.id)
    return _SETTLE.format(""), (*values, entry.id)


def _finish_settlement(db: SqlConnection, rows: Sequence[tuple[Any, ...]], entry: Entry) -> bool:
    """Whether the line is new. What the call held and did not use is free again."""
    ((owner, asks, added),) = rows
    if asks:
        _free_slices(db, owner, asks, entry)
        for scope, unit, ask in _asks_decoder.decode(asks):
            if (cost := _measure_entry(entry, unit)) > ask + _ROUNDING:
                _record_dearest(db, f"{unit}:{scope}", cost)
    return bool(added)


def _find_tenant(db: SqlConnection) -> int:
    assert isinstance(db, PostgresConnection)
    return db.tenant


def _measure_entry(entry: Entry, unit: str) -> float:
    return (entry.cost or 0.0) if unit == "usd" else float(entry.tokens)


class _CapState(Struct, frozen=True):
    level: CapLevel
    taken: float
    """Reserved by all nodes."""
    room: float
    """What this node holds of it and does not use."""
    least: float
    """A call reserves no less."""

    @property
    def rest(self) -> float:
        return self.level.remaining


def _read_cap(db: SqlConnection, owner: str, cap: Cap) -> _CapState:
    """Beside other calls a call reserves what the dearest has cost that cost more than it had
    reserved. Before any is known, calls wait for the first unless there is plenty."""
    name = f"{cap.unit}:{cap.scope}"
    values = (cap.scope, cap.scope, cap.scope, cap.unit, owner, DEAREST_KIND, name)
    row = db.execute(_LEVELS[cap.unit], values).fetchone()
    used, taken, room, dearest = (found or 0.0 for found in row)
    least = 0.0
    if taken > _ROUNDING:
        has_plenty = cap.limit - used > taken * _PLENTY
        least = dearest if used or has_plenty else inf
    return _CapState(CapLevel(cap, used, taken - room), taken, room, least)


def _fill_level(level: CapLevel) -> CapLevel:
    """The level as if running calls had taken the rest: they have to be waited for."""
    return structs.replace(level, running=level.cap.limit - level.spent)


def _record_dearest(db: SqlConnection, name: str, cost: float) -> None:
    """Keep the most that a call has cost which cost more than it had reserved."""
    now = time.time()
    db.execute(_PUT_DEAREST, (DEAREST_KIND, name, now, now, f"{cost:.9f}".encode()))


def _take_slice(db: SqlConnection, owner: str, state: _CapState, ask: float) -> bool:
    """Reserve what is missing for a call, and some more if there is; False: other nodes were
    faster. Of a cap that is nearly used up the rest has to do: what a call likely needs fits."""
    cap, missing = state.level.cap, ask - state.room
    spent, reserved = _COLUMNS[cap.unit]
    db.execute(
        "INSERT INTO spent (scope, usd, tokens) VALUES (?, 0, 0) ON CONFLICT DO NOTHING",
        (cap.scope,),
    )
    rest = max(0.0, state.rest)
    ask = min(rest, max(missing, rest * SLICE_SHARE))
    most = cap.limit if state.taken > _ROUNDING else _ROUNDING
    db.execute(
        f"UPDATE spent SET {reserved} = {reserved} + ?1::float8"
        f" WHERE scope = ?2 AND {spent} + {reserved} + ?1::float8 <= ?3::float8 + {_ROUNDING}"
        f" AND {reserved} <= ?4::float8",
        (ask, cap.scope, cap.limit, most),
    )
    if not db.changes():
        return False
    _add_to_slice(db, owner, (cap.scope, cap.unit), ask)
    return True


def _add_to_slice(
    db: SqlConnection, owner: str, key: tuple[str, str], amount: float, used: float = 0.0
) -> None:
    db.execute(
        "INSERT INTO slices AS s (scope, unit, owner, amount, used) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (scope, unit, owner) DO UPDATE SET amount = s.amount + excluded.amount,"
        " used = s.used + excluded.used",
        (*key, owner, amount, used),
    )


def _use_slice(db: SqlConnection, owner: str, cap: Cap, ask: float) -> None:
    _add_to_slice(db, owner, (cap.scope, cap.unit), 0.0, ask)


def _delete_reservation(db: SqlConnection, entry: Entry) -> None:
    sql = "DELETE FROM reservations WHERE id = ? RETURNING owner, asks"
    row = db.execute(sql, (entry.id,)).fetchone()
    if row is not None and row[1]:
        owner, asks = row
        _free_slices(db, owner, asks, None)


def _free_slices(db: SqlConnection, owner: str, asks: str, spent: Entry | None) -> None:
    """Its part of the slices is free again, less what was spent; a slice that nothing uses is given
    back."""
    for scope, unit, ask in _asks_decoder.decode(asks):
        cost = _measure_entry(spent, unit) if spent is not None else 0.0
        _free_slice(db, (scope, unit, owner), ask, cost)


def _free_slice(db: SqlConnection, key: tuple[str, str, str], ask: float, cost: float) -> None:
    where = "scope = ? AND unit = ? AND owner = ?"
    row = db.execute(f"SELECT amount, used FROM slices WHERE {where} FOR UPDATE", key).fetchone()
    if row is None:
        return
    amount, used = row
    left = max(0.0, amount - cost)
    if used - ask > _ROUNDING:
        sql = f"UPDATE slices SET amount = ?, used = ? WHERE {where}"
        db.execute(sql, (left, used - ask, *key))
    else:
        db.execute(f"DELETE FROM slices WHERE {where}", key)
        left = 0.0
    _return_amount(db, key[0], key[1], amount - left)


def _return_amount(db: SqlConnection, scope: str, unit: str, amount: float) -> None:
    reserved = _COLUMNS[unit][1]
    db.execute(
        f"UPDATE spent SET {reserved} = greatest(0, {reserved} - ?) WHERE scope = ?",
        (amount, scope),
    )

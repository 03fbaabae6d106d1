"""The ledger: what model calls cost. Its lines are written without making anybody wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import structs

from hermes.core.ledger import (
    WARN_AT,
    By,
    CallRecord,
    Cap,
    CapLevel,
    CapWarning,
    Decide,
    Entry,
    UsageRow,
)
from hermes.core.text import replace_invalid
from hermes.store.db_thread import do_nothing
from hermes.store.tables.connection import Processes, SqlConnection, SqlDatabase

T = TypeVar("T")
C = TypeVar("C", bound=SqlConnection)
PendingEntry: TypeAlias = tuple[Entry, bool]
"""A call, and whether it is still running."""
log = logging.getLogger(__name__)

FLUSH_DELAY = 0.25
"""Seconds an entry waits for another write to share its transaction. A call that takes longer is
written as running, so that it counts even if this process is killed meanwhile."""


class SqlLedger:
    """Implements `core.ledger.Ledger`. Entries nobody waits for are written in the transaction of
    the next message, or shortly afterwards by themselves; of each call only the latest waits."""

    def __init__(self, database: SqlDatabase) -> None:
        self._writer = database.writer
        self._process = database.process
        self._entries: dict[int, PendingEntry] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def reserve_call(
        self, caps: Sequence[Cap], decide: Decide
    ) -> tuple[Entry | None, list[CapLevel]]:
        """When cancelled while waiting, whatever is still reserved is released."""
        job = self._submit(lambda db: self._reserve_entry(db, caps, decide))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            job.add_done_callback(self._release_reservation)
            raise

    def begin_call(self, entry: Entry) -> None:
        self._add_pending(entry, running=True)

    def settle_call(
        self,
        entry: Entry,
        caps: Sequence[Cap] = (),
        on_warnings: Callable[[Sequence[CapWarning]], None] | None = None,
    ) -> None:
        if not caps or on_warnings is None:
            self._add_pending(entry, running=False)
            return
        tell = on_warnings

        def report_warnings(job: asyncio.Future[list[CapWarning]]) -> None:
            if job.cancelled() or job.exception() is not None:
                log.warning("the ledger could not be written: %s", job.exception())
                self._add_pending(entry, running=False)
            elif warnings := job.result():
                tell(warnings)

        self._submit(lambda db: self._settle_entry(db, entry, caps)).add_done_callback(
            report_warnings
        )

    async def sum_calls(self, by: By, since: float, until: float | None = None) -> list[UsageRow]:
        return [row for _, row in await self._sum_span(by, None, since, until)]

    async def split_calls(
        self, by: By, split: By, since: float, until: float | None = None
    ) -> list[tuple[str, UsageRow]]:
        return await self._sum_span(by, split, since, until)

    async def _sum_span(
        self, by: By, split: By | None, since: float, until: float | None
    ) -> list[tuple[str, UsageRow]]:
        span = round(since * 1e9), _FOREVER if until is None else round(until * 1e9)

        def sum_settled(db: SqlConnection) -> list[tuple[str, UsageRow]]:
            if not db.readonly("main"):
                self._settle_dead_calls(db)
            return _sum_calls(db, by, split, span)

        return await self._submit(sum_settled)

    async def list_calls(self, session: str, since: float) -> list[CallRecord]:
        sql = (
            "SELECT id / 1e9, provider, model, purpose, input, cache_read, output, cost, seconds,"
            " outcome FROM ledger WHERE id >= ? AND session = ? ORDER BY id"
        )
        given = (round(since * 1e9), replace_invalid(session))
        rows: list[Any] = await self._submit(lambda db: db.execute(sql, given).fetchall())
        return [CallRecord(*row) for row in rows]

    async def find_last_calls(self) -> dict[str, tuple[float, str]]:
        last = "SELECT max(id) FROM ledger GROUP BY provider"
        sql = f"SELECT provider, id, outcome FROM ledger WHERE id IN ({last})"
        rows: list[Any] = await self._submit(lambda db: db.execute(sql).fetchall())
        return {provider: (number / 1e9, outcome) for provider, number, outcome in rows}

    def take_pending(self, run: Callable[[C], T]) -> tuple[Callable[[C], T], list[PendingEntry]]:
        """A job that writes the pending entries and then does `run`; and those entries."""
        if not self._pending:
            return run, []
        entries = list(self._pending.values())
        self._pending.clear()

        def write_both(db: C) -> T:
            for entry, running in entries:
                if running:
                    insert_reservation(db, self._process, entry)
                else:
                    self._settle_entry(db, entry)
            return run(db)

        return write_both, entries

    def restore_pending(self, entries: Iterable[PendingEntry]) -> None:
        """After a failed write; a later entry for the same call takes precedence."""
        for entry, running in entries:
            self._pending.setdefault(entry.id, (entry, running))

    def flush(self) -> None:
        """Start writing the pending entries, without waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending:
            self._submit(do_nothing).add_done_callback(log_failure)

    @property
    def _pending(self) -> dict[int, PendingEntry]:
        """Entries that wait to be written, by call."""
        return self._entries

    def _reserve_entry(
        self, db: SqlConnection, caps: Sequence[Cap], decide: Decide
    ) -> tuple[Entry | None, list[CapLevel]]:
        """Calls of other processes count too: the transaction is an immediate one."""
        self._settle_dead_calls(db)
        levels = _read_levels(db, caps)
        entry = decide(levels)
        if entry is not None:
            insert_reservation(db, self._process, entry)
        return entry, levels

    def _settle_entry(
        self, db: SqlConnection, entry: Entry, caps: Sequence[Cap] = ()
    ) -> list[CapWarning]:
        """Record how a call ended; a second time changes nothing."""
        _delete_reservation(db, entry)
        return add_spent(db, entry, caps) if insert_line(db, entry) else []

    def _settle_dead_calls(self, db: SqlConnection) -> None:
        """Calls of processes that are gone count with the most they may have cost."""
        rows: list[Any] = db.execute(
            "SELECT owner, entry FROM reservations WHERE owner <> ?", (self._process.name,)
        ).fetchall()
        is_alive = cache(self._process.is_alive)
        for holder, body in rows:
            if not is_alive(holder):
                self._settle_entry(db, estimate_lost_call(body))

    def _add_pending(self, entry: Entry, *, running: bool) -> None:
        self._pending[entry.id] = entry, running
        loop = asyncio.get_running_loop()
        # A timer long overdue belonged to a loop that ended before it fired.
        if self._timer is None or self._timer.when() < loop.time() - FLUSH_DELAY:
            self._timer = loop.call_later(FLUSH_DELAY, self.flush)

    def _submit(self, run: Callable[[SqlConnection], T]) -> asyncio.Future[T]:
        both, entries = self.take_pending(run)
        job = self._writer.submit(both)

        def restore_on_failure(done: asyncio.Future[T]) -> None:
            if done.cancelled() or done.exception() is not None:
                self.restore_pending(entries)

        if entries:
            job.add_done_callback(restore_on_failure)
        return job

    def _release_reservation(
        self, job: asyncio.Future[tuple[Entry | None, list[CapLevel]]]
    ) -> None:
        entry = None if job.cancelled() or job.exception() is not None else job.result()[0]
        if entry is not None:
            self._submit(lambda db: self._undo_reservation(db, entry)).add_done_callback(
                log_failure
            )

    def _undo_reservation(self, db: SqlConnection, entry: Entry) -> None:
        _delete_reservation(db, entry)


def log_failure(job: asyncio.Future[Any]) -> None:
    if not job.cancelled() and (error := job.exception()) is not None:
        log.warning("the ledger could not be written: %s", error)


entry_decoder = msgspec.json.Decoder(Entry)


def estimate_lost_call(body: bytes) -> Entry:
    """A reservation as the call that its process did not come to settle."""
    return structs.replace(entry_decoder.decode(body), estimated=True, outcome="killed")


def insert_reservation(db: SqlConnection, process: Processes, entry: Entry) -> None:
    db.execute(
        "INSERT INTO reservations (id, owner, entry) VALUES (?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, entry = excluded.entry",
        (entry.id, process.acquire(), msgspec.json.encode(entry)),
    )


def _delete_reservation(db: SqlConnection, entry: Entry) -> None:
    db.execute("DELETE FROM reservations WHERE id = ?", (entry.id,))


def _read_levels(db: SqlConnection, caps: Sequence[Cap]) -> list[CapLevel]:
    running: dict[str, tuple[float, int]] = {}
    for (body,) in db.execute("SELECT entry FROM reservations"):
        entry = entry_decoder.decode(body)
        for scope in entry.scopes:
            usd, tokens = running.get(scope, (0.0, 0))
            running[scope] = usd + (entry.cost or 0.0), tokens + entry.tokens
    levels = []
    for cap in caps:
        spent, reserved = _read_spent(db, cap.scope), running.get(cap.scope, (0.0, 0))
        unit = 0 if cap.unit == "usd" else 1
        levels.append(CapLevel(cap, spent[unit], reserved[unit]))
    return levels


def _read_spent(db: SqlConnection, scope: str) -> tuple[float, float]:
    """Dollars and tokens."""
    sql = "SELECT usd, tokens FROM spent WHERE scope = ?"
    found: list[Any] = db.execute(sql, (scope,)).fetchall()
    return found[0] if found else (0.0, 0)


def insert_line(db: SqlConnection, entry: Entry) -> bool:
    """Add a line to the ledger; False: it is there already."""
    db.execute(INSERT_LINE, list_columns(entry))
    return bool(db.changes())


def list_columns(entry: Entry) -> tuple[Any, ...]:
    """The values of `INSERT_LINE`."""
    account = entry.account
    who = (account.session, account.user, account.job, account.purpose)
    tokens = (entry.input, entry.output, entry.cache_read, entry.cache_write, entry.reasoning)
    return (
        entry.id,
        entry.day,
        *map(replace_invalid, (*who, entry.provider, entry.model)),
        *tokens,
        *(entry.cost, entry.estimated, entry.seconds, entry.outcome),
        replace_invalid(" ".join(entry.tools)),
    )


def add_spent(db: SqlConnection, entry: Entry, caps: Sequence[Cap]) -> list[CapWarning]:
    """Add a call to what was spent in its scopes; the marks of caps that were passed by it."""
    for scope in entry.scopes:
        db.execute(ADD_SPENT, (replace_invalid(scope), entry.cost or 0.0, entry.tokens))
    return record_warnings(db, caps)


def record_warnings(db: SqlConnection, caps: Sequence[Cap]) -> list[CapWarning]:
    """The marks of caps that were passed for the first time."""
    return [warning for cap in caps if (warning := _record_warning(db, cap)) is not None]


def _record_warning(db: SqlConnection, cap: Cap) -> CapWarning | None:
    """The highest mark passed for the first time."""
    spent = _read_spent(db, cap.scope)[0 if cap.unit == "usd" else 1]
    found = None
    for percent in WARN_AT:
        if cap.limit > 0 and spent >= cap.limit * percent / 100:
            db.execute(
                "INSERT INTO warned (scope, cap, level, percent) VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (replace_invalid(cap.scope), cap.name, cap.limit, percent),
            )
            if db.changes():
                found = CapWarning(cap, percent, spent)
    return found


INSERT_LINE = (
    'INSERT INTO ledger (id, day, session, "user", job, purpose, provider, model, input, output,'
    " cache_read, cache_write, reasoning, cost, estimated, seconds, outcome, tools)"
    " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING"
)
ADD_SPENT = (
    "INSERT INTO spent (scope, usd, tokens) VALUES (?, ?, ?) ON CONFLICT (scope)"
    " DO UPDATE SET usd = spent.usd + excluded.usd, tokens = spent.tokens + excluded.tokens"
)
_SUMS = (
    "sum(input), sum(output), sum(cache_read), sum(cache_write), sum(reasoning),"
    " coalesce(sum(cost), 0.0), count(*) FILTER (WHERE cost IS NULL), sum(estimated),"
    " coalesce(sum(seconds), 0.0)"
)


_FOREVER = 1 << 62
_WITH_TOOLS = "AND tools <> ''"
_COLUMNS = {"model": "provider || ':' || model", "tool": "tools", "user": '"user"'}
"""Properties that are not columns of their name."""


def _sum_calls(
    db: SqlConnection, by: By, split: By | None, span: tuple[int, int]
) -> list[tuple[str, UsageRow]]:
    """`span`: from and until, in nanoseconds. The key of the group, and the row of its part."""
    first = _COLUMNS.get(by, by) if split else "''"
    second = _COLUMNS.get(split or by, split or by)
    has_tools = "tool" in (by, split)
    sql = (
        f"SELECT {first}, {second}, count(*), count(*) FILTER (WHERE outcome <> ''), {_SUMS}"
        " FROM ledger "
        f"WHERE id >= ? AND id < ? {_WITH_TOOLS if has_tools else ''} GROUP BY 1, 2 ORDER BY 1, 2"
    )
    rows = db.execute(sql, span)
    if not has_tools:
        return [(key, UsageRow(part, *sums)) for key, part, *sums in rows]
    found: dict[tuple[str, str], list[float]] = {}
    for key, part, *sums in rows:
        _share_among_tools(found, (key, part), (by, split or by), sums)
    return [(key, _round_row(part, row)) for (key, part), row in sorted(found.items())]


def _round_row(key: str, sums: list[float]) -> UsageRow:
    counts, cost, unsure, rest = sums[:7], sums[7], sums[8:10], sums[10:]
    values: list[Any] = [*map(round, counts), cost, *map(round, unsure), *rest]
    return UsageRow(key, *values)


def _share_among_tools(
    found: dict[tuple[str, str], list[float]],
    keys: tuple[str, str],
    kinds: tuple[By, By],
    sums: list[float],
) -> None:
    """A model call that made several tool calls is divided among their tools."""
    place = kinds.index("tool") if kinds[0] != kinds[1] else 1
    names = keys[place].split()
    for name in dict.fromkeys(names):
        uses = names.count(name)
        calls, _, *values = sums
        parts = (calls, 0, *(value * uses / len(names) for value in values), calls * uses)
        key = (name, keys[1]) if place == 0 else (keys[0], name)
        row = found.setdefault(key, [0.0] * len(parts))
        row[:] = [a + b for a, b in zip(row, parts, strict=True)]

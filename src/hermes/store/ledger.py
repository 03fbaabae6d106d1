"""The ledger's tables: calls that run, calls that ended, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from hermes.core.ledger import WARN_AT, By, Cap, Decide, Entry, Level, Row, Warned
from hermes.core.text import clean
from hermes.store.process_locks import Owner

if TYPE_CHECKING:
    from apsw import Connection

_decoder = msgspec.json.Decoder(Entry)
_KEYS: dict[By, str] = {
    "day": "day",
    "model": "provider || ':' || model",
    "provider": "provider",
    "purpose": "purpose",
    "session": "session",
    "user": "user",
    "job": "job",
}


def reserve(
    db: Connection, owner: Owner, caps: Sequence[Cap], decide: Decide
) -> tuple[Entry | None, list[Level]]:
    """Other processes counted: the transaction is an immediate one."""
    sweep(db, owner)
    found = levels(db, caps)
    entry = decide(found)
    if entry is not None:
        hold(db, owner, entry)
    return entry, found


def hold(db: Connection, owner: Owner, entry: Entry) -> None:
    db.execute(
        "INSERT OR REPLACE INTO reservations (id, owner, entry) VALUES (?, ?, ?)",
        (entry.id, owner.hold(), msgspec.json.encode(entry)),
    )


def release(db: Connection, entry: Entry) -> None:
    """The call was never made."""
    db.execute("DELETE FROM reservations WHERE id = ?", (entry.id,))


def levels(db: Connection, caps: Sequence[Cap]) -> list[Level]:
    running: dict[str, tuple[float, int]] = {}
    for (body,) in db.execute("SELECT entry FROM reservations"):
        entry = _decoder.decode(body)
        for scope in entry.scopes:
            usd, tokens = running.get(scope, (0.0, 0))
            running[scope] = usd + (entry.cost or 0.0), tokens + entry.tokens
    out = []
    for cap in caps:
        spent, open = _spent(db, cap.scope), running.get(cap.scope, (0.0, 0))
        at = 0 if cap.unit == "usd" else 1
        out.append(Level(cap, spent[at], open[at]))
    return out


def _spent(db: Connection, scope: str) -> tuple[float, float]:
    sql = "SELECT usd, tokens FROM spent WHERE scope = ?"
    found: list[Any] = db.execute(sql, (scope,)).fetchall()
    return found[0] if found else (0.0, 0)


def settle(db: Connection, entry: Entry, caps: Sequence[Cap] = ()) -> list[Warned]:
    """How a call ended. Running it again changes nothing."""
    db.execute("DELETE FROM reservations WHERE id = ?", (entry.id,))
    account = entry.account
    who = (account.session, account.user, account.job, account.purpose)
    db.execute(
        "INSERT OR IGNORE INTO ledger (id, day, session, user, job, purpose, provider, model,"
        " input, output, cache_read, cache_write, reasoning, cost, estimated, seconds, outcome,"
        " tools) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            entry.id,
            entry.day,
            *map(clean, (*who, entry.provider, entry.model)),
            entry.input,
            entry.output,
            entry.cache_read,
            entry.cache_write,
            entry.reasoning,
            entry.cost,
            entry.estimated,
            entry.seconds,
            entry.outcome,
            clean(" ".join(entry.tools)),
        ),
    )
    if not db.changes():
        return []
    for scope in entry.scopes:
        db.execute(
            "INSERT INTO spent (scope, usd, tokens) VALUES (?, ?, ?) ON CONFLICT (scope)"
            " DO UPDATE SET usd = usd + excluded.usd, tokens = tokens + excluded.tokens",
            (clean(scope), entry.cost or 0.0, entry.tokens),
        )
    return [warned for cap in caps if (warned := _warning(db, cap)) is not None]


def _warning(db: Connection, cap: Cap) -> Warned | None:
    """The highest mark that was passed, when nobody was told of it yet."""
    spent = _spent(db, cap.scope)[0 if cap.unit == "usd" else 1]
    found = None
    for percent in WARN_AT:
        if cap.limit > 0 and spent >= cap.limit * percent / 100:
            db.execute(
                "INSERT OR IGNORE INTO warned (scope, cap, level, percent) VALUES (?, ?, ?, ?)",
                (clean(cap.scope), cap.name, cap.limit, percent),
            )
            if db.changes():
                found = Warned(cap, percent, spent)
    return found


def sweep(db: Connection, owner: Owner) -> None:
    """Calls of processes that are gone count as what they may have cost."""
    rows: list[Any] = db.execute(
        "SELECT owner, entry FROM reservations WHERE owner <> ?", (owner.name,)
    ).fetchall()
    alive: dict[str, bool] = {}
    for holder, body in rows:
        if holder not in alive:
            alive[holder] = owner.alive(holder)
        if not alive[holder]:
            lost = structs.replace(_decoder.decode(body), estimated=True, outcome="killed")
            settle(db, lost)


def write(db: Connection, owner: Owner, entries: Iterable[tuple[Entry, bool]]) -> None:
    """Each call, and whether it still runs."""
    for entry, running in entries:
        if running:
            hold(db, owner, entry)
        else:
            settle(db, entry)


_SUMS = (
    "count(*), sum(outcome <> ''), sum(input), sum(output), sum(cache_read), sum(cache_write),"
    " sum(reasoning), total(cost), sum(cost IS NULL), sum(estimated), total(seconds)"
)


def totals(db: Connection, by: By, since: int) -> list[Row]:
    """Added up from a moment on, in nanoseconds."""
    if by == "tool":
        return _tools(db, since)
    sql = f"SELECT {_KEYS[by]}, {_SUMS} FROM ledger WHERE id >= ? GROUP BY 1 ORDER BY 1"
    return [Row(*row) for row in db.execute(sql, (since,))]


def _tools(db: Connection, since: int) -> list[Row]:
    """A call that asked for several tools is shared among them, as often as each was asked for."""
    found: dict[str, list[float]] = {}
    sql = (
        "SELECT tools, count(*), sum(input), sum(output), sum(cache_read), sum(cache_write),"
        " sum(reasoning), total(cost), sum(cost IS NULL), sum(estimated), total(seconds)"
        " FROM ledger WHERE id >= ? AND tools <> '' GROUP BY tools"
    )
    for text, calls, *sums in db.execute(sql, (since,)):
        names = text.split()
        for name in dict.fromkeys(names):
            times = names.count(name)
            share = times / len(names)
            row = found.setdefault(name, [0.0] * (len(sums) + 2))
            for i, value in enumerate((calls, *(v * share for v in sums), calls * times)):
                row[i] += value
    return [
        Row(
            name,
            calls=round(calls),
            input=round(input),
            output=round(output),
            cache_read=round(read),
            cache_write=round(written),
            reasoning=round(reasoning),
            cost=cost,
            unpriced=round(unpriced),
            estimated=round(estimated),
            seconds=seconds,
            uses=uses,
        )
        for name, (
            calls,
            input,
            output,
            read,
            written,
            reasoning,
            cost,
            unpriced,
            estimated,
            seconds,
            uses,
        ) in sorted(found.items())
    ]

"""A SQLite home brought into a tenant, and a tenant written as a SQLite home."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hermes.core.text import replace_invalid
from hermes.store.connection import open_writer
from hermes.store.postgres.search import compose_vector, list_words
from hermes.store.postgres.shared.event_blocks import expand_blocks
from hermes.store.tables.tenancy import Tenant

if TYPE_CHECKING:
    import apsw
    from psycopg import Connection

CHUNK = 2000
"""Messages of one transaction."""
_SESSION = (
    "id, source, key, cwd, title, model, parent, created, updated, state, count, taint, next,"
    " pinned, archived"
)
_COUNT = 10
_MESSAGE = "role, kind, created, body"
_TABLES = {
    "ledger": 'id, day, session, "user", job, purpose, provider, model, input, output, cache_read,'
    " cache_write, reasoning, cost, estimated, seconds, outcome, tools",
    "spent": "scope, usd, tokens",
    "warned": "scope, cap, level, percent",
    "objects": "kind, id, owner, created, used, body",
    "events": "stream, n, body",
    "jobs": "id, created, wake, body",
    "runs": "job, due, state, delivery, late, session, began, ended, error, text, output, owner",
    "conversations": "key, session, suspended, strikes, used, settings",
    "chats": "platform, chat, dead, until",
    "pairings": 'platform, "user", name, chat, created, approved, code',
    "pairing_failures": "platform, failures, failed",
}
"""Tables with the same columns in both databases, whose rows know no numbers of others."""
_FACT = (
    "scope, target, text, words, state, created, changed, used, session,"
    ' "user", origin, action, old'
)
_OWN_SOURCES = ("api", "web")
"""Sessions whose key begins with the name of a client."""


class TransferCount(Struct):
    """What was brought over, and what was there already."""

    sessions: int = 0
    messages: int = 0
    known: int = 0


Report = Callable[[TransferCount], None]


def import_home(
    db: Connection[Any], file: Path, tenant: Tenant, report: Report = lambda count: None
) -> TransferCount:
    """Copy the conversations, the ledger, the memory, the schedule and the stored responses from
    the database of a home. It may be ended at any moment and begun again: what is there is not
    copied twice."""
    source = open_writer(file, [])
    count = TransferCount()
    db.execute("SELECT set_config('hermes.tenant', %s, false)", (str(tenant.id),))
    sql = f"SELECT n, {_SESSION} FROM sessions ORDER BY used, n"
    sessions: list[Any] = source.execute(sql).fetchall()
    for number, *row in sessions:
        _import_session(db, source, (tenant, number, row), count)
        report(count)
    for table, columns in _TABLES.items():
        _import_once(db, table, partial(_copy_rows, db, source, tenant, table, columns))
    _import_once(db, "facts", lambda: _import_facts(db, source))
    source.close()
    return count


def _import_session(
    db: Connection[Any],
    source: apsw.Connection,
    session: tuple[Tenant, int, list[Any]],
    count: TransferCount,
) -> None:
    tenant, number, row = session
    total = row[_COUNT]
    target = _begin_session(db, tenant, row)
    if target is None:
        count.known += 1
        return
    n, place = target
    _copy_system(db, source, number, n)
    while place < total:
        found: list[Any] = source.execute(
            f"SELECT seq, {_MESSAGE} FROM messages WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            ((number << 24) + place, (number + 1) << 24, CHUNK),
        ).fetchall()
        if not found:
            break
        with db.transaction():
            _copy_messages(db, tenant.id, n, found)
            place = found[-1][0] + 1
            sql: Any = "UPDATE public.sessions SET count = %s WHERE tenant = %s AND n = %s"
            db.execute(sql, (place, tenant.id, n))
        count.messages += len(found)
    sql = "UPDATE public.imports SET done = true WHERE tenant = %s AND id = %s"
    db.execute(sql, (tenant.id, row[0]))
    count.sessions += 1


def _begin_session(db: Connection[Any], tenant: Tenant, row: list[Any]) -> tuple[int, int] | None:
    """The number of the session in the cluster, and how many messages it has there; None: it is
    complete, or was not made by an import."""
    id, source, key = row[:3]
    with db.transaction():
        known = db.execute(
            "SELECT s.n, s.count, i.done FROM public.sessions s LEFT JOIN public.imports i"
            " ON i.tenant = s.tenant AND i.id = s.id WHERE s.tenant = %s AND s.id = %s",
            (tenant.id, replace_invalid(id)),
        ).fetchone()
        if known is not None:
            return None if known[2] is None or known[2] else (known[0], known[1])
        values = [replace_invalid(v) if isinstance(v, str) else v for v in row]
        if tenant.id and source in _OWN_SOURCES:
            values[2] = f"@{tenant.name}/{key.partition('/')[2]}"
        values[9] = "idle" if values[9] == "idle" else "interrupted"
        values[_COUNT] = 0
        marks = ", ".join(["%s"] * len(values))
        sql: Any = (
            f"INSERT INTO public.sessions (tenant, {_SESSION}) VALUES (%s, {marks}) RETURNING n"
        )
        made = db.execute(sql, (tenant.id, *values)).fetchone()
        assert made is not None
        sql = "INSERT INTO public.imports (tenant, id) VALUES (%s, %s)"
        db.execute(sql, (tenant.id, values[0]))
    return made[0], 0


def _copy_system(db: Connection[Any], source: apsw.Connection, number: int, n: int) -> None:
    sql: Any = "INSERT INTO hermes.systems (session, text) VALUES (%s, %s) ON CONFLICT DO NOTHING"
    for (text,) in source.execute("SELECT text FROM systems WHERE session = ?", (number,)):
        db.execute(sql, (n, replace_invalid(text)))


def _copy_messages(db: Connection[Any], tenant: int, n: int, rows: Sequence[Any]) -> None:
    columns = f"(tenant, session, seq, {_MESSAGE})"
    statement: Any = f"COPY public.messages {columns} FROM STDIN"
    with db.cursor().copy(statement) as copy:
        for seq, role, kind, created, body in rows:
            copy.write_row((tenant, n, seq, role, kind, created, body))
    db.execute(
        "INSERT INTO hermes.pending (session, first) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        (n, rows[0][0]),
    )


def _import_once(db: Connection[Any], name: str, copy: Callable[[], None]) -> None:
    """All rows of a table in one transaction, which is not repeated."""
    with db.transaction():
        sql = (
            "INSERT INTO public.imports (tenant, id, done)"
            " VALUES (current_setting('hermes.tenant')::int, %s, true) ON CONFLICT DO NOTHING"
        )
        if db.execute(sql, (f"table {name}",)).rowcount:
            copy()


def _copy_rows(
    db: Connection[Any], source: apsw.Connection, tenant: Tenant, table: str, columns: str
) -> None:
    names = [name.strip().strip('"') for name in columns.split(",")]
    owner = names.index("owner") if table == "objects" and tenant.id else -1
    marks = ", ".join(["%s"] * len(names))
    sql: Any = f"INSERT INTO hermes.{table} ({columns}) VALUES ({marks}) ON CONFLICT DO NOTHING"
    rows = []
    for row in source.execute(f"SELECT {columns} FROM {table}"):
        values = [replace_invalid(v) if isinstance(v, str) else v for v in row]
        if owner >= 0:
            values[owner] = f"@{tenant.name}"
        rows.append(values)
    if rows:
        db.cursor().executemany(sql, rows)


def _import_facts(db: Connection[Any], source: apsw.Connection) -> None:
    """Facts get new numbers; a fact that replaces another still does."""
    numbers: dict[int, int] = {}
    sql: Any = (
        f"INSERT INTO hermes.facts ({_FACT}, found)"
        f" VALUES ({', '.join(['%s'] * 13)}, %s::tsvector) RETURNING id"
    )
    facts: list[Any] = source.execute(f"SELECT id, {_FACT} FROM facts ORDER BY id").fetchall()
    for id, *row in facts:
        values: list[Any] = [replace_invalid(v) if isinstance(v, str) else v for v in row]
        values[-1] = numbers.get(values[-1], 0)
        made = db.execute(sql, (*values, compose_vector(list_words(values[2])))).fetchone()
        assert made is not None
        numbers[id] = made[0]


def export_tenant(db: Connection[Any], tenant: Tenant, file: Path) -> TransferCount:
    """Write everything of a tenant into a new database of a home."""
    count = TransferCount()
    target = open_writer(file, [])
    with db.transaction(), target:
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("SELECT set_config('hermes.tenant', %s, true)", (str(tenant.id),))
        sql: Any = f"SELECT n, used, {_SESSION} FROM hermes.sessions ORDER BY used, n"
        marks = ", ".join("?" * 17)
        for number, (n, used, *row) in enumerate(db.execute(sql).fetchall(), 1):
            row[9] = "idle" if row[9] == "idle" else "interrupted"
            insert = f"INSERT INTO sessions (n, used, {_SESSION}) VALUES ({marks})"
            target.execute(insert, (number, used, *row))
            count.messages += _export_messages(db, target, n, number)
            count.sessions += 1
        for table, columns in _TABLES.items():
            sql = f"SELECT {columns} FROM hermes.{table}"
            _insert_rows(target, table, columns, db.execute(sql))
        sql = "SELECT stream, first, body FROM hermes.event_blocks ORDER BY stream, first"
        blocks = db.execute(sql).fetchall()
        _insert_rows(target, "events", _TABLES["events"], expand_blocks(blocks))
        sql = f"SELECT id, {_FACT} FROM hermes.facts ORDER BY id"
        _insert_rows(target, "facts", f"id, {_FACT}", db.execute(sql))
    target.close()
    return count


def _export_messages(db: Connection[Any], target: apsw.Connection, n: int, number: int) -> int:
    sql: Any = f"SELECT seq, {_MESSAGE} FROM hermes.messages WHERE session = %s ORDER BY seq"
    rows = db.execute(sql, (n,)).fetchall()
    insert = f"INSERT INTO messages (id, {_MESSAGE}) VALUES (?, ?, ?, ?, ?)"
    target.executemany(insert, [(number << 24 | seq, *rest) for seq, *rest in rows])
    if rows:
        target.execute("INSERT OR IGNORE INTO pending (session, first) VALUES (?, 0)", (number,))
    sql = "SELECT text FROM hermes.systems WHERE session = %s"
    for (text,) in db.execute(sql, (n,)).fetchall():
        target.execute("INSERT INTO systems (session, text) VALUES (?, ?)", (number, text))
    return len(rows)


def _insert_rows(
    target: apsw.Connection, table: str, columns: str, rows: Iterable[Sequence[Any]]
) -> None:
    marks = ", ".join("?" * (columns.count(",") + 1))
    target.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", list(rows))

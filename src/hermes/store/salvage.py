"""What can still be read of a damaged database, moved into a new one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from hermes.core.errors import StoreError
from hermes.store import backup as copy
from hermes.store import codec as rows
from hermes.store import connection as connect
from hermes.store import process_locks as locks

if TYPE_CHECKING:
    from apsw import Connection

Row: TypeAlias = tuple[Any, ...]
_ORDERS = {
    "systems": "session",
    "ledger": "id",
    "spent": "scope",
    "warned": "scope, cap, level, percent",
    "objects": "kind, id",
    "events": "stream, n",
}
"""Tables that are copied row by row as they are, and what they lie in the order of."""


class Saved(Struct, frozen=True):
    aside: Path
    """The damaged file, as it was."""
    sessions: int = 0
    messages: int = 0
    lost: int = 0
    """Messages of these sessions that could not be read."""


def salvage(path: Path, owner: locks.Owner) -> Saved:
    """The new database is complete before the old one is moved: a crash loses neither. With no
    connection of this process open."""
    copy.alone(owner)
    fresh = path.with_name(path.name + ".saved")
    connect.remove(fresh)
    db = connect.writer(fresh, [])
    try:
        sessions, messages, lost = _transfer(path, db)
        db.pragma("journal_mode", "delete")
    finally:
        db.close(True)
    aside = copy.set_aside(path, owner)
    fresh.rename(path)
    connect.sync_folder(path.parent)
    return Saved(aside, sessions, messages, lost)


def _transfer(path: Path, db: Connection) -> tuple[int, int, int]:
    import apsw

    try:
        old = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error:
        return 0, 0, 0
    try:
        # Else SQLite reads nothing at all of a file that is shorter than its header says.
        old.execute("PRAGMA writable_schema = ON").fetchall()
        db.execute("PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE").fetchall()
        counts = _conversations(old, db)
        for table, order in _ORDERS.items():
            columns = _columns(old, db, table)
            for row in _readable(old, f"SELECT {columns} FROM {table}", order):
                _insert(db, table, columns, row)
        db.execute("COMMIT; PRAGMA foreign_keys = ON").fetchall()
        return counts
    finally:
        old.close(True)


def _conversations(old: Connection, db: Connection) -> tuple[int, int, int]:
    """Messages are numbered anew: the next one goes behind the last, and nothing lies between."""
    sessions = messages = lost = 0
    columns = _columns(old, db, "sessions")
    for row in _readable(old, f"SELECT {columns} FROM sessions", "n"):
        of = dict(zip(columns.split(", "), row, strict=True))
        n, expected = int(of["n"]), of.get("count", 0)
        of |= {"count": 0, "state": "interrupted" if of.get("state") == "running" else of["state"]}
        if not _insert(db, "sessions", ", ".join(of), tuple(of.values())):
            continue
        sessions += 1
        found = list(_messages(old, n))
        for at, (_, *rest) in enumerate(found):
            _insert(db, "messages", "id, role, kind, created, body", (n << 24 | at, *rest))
        db.execute("UPDATE sessions SET updated = ? WHERE n = ?", (of["updated"], n))
        messages += len(found)
        lost += max(0, expected - len(found)) if isinstance(expected, int) else 0
    return sessions, messages, lost


def _messages(old: Connection, n: int) -> Iterator[Row]:
    select = "SELECT id, role, kind, created, body FROM messages"
    where = f" WHERE id >= {n << 24} AND id < {n + 1 << 24}"
    found = {row[0]: row for row in _readable(old, select + where, "id")}
    for id in sorted(found):
        body = found[id][4]
        try:
            rows.decode(body if isinstance(body, bytes) else b"", 0)
        except StoreError:
            continue
        yield found[id]


def _readable(old: Connection, select: str, order: str) -> Iterator[Row]:
    """From both ends up to what cannot be read; each row once."""
    import apsw

    seen: set[Row] = set()
    for direction in ("ASC", "DESC"):
        by = ", ".join(f"{column} {direction}" for column in order.split(", "))
        try:
            for row in old.execute(f"{select} ORDER BY {by}"):
                if row not in seen:
                    seen.add(row)
                    yield row
        except (apsw.Error, UnicodeError):
            continue
        return


def _columns(old: Connection, db: Connection, table: str) -> str:
    """Those both know; an older file has fewer."""
    import apsw

    mine = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
    try:
        theirs = {name for _, name, *_ in old.execute(f"PRAGMA table_info({table})")}
    except apsw.Error:
        return ", ".join(mine)
    return ", ".join([name for name in mine if name in theirs] or mine)


def _insert(db: Connection, table: str, columns: str, row: Row) -> bool:
    import apsw

    marks = ", ".join("?" * len(row))
    try:
        db.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", row)
    except apsw.Error:  # what was read is not what was written
        return False
    return bool(db.changes())

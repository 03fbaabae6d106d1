"""Moves whatever can still be read of a damaged database into a new one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from hermes.config.private_files import sync_folder
from hermes.core.errors import StoreError
from hermes.store import codec, connection
from hermes.store.backup import move_aside, require_sole_process
from hermes.store.process_locks import ProcessLock

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
    "facts": "id",
}
"""Tables copied row by row as they are, and the order their rows lie in."""


class SalvageResult(Struct, frozen=True):
    damaged_file: Path
    """The old database under its new name, unchanged."""
    sessions: int = 0
    messages: int = 0
    lost: int = 0
    """Messages of these sessions that could not be read."""


def salvage_database(path: Path, process: ProcessLock) -> SalvageResult:
    """The new database is complete before the old one is moved: a crash loses neither. This
    process must have no connection open."""
    require_sole_process(process)
    fresh = path.with_name(path.name + ".saved")
    connection.remove_database(fresh)
    db = connection.open_writer(fresh, [])
    try:
        sessions, messages, lost = _copy_tables(path, db)
        db.pragma("journal_mode", "delete")
    finally:
        db.close(True)
    damaged_file = move_aside(path, process)
    fresh.rename(path)
    sync_folder(path.parent)
    return SalvageResult(damaged_file, sessions, messages, lost)


def _copy_tables(path: Path, db: Connection) -> tuple[int, int, int]:
    """How many sessions and messages were copied, and how many messages were lost."""
    import apsw

    try:
        old = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error:
        return 0, 0, 0
    try:
        # Without it SQLite reads nothing at all from a file shorter than its header says.
        old.execute("PRAGMA writable_schema = ON").fetchall()
        db.execute("PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE").fetchall()
        counts = _copy_sessions(old, db)
        for table, order in _ORDERS.items():
            columns = _shared_columns(old, db, table)
            for row in _read_rows(old, f"SELECT {columns} FROM {table}", order):
                _insert_row(db, table, columns, row)
        db.execute("COMMIT; PRAGMA foreign_keys = ON").fetchall()
        return counts
    finally:
        old.close(True)


def _copy_sessions(old: Connection, db: Connection) -> tuple[int, int, int]:
    """Messages are renumbered without gaps, because the next one gets the count as its number."""
    sessions = messages = lost = 0
    columns = _shared_columns(old, db, "sessions")
    for row in _read_rows(old, f"SELECT {columns} FROM sessions", "n"):
        session = dict(zip(columns.split(", "), row, strict=True))
        n, expected = int(session["n"]), session.get("count", 0)
        is_running = session.get("state") == "running"
        session |= {"count": 0, "state": "interrupted" if is_running else session["state"]}
        if not _insert_row(db, "sessions", ", ".join(session), tuple(session.values())):
            continue
        sessions += 1
        found = list(_read_messages(old, n))
        for seq, (_, *values) in enumerate(found):
            _insert_row(db, "messages", "id, role, kind, created, body", (n << 24 | seq, *values))
        db.execute("UPDATE sessions SET updated = ? WHERE n = ?", (session["updated"], n))
        messages += len(found)
        lost += max(0, expected - len(found)) if isinstance(expected, int) else 0
    return sessions, messages, lost


def _read_messages(old: Connection, n: int) -> Iterator[Row]:
    select = "SELECT id, role, kind, created, body FROM messages"
    where = f" WHERE id >= {n << 24} AND id < {n + 1 << 24}"
    found = {row[0]: row for row in _read_rows(old, select + where, "id")}
    for id in sorted(found):
        body = found[id][4]
        try:
            codec.decode_message(body if isinstance(body, bytes) else b"", 0)
        except StoreError:
            continue
        yield found[id]


def _read_rows(old: Connection, select: str, order: str) -> Iterator[Row]:
    """Each readable row once: from both ends up to the first that cannot be read."""
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


def _shared_columns(old: Connection, db: Connection, table: str) -> str:
    """The columns both files have; an older file has fewer."""
    import apsw

    mine = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
    try:
        theirs = {name for _, name, *_ in old.execute(f"PRAGMA table_info({table})")}
    except apsw.Error:
        return ", ".join(mine)
    return ", ".join([name for name in mine if name in theirs] or mine)


def _insert_row(db: Connection, table: str, columns: str, row: Row) -> bool:
    import apsw

    marks = ", ".join("?" * len(row))
    try:
        db.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", row)
    except apsw.Error:  # the values read are not those once written
        return False
    return bool(db.changes())

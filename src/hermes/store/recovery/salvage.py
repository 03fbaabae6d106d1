"""Moves whatever can still be read of a damaged database into a new one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.config.private_files import sync_folder
from hermes.core.errors import StoreError
from hermes.core.text import format_plural
from hermes.store import codec, connection
from hermes.store.process_locks import ProcessLock
from hermes.store.recovery.backup import move_aside, require_sole_process
from hermes.store.recovery.page_scan import FoundRow, PageScan, Value

if TYPE_CHECKING:
    from apsw import Connection

_TABLES = {
    "messages": ("-ttnb", "id role kind created body"),
    "sessions": (
        "-tttttttnnttiitiii",
        "n id source key cwd title model parent created updated state owner count taint next used "
        "pinned archived",
    ),
    "systems": ("-t", "session text"),
    "ledger": (
        "-tttttttiiiii?intt",
        "id day session user job purpose provider model input output cache_read cache_write "
        "reasoning cost estimated seconds outcome tools",
    ),
    "objects": ("tttnnb", "kind id owner created used body"),
    "events": ("tib", "stream n body"),
    "spent": ("tni", "scope usd tokens"),
    "warned": ("ttni", "scope cap level percent"),
    "jobs": ("tn?b", "id created wake body"),
    "runs": (
        "tittitnntttt",
        "job due state delivery late session began ended error text output owner",
    ),
    "inbox": ("-tttttntb", "n platform chat id key state received session body"),
    "outbox": (
        "-tttiinnitbb",
        "n platform chat state draft inbox created due tries error body progress",
    ),
    "conversations": ("ttiinb", "key session suspended strikes used settings"),
    "chats": ("ttint", "platform chat dead until tag"),
    "pairings": ("ttttnit", "platform user name chat created approved code"),
    "pairing_failures": ("tint", "platform failures failed tag"),
    "facts": (
        "-tttttnnntttti",
        "id scope target text words state created changed used session user origin action old",
    ),
}
"""The stored columns of each table and their types: the number of the row, text, integer, number,
number or null, bytes. No two tables or indexes have the same types."""
_FIRST_SESSION_COLUMNS = 13
"""Rows older than the columns that were added later end here."""
_TYPES: dict[type, str] = {type(None): "-?", str: "t", int: "in?", float: "n?", bytes: "b"}


class SalvageResult(Struct, frozen=True):
    damaged_file: Path
    """The old database under its new name, unchanged."""
    sessions: int = 0
    messages: int = 0
    lost: int = 0
    """Messages of these sessions that could not be read."""
    nameless: int = 0
    """Sessions of which only messages could be read, not their titles and folders."""
    may_revive: bool = False
    """Whether it is unknown which of these had been deleted: the list of unused pages is damaged,
    and everything found is better than nothing."""

    @property
    def summary(self) -> str:
        """What was saved, what was not, and where the rest may be."""
        saved = f"{format_plural(self.sessions, 'session')} with "
        text = f"salvaged {saved}{format_plural(self.messages, 'message')}"
        if self.lost:
            text += f"; {format_plural(self.lost, 'message')} could not be read"
        if self.nameless:
            text += f"; {format_plural(self.nameless, 'session')} lost title and folder"
        if self.nameless and self.may_revive:
            text += ", some of which you may have deleted"
        return text


def salvage_database(path: Path, process: ProcessLock) -> SalvageResult:
    """The new database is complete before the old one is moved: a crash loses neither. This
    process must have no connection open."""
    require_sole_process(process)
    fresh = path.with_name(path.name + ".saved")
    connection.remove_database(fresh)
    db = connection.open_writer(fresh, [])
    try:
        counts = _copy_rows(path, db)
        db.pragma("journal_mode", "delete")
    finally:
        db.close(True)
    damaged_file = move_aside(path, process)
    fresh.rename(path)
    sync_folder(path.parent)
    return SalvageResult(damaged_file, *counts)


def _copy_rows(path: Path, db: Connection) -> tuple[int, int, int, int, bool]:
    """How many sessions and messages were copied, how many messages were lost, how many sessions
    lost their row, and whether deleted ones may be among these."""
    db.execute(
        "PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE; CREATE TEMP TABLE found"
        " (id INTEGER PRIMARY KEY, role, kind, created, body)"
    ).fetchall()
    scan = PageScan(path)
    try:
        expected = {n: row for row in scan.read_rows() if (n := _copy_row(db, row)) is not None}
        nameless, may_revive = _add_missing_sessions(db), not scan.has_sound_freelist
    finally:
        scan.close()
    # A later session gets the number of a lost one, and would meet what belonged to that.
    db.execute("DELETE FROM systems WHERE session NOT IN (SELECT n FROM sessions)")
    # Renumbered without gaps, because the next message gets the count as its number.
    db.execute(
        "INSERT INTO messages (id, role, kind, created, body)"
        " SELECT (id >> 24 << 24) + row_number() OVER (PARTITION BY id >> 24 ORDER BY id) - 1,"
        " role, kind, created, body FROM found WHERE id >> 24 IN (SELECT n FROM sessions)"
        " ORDER BY id"
    )
    for n, row in expected.items():
        db.execute("UPDATE sessions SET updated = ? WHERE n = ?", (row.values[9], n))
    sessions, messages = db.execute("SELECT count(*), total(count) FROM sessions").fetchall()[0]
    counts: dict[int, int] = dict(db.execute("SELECT n, count FROM sessions"))
    lost = sum(max(0, _as_count(row.values[12]) - counts.get(n, 0)) for n, row in expected.items())
    db.execute("COMMIT; DROP TABLE found; PRAGMA foreign_keys = ON").fetchall()
    return int(str(sessions)), int(float(str(messages))), lost, nameless, may_revive


def _copy_row(db: Connection, row: FoundRow) -> int | None:
    """Insert the row into the table it must come from; the number of the session, if it is one."""
    table = _find_table(row)
    if table is None:
        return None
    values = row.values if row.rowid is None else (row.rowid, *row.values[1:])
    names = _TABLES[table][1].split()[: len(values)]
    if table == "messages":
        if _is_message(values[4]):
            _insert_row(db, "found", names, values)
        return None
    if table != "sessions":
        _insert_row(db, table, names, values)
        return None
    session = dict(zip(names, values, strict=True)) | {"count": 0, "owner": ""}
    if session["state"] == "running":
        session["state"] = "interrupted"
    is_new = _insert_row(db, table, list(session), tuple(session.values()))
    return row.rowid if is_new else None


def _find_table(row: FoundRow) -> str | None:
    for table, (types, _) in _TABLES.items():
        least = _FIRST_SESSION_COLUMNS if table == "sessions" else len(types)
        if (types[0] == "-") != (row.rowid is not None):
            continue
        if least <= len(row.values) <= len(types) and all(
            code in _TYPES[type(value)] for value, code in zip(row.values, types, strict=False)
        ):
            return table
    return None


def _is_message(body: Value) -> bool:
    try:
        codec.decode_message(body if isinstance(body, bytes) else b"", 0)
    except StoreError:
        return False
    return True


def _add_missing_sessions(db: Connection) -> int:
    """Give messages whose session cannot be read a session; how many there are."""
    db.execute(
        "INSERT OR IGNORE INTO sessions (n, id, source, key, cwd, title, model, parent, created,"
        " updated, taint) SELECT id >> 24, printf('salvaged-%06d', id >> 24), 'cli', '', '',"
        " 'Salvaged conversation', '', '', min(created), max(created), 3 FROM found"
        " WHERE id >> 24 > 0 AND id >> 24 NOT IN (SELECT n FROM sessions) GROUP BY id >> 24"
    )
    return db.changes()


def _as_count(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _insert_row(db: Connection, table: str, names: list[str], values: tuple[Value, ...]) -> bool:
    import apsw

    marks = ", ".join("?" * len(values))
    try:
        db.execute(f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({marks})", values)
    except apsw.Error:  # the values read are not those once written
        return False
    return bool(db.changes())

"""What can be asked about sessions, each run on the reader's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes.core.message import Message
from hermes.core.store import Hit, SessionMeta, Stored
from hermes.core.text import clean
from hermes.store import codec as rows
from hermes.store import search
from hermes.store.process_locks import Owner

if TYPE_CHECKING:
    from apsw import Connection

PAGE = 500
_LAST = "\U0010ffff"


def meta(db: Connection, owner: Owner, session_id: str) -> SessionMeta | None:
    return _whole(db, owner, "WHERE s.id = ?", clean(session_id))


def latest(db: Connection, owner: Owner, wanted: dict[str, str | None]) -> SessionMeta | None:
    where, values = _filter(wanted)
    return _whole(db, owner, where + " ORDER BY s.updated DESC, s.n DESC LIMIT 1", *values)


def sessions(
    db: Connection, owner: Owner, wanted: dict[str, str | None], limit: int
) -> list[SessionMeta]:
    where, values = _filter(wanted)
    where += " ORDER BY s.updated DESC, s.n DESC LIMIT ?"
    return _list(db, owner, where, *values, limit)


def owned(db: Connection, owner: Owner, whose: str, page: tuple[int, int]) -> list[SessionMeta]:
    theirs = "s.source = 'api' AND s.key >= ? AND s.key < ?"
    where = theirs if whose else f"s.source <> 'api' OR ({theirs})"
    where = f"WHERE s.next = '' AND ({where}) ORDER BY s.updated DESC, s.n DESC LIMIT ? OFFSET ?"
    return _list(db, owner, where, f"{whose}/", f"{whose}0", *page)  # "0" comes after "/"


def find(db: Connection, owner: Owner, prefix: str, limit: int) -> list[SessionMeta]:
    prefix = clean(prefix)
    where = "WHERE s.id >= ? AND s.id < ? ORDER BY s.id LIMIT ?"
    return _list(db, owner, where, prefix, prefix + _LAST, limit)


def load(db: Connection, session_id: str) -> list[Message]:
    found = db.execute(
        "SELECT m.body FROM sessions s JOIN messages m"
        " ON m.id >= s.n << 24 AND m.id < (s.n + 1) << 24 WHERE s.id = ? ORDER BY m.id",
        (clean(session_id),),
    ).get
    # `get` returns no list when there is one row or none; it is the fastest way to many.
    if found is None:
        return []
    return rows.decode_all([found] if isinstance(found, bytes) else found)


def page(db: Connection, session_id: str, after: int) -> list[Stored]:
    return rows.decode_rows(
        db.execute(
            "SELECT m.seq, m.created, m.body FROM sessions s JOIN messages m"
            " ON m.id > (s.n << 24) + ? AND m.id < (s.n + 1) << 24 WHERE s.id = ?"
            " ORDER BY m.id LIMIT ?",
            (after, clean(session_id), PAGE),
        )
    )


def hits(
    db: Connection, owner: Owner, query: str, limit: int, wait: bool = True
) -> list[Hit] | None:
    """None when the index must catch up first, unless that is not waited for."""
    if wait and search.behind(db):
        return None
    known: dict[str, bool] = {}
    return search.query(db, query, limit, lambda row: _session(row, owner, known))


def check(db: Connection) -> list[str]:
    """A word of SQLite's per problem. The index is checked apart: it can be rebuilt."""
    found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)")]
    return [] if found == ["ok"] else found


def _filter(wanted: dict[str, str | None]) -> tuple[str, list[str]]:
    """Of a compressed conversation only the session it goes on in."""
    given = {name: clean(value) for name, value in wanted.items() if value is not None}
    tests = ["s.next = ''", *(f"s.{name} = ?" for name in given)]
    return "WHERE " + " AND ".join(tests), list(given.values())


def _list(db: Connection, owner: Owner, where: str, *values: Any) -> list[SessionMeta]:
    known: dict[str, bool] = {}
    sql = f"SELECT {rows.COLUMNS} FROM sessions s {where}"
    return [_session(row, owner, known) for row in db.execute(sql, values)]


def _whole(db: Connection, owner: Owner, where: str, *values: Any) -> SessionMeta | None:
    sql = (
        f"SELECT {rows.COLUMNS}, (SELECT text FROM systems WHERE session = s.n)"
        f" FROM sessions s {where}"
    )
    found: list[tuple[Any, ...]] = db.execute(sql, values).fetchall()
    if not found:
        return None
    *row, system = found[0]
    return _session(row, owner, {}, system or "")


def _session(row: Any, owner: Owner, known: dict[str, bool], system: str = "") -> SessionMeta:
    """`known`: owners already looked up for this list."""
    alive = False
    if row[7] == "running":
        holder = row[8]
        if holder not in known:
            known[holder] = owner.alive(holder)
        alive = known[holder]
    return rows.session(row, alive=alive, system=system)

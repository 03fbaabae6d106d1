"""The changes a session can undergo, each run inside the writer's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hermes.core.store import SessionMeta, State
from hermes.core.text import clean
from hermes.store import codec as rows
from hermes.store import errors as faults
from hermes.store import search
from hermes.store.process_locks import Owner

if TYPE_CHECKING:
    from apsw import Connection


class Append(Struct):
    """One call of `append`, which may be run more than once before it has succeeded."""

    id: str
    rows: Sequence[tuple[str, str, float, bytes]]
    """Role, kind, created, body."""
    state: State | None = None
    create: SessionMeta | None = None
    taint: int = 0
    """Bits to be added."""
    first: int = 0
    """The first row's id when it was last tried."""


_INSERT = (
    "INSERT INTO messages (id, role, kind, created, body) SELECT n << 24 | count, ?, ?, ?, ?"
    " FROM sessions WHERE id = ? AND (state <> 'running' OR owner = ?)"
)
"""One statement finds the session, sees that nobody else runs it, and takes the next number."""


def append(db: Connection, owner: Owner, now: float, call: Append) -> None:
    if call.first and _landed(db, call):
        return
    if call.create is not None:
        create(db, call.create, now)
    for index, row in enumerate(call.rows):
        values = (*row, call.id, owner.name)
        db.execute(_INSERT, values)
        if not db.changes():
            _claim(db, owner, call.id)
            db.execute(_INSERT, values)
        if index == 0:
            call.first = db.last_insert_rowid()
    if call.taint:
        db.execute("UPDATE sessions SET taint = taint | ? WHERE id = ?", (call.taint, call.id))
    if call.state is not None:
        set_state(db, owner, call.id, call.state)


def _landed(db: Connection, call: Append) -> bool:
    """Whether an earlier try, which ended in an I/O error, is on disk after all."""
    found = db.execute("SELECT created, body FROM messages WHERE id = ?", (call.first,)).fetchall()
    return found == [call.rows[0][2:]]


def _claim(db: Connection, owner: Owner, session_id: str) -> int:
    """A session this process may write to; a turn left behind by a dead process is ended."""
    found: list[tuple[Any, ...]] = db.execute(
        "SELECT n, state, owner FROM sessions WHERE id = ?", (session_id,)
    ).fetchall()
    if not found:
        raise faults.missing(session_id)
    n, state, holder = found[0]
    if state == "running" and holder != owner.name:
        if owner.alive(holder):
            raise faults.in_use(session_id)
        db.execute("UPDATE sessions SET state = 'interrupted', owner = '' WHERE n = ?", (n,))
    return int(n)


def create(db: Connection, meta: SessionMeta, now: float) -> int:
    import apsw

    try:
        db.execute(
            "INSERT INTO sessions (id, source, key, cwd, title, model, parent, created, updated,"
            " taint) VALUES (?,?,?,?,?,?,?,?,?,?)",
            rows.insert(meta, now),
        )
    except apsw.ConstraintError:
        raise faults.exists(meta.id) from None
    n = db.last_insert_rowid()
    if meta.system:
        db.execute("INSERT INTO systems (session, text) VALUES (?, ?)", (n, clean(meta.system)))
    return n


def go_on(db: Connection, owner: Owner, now: float, parent: str, call: Append) -> None:
    """Ends the parent's part in the transaction that begins the child's."""
    n = _claim(db, owner, parent)
    if call.first and _landed(db, call):
        return
    append(db, owner, now, call)
    db.execute(
        "UPDATE sessions SET title = p.title, taint = sessions.taint | p.taint"
        " FROM (SELECT title, taint FROM sessions WHERE n = ?) AS p WHERE id = ?",
        (n, call.id),
    )
    db.execute("UPDATE sessions SET next = ?, state = 'idle', owner = '' WHERE n = ?", (call.id, n))


def set_state(db: Connection, owner: Owner, session_id: str, state: State) -> None:
    n = _claim(db, owner, session_id)
    holder = owner.hold() if state == "running" else ""
    db.execute("UPDATE sessions SET state = ?, owner = ? WHERE n = ?", (state, holder, n))


def describe(db: Connection, session_id: str, title: str | None, model: str | None) -> None:
    db.execute(
        "UPDATE sessions SET title = coalesce(?, title), model = coalesce(?, model) WHERE id = ?",
        (
            title if title is None else clean(title),
            model if model is None else clean(model),
            session_id,
        ),
    )
    if not db.changes():
        raise faults.missing(session_id)


def delete(db: Connection, owner: Owner, session_id: str) -> bool:
    parts = [id for (id,) in db.execute(_CONVERSATION, (session_id, session_id))]
    for n in [_claim(db, owner, part) for part in parts]:
        search.forget(db, n)
        db.execute("DELETE FROM sessions WHERE n = ?", (n,))
    gone = [(part,) for part in parts]
    db.executemany("DELETE FROM objects WHERE kind = 'handoff' AND id = ?", gone)
    return bool(parts)


_CONVERSATION = """
WITH RECURSIVE
    later (id, next) AS (
        SELECT id, next FROM sessions WHERE id = ?
        UNION SELECT s.id, s.next FROM sessions s JOIN later ON s.id = later.next
    ),
    earlier (id) AS (
        SELECT id FROM sessions WHERE id = ?
        UNION SELECT s.id FROM sessions s JOIN earlier ON s.next = earlier.id AND s.next <> ''
    )
SELECT id FROM later UNION SELECT id FROM earlier"""
"""A session, what it was compressed into, and what was compressed into it."""

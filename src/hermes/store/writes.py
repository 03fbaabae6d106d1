"""The changes a session can undergo, each run inside the writer's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hermes.core.store import SessionMeta, State
from hermes.core.text import clean
from hermes.store import faults, rows, search
from hermes.store.locks import Owner

if TYPE_CHECKING:
    from apsw import Connection


class Append(Struct):
    """One call of `append`, which may be run more than once before it has succeeded."""

    id: str
    rows: Sequence[tuple[str, str, bytes]]
    """Role, kind, body."""
    now: float
    state: State | None = None
    create: SessionMeta | None = None
    first: int = -1
    """Where the first row went when it was last tried."""


def append(db: Connection, owner: Owner, call: Append) -> None:
    if call.first >= 0 and _landed(db, call):
        return
    n, count, state, holder = _open(db, owner, call)
    call.first = count
    new = [
        (n, seq, role, kind, call.now, body)
        for seq, (role, kind, body) in enumerate(call.rows, count)
    ]
    sql = "INSERT INTO messages (session, seq, role, kind, created, body) VALUES (?,?,?,?,?,?)"
    if len(new) == 1:
        db.execute(sql, new[0])
    else:
        db.executemany(sql, new)
    if call.state is not None:
        state = call.state
        holder = owner.hold() if state == "running" else ""
    db.execute(
        "UPDATE sessions SET count = ?, updated = ?, state = ?, owner = ? WHERE n = ?",
        (count + len(new), call.now, state, holder, n),
    )


def _open(db: Connection, owner: Owner, call: Append) -> tuple[int, int, str, str]:
    if call.create is None:
        return _claim(db, owner, call.id)
    return create(db, call.create, call.now), 0, call.create.state, ""


def _landed(db: Connection, call: Append) -> bool:
    """Whether an earlier try, which ended in an I/O error, is on disk after all."""
    if not call.rows:
        return False
    found = db.execute(
        "SELECT m.created, m.body FROM messages m JOIN sessions s ON s.n = m.session"
        " WHERE s.id = ? AND m.seq = ?",
        (call.id, call.first),
    ).fetchall()
    return found == [(call.now, call.rows[0][2])]


def _claim(db: Connection, owner: Owner, session_id: str) -> tuple[int, int, str, str]:
    """A session this process may write to."""
    found: list[tuple[Any, ...]] = db.execute(
        "SELECT n, count, state, owner FROM sessions WHERE id = ?", (session_id,)
    ).fetchall()
    if not found:
        raise faults.missing(session_id)
    n, count, state, holder = found[0]
    if state == "running" and holder != owner.name and owner.alive(holder):
        raise faults.in_use(session_id)
    return n, count, state, holder


def create(db: Connection, meta: SessionMeta, now: float) -> int:
    import apsw

    try:
        db.execute(
            "INSERT INTO sessions (id, source, key, cwd, title, model, parent, created, updated)"
            " VALUES (?,?,?,?,?,?,?,?,?)",
            rows.insert(meta, now),
        )
    except apsw.ConstraintError:
        raise faults.exists(meta.id) from None
    n = db.last_insert_rowid()
    if meta.system:
        db.execute("INSERT INTO systems (session, text) VALUES (?, ?)", (n, clean(meta.system)))
    return n


def set_state(db: Connection, owner: Owner, session_id: str, state: State) -> None:
    n, *_ = _claim(db, owner, session_id)
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
    if not db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchall():
        return False
    n, *_ = _claim(db, owner, session_id)
    search.forget(db, n)
    db.execute("DELETE FROM sessions WHERE n = ?", (n,))
    search.rewind(db)
    return True

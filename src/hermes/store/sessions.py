"""Sessions and their messages: the changes on the writer's thread, the queries on the reader's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hermes.core.errors import StoreError
from hermes.core.message import Message
from hermes.core.store import (
    NO_FILTER,
    MailboxChange,
    SessionEnd,
    SessionFilter,
    SessionMeta,
    SessionState,
    StoredMessage,
)
from hermes.core.taint import Taint
from hermes.core.text import replace_invalid
from hermes.store import codec, errors, search_index
from hermes.store.database import Database
from hermes.store.ledger import SqliteLedger
from hermes.store.mailbox_rows import apply_change
from hermes.store.process_locks import ProcessLock
from hermes.store.search_index import IndexBacklog, IndexDamaged

if TYPE_CHECKING:
    from apsw import Connection

PAGE_SIZE = 500
"""Messages fetched at a time when a session is streamed."""
_LAST_CHARACTER = "\U0010ffff"
_LAST_SEQ = 0xFFFFFF
_LONGEST_END = 200


class SqliteSessions:
    """Implements `core.store.SessionStore`."""

    def __init__(
        self,
        database: Database,
        ledger: SqliteLedger,
        backlog: IndexBacklog,
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._process = database.process
        self._ledger = ledger
        self._backlog = backlog
        self._clock = clock

    async def create(self, meta: SessionMeta) -> None:
        now = self._clock()
        await self._database.writer.submit(lambda db: _insert_session(db, meta, now))

    async def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        state: SessionState | None = None,
        create: SessionMeta | None = None,
        taint: Taint | None = None,
        mailbox: MailboxChange | None = None,
    ) -> int:
        batch = self._make_batch(session_id, messages, state, create, taint)

        def append_batch(db: Connection) -> None:
            _append_batch(db, self._process, batch)
            if mailbox is not None:
                apply_change(db, mailbox)
            self._backlog.count += len(batch.rows)

        await self._write_with_ledger(append_batch)
        return (batch.first_id & _LAST_SEQ) + len(batch.rows) - 1

    async def continue_in_child(
        self, session_id: str, child: SessionMeta, messages: Sequence[Message], state: SessionState
    ) -> None:
        batch = self._make_batch(child.id, messages, state, child)

        def append_to_child(db: Connection) -> None:
            _continue_in_child(db, self._process, replace_invalid(session_id), batch)
            self._backlog.count += len(batch.rows)

        await self._database.writer.submit(append_to_child)

    async def set_state(
        self, session_id: str, state: SessionState, *, mailbox: MailboxChange | None = None
    ) -> None:
        def update_state(db: Connection) -> None:
            _set_state(db, self._process, replace_invalid(session_id), state)
            if mailbox is not None:
                apply_change(db, mailbox)

        await self._write_with_ledger(update_state)

    async def update_meta(
        self,
        session_id: str,
        *,
        title: str | None = None,
        model: str | None = None,
        pinned: bool | None = None,
        archived: bool | None = None,
    ) -> None:
        texts = [text if text is None else replace_invalid(text) for text in (title, model)]
        cleaned = replace_invalid(session_id)

        def update_columns(db: Connection) -> None:
            db.execute(
                "UPDATE sessions SET title = coalesce(?, title), model = coalesce(?, model),"
                " pinned = coalesce(?, pinned), archived = coalesce(?, archived) WHERE id = ?",
                (*texts, pinned, archived, cleaned),
            )
            if not db.changes():
                raise errors.session_missing_error(cleaned)

        await self._database.writer.submit(update_columns)

    async def delete(self, session_id: str) -> bool:
        delete = partial(_delete_conversation, self._process, replace_invalid(session_id))
        try:
            return await self._database.writer.submit(delete)
        except IndexDamaged:
            await search_index.repair_index(self._database)
            return await self._database.writer.submit(delete)

    def _make_batch(
        self,
        session_id: str,
        messages: Sequence[Message],
        state: SessionState | None,
        create: SessionMeta | None,
        taint: Taint | None = None,
    ) -> _Batch:
        now = self._clock()
        rows = [(m.role, m.kind, now, codec.encode_message(m)) for m in messages]
        bits = taint.bits if taint is not None else 0
        return _Batch(replace_invalid(session_id), now, rows, state, create, bits)

    async def _write_with_ledger(self, run: Callable[[Connection], None]) -> None:
        """In one transaction with the ledger entries that are waiting."""
        both, entries = self._ledger.take_pending(run)
        try:
            await self._database.writer.submit(both)
        except Exception:
            self._ledger.restore_pending(entries)
            raise

    async def get_meta(self, session_id: str) -> SessionMeta | None:
        return await self._find_one("WHERE s.id = ?", replace_invalid(session_id))

    async def load_messages(self, session_id: str) -> list[Message]:
        return await self._database.read(lambda db: _load_messages(db, replace_invalid(session_id)))

    async def stream_messages(
        self, session_id: str, *, after: int = -1
    ) -> AsyncIterator[StoredMessage]:
        def load_next_page(db: Connection) -> list[StoredMessage]:
            return _load_page(db, replace_invalid(session_id), after)

        while page := await self._database.read(load_next_page):
            for stored in page:
                yield stored
            after = page[-1].seq

    async def load_window(
        self, session_id: str, *, after: int = -1, before: int = _LAST_SEQ, limit: int, last: bool
    ) -> list[StoredMessage]:
        def load_rows(db: Connection) -> list[StoredMessage]:
            bounds = (max(after, -1), min(before, _LAST_SEQ))
            return _load_window(db, replace_invalid(session_id), bounds, limit, last=last)

        return await self._database.read(load_rows)

    async def list_recent(
        self,
        *,
        limit: int = 50,
        cwd: str | None = None,
        source: str | None = None,
        key: str | None = None,
    ) -> list[SessionMeta]:
        where, values = _recent_first(cwd=cwd, source=source, key=key)
        return await self._list_where(f"{where} LIMIT ?", *values, limit)

    async def list_by_owner(
        self,
        owner: str,
        *,
        others: bool = False,
        limit: int = 50,
        offset: int = 0,
        only: SessionFilter = NO_FILTER,
    ) -> list[SessionMeta]:
        theirs = "s.source IN ('api', 'web') AND s.key >= ? AND s.key < ?"
        where = theirs if not others else f"s.source NOT IN ('api', 'web') OR ({theirs})"
        wanted, values = _compose_filter(only)
        order = "ORDER BY s.pinned DESC, s.used DESC, s.n DESC LIMIT ? OFFSET ?"
        return await self._list_where(
            f"WHERE s.next = '' AND ({where}) AND {wanted} {order}",
            f"{owner}/",
            f"{owner}0",  # "0" comes after "/"
            *values,
            limit,
            offset,
        )

    async def load_ends(self, session_ids: Sequence[str]) -> dict[str, SessionEnd]:
        ids = [replace_invalid(id) for id in session_ids]
        return await self._database.read(lambda db: {id: _load_end(db, id) for id in ids})

    async def find_latest(
        self, *, cwd: str | None = None, source: str | None = None, key: str | None = None
    ) -> SessionMeta | None:
        where, values = _recent_first(cwd=cwd, source=source, key=key)
        return await self._find_one(f"{where} LIMIT 1", *values)

    async def find_by_prefix(self, prefix: str, *, limit: int = 20) -> list[SessionMeta]:
        where = "WHERE s.id >= ? AND s.id < ? ORDER BY s.id LIMIT ?"
        prefix = replace_invalid(prefix)
        return await self._list_where(where, prefix, prefix + _LAST_CHARACTER, limit)

    async def _list_where(self, where: str, *values: str | int) -> list[SessionMeta]:
        """Without their system prompts."""
        sql = f"SELECT {codec.SESSION_COLUMNS} FROM sessions s {where}"
        is_alive = cache(self._process.is_alive)
        return await self._database.read(
            lambda db: [codec.decode_session(row, is_alive) for row in db.execute(sql, values)]
        )

    async def _find_one(self, where: str, *values: str) -> SessionMeta | None:
        sql = (
            f"SELECT {codec.SESSION_COLUMNS}, (SELECT text FROM systems WHERE session = s.n)"
            f" FROM sessions s {where}"
        )

        def select_session(db: Connection) -> SessionMeta | None:
            found: list[tuple[Any, ...]] = db.execute(sql, values).fetchall()
            if not found:
                return None
            *row, system = found[0]
            return codec.decode_session(row, self._process.is_alive, system or "")

        return await self._database.read(select_session)


def _load_messages(db: Connection, session_id: str) -> list[Message]:
    found = db.execute(
        "SELECT m.body FROM sessions s JOIN messages m"
        " ON m.id >= s.n << 24 AND m.id < (s.n + 1) << 24 WHERE s.id = ? ORDER BY m.id",
        (session_id,),
    ).get
    # `get` is the fastest way to many rows; it returns no list for a single row or none.
    if found is None:
        return []
    return codec.decode_messages([found] if isinstance(found, bytes) else found)


def _load_page(db: Connection, session_id: str, after: int) -> list[StoredMessage]:
    rows: Any = db.execute(
        "SELECT m.seq, m.created, m.body FROM sessions s JOIN messages m"
        " ON m.id > (s.n << 24) + ? AND m.id < (s.n + 1) << 24 WHERE s.id = ?"
        " ORDER BY m.id LIMIT ?",
        (after, session_id, PAGE_SIZE),
    )
    return [StoredMessage(seq, at, codec.decode_message(body, seq)) for seq, at, body in rows]


def _load_window(
    db: Connection, session_id: str, bounds: tuple[int, int], limit: int, *, last: bool
) -> list[StoredMessage]:
    rows: Any = db.execute(
        "SELECT m.seq, m.created, m.body FROM sessions s JOIN messages m"
        " ON m.id > (s.n << 24) + ? AND m.id < (s.n << 24) + ? WHERE s.id = ?"
        f" ORDER BY m.id {'DESC' if last else 'ASC'} LIMIT ?",
        (*bounds, session_id, limit),
    )
    found = [StoredMessage(seq, at, codec.decode_message(body, seq)) for seq, at, body in rows]
    return found[::-1] if last else found


def _compose_filter(only: SessionFilter) -> tuple[str, list[str]]:
    tests, values = [f"s.archived = {int(only.archived)}"], []
    for name in ("source", "state"):
        if wanted := getattr(only, name):
            tests.append(f"s.{name} = ?")
            values.append(replace_invalid(wanted))
    if only.title:
        tests.append("instr(lower(s.title), lower(?))")
        values.append(replace_invalid(only.title))
    return " AND ".join(tests), values


def _load_end(db: Connection, session_id: str) -> SessionEnd:
    rows: Any = db.execute(
        "SELECT (SELECT usd FROM spent WHERE scope = 'session:' || s.id), (SELECT body FROM"
        " messages WHERE id >= s.n << 24 AND id < (s.n + 1) << 24 AND role <> 'tool'"
        " ORDER BY id DESC LIMIT 1) FROM sessions s WHERE s.id = ?",
        (session_id,),
    ).fetchall()
    if not rows:
        return SessionEnd()
    cost, body = rows[0]
    text = codec.decode_message(body, 0).text if body else ""
    return SessionEnd(cost or 0.0, " ".join(text[:_LONGEST_END].split()))


def _recent_first(**wanted: str | None) -> tuple[str, list[str]]:
    """Sessions with these columns, the most recently used first; of a compressed conversation
    only the session it continues in."""
    values = {name: replace_invalid(value) for name, value in wanted.items() if value is not None}
    tests = ["s.next = ''", *(f"s.{name} = ?" for name in values)]
    where = f"WHERE {' AND '.join(tests)} ORDER BY s.used DESC, s.n DESC"
    return where, list(values.values())


class _Batch(Struct):
    """The messages of one call; the call may run more than once before it succeeds."""

    session_id: str
    now: float
    rows: Sequence[tuple[str, str, float, bytes]]
    """Role, kind, created, body."""
    state: SessionState | None = None
    create: SessionMeta | None = None
    taint: int = 0
    """Bits to add."""
    first_id: int = 0
    """The id that the first row got in the last attempt."""


_INSERT = (
    "INSERT INTO messages (id, role, kind, created, body) SELECT n << 24 | count, ?, ?, ?, ?"
    " FROM sessions WHERE id = ? AND (state <> 'running' OR owner = ?)"
)
"""One statement finds the session, checks that no other process runs it, and takes the next id."""


_USE = (
    "UPDATE sessions SET used = m.used + 1 FROM (SELECT max(used) AS used FROM sessions) AS m"
    " WHERE id = ? AND sessions.used < m.used"
)
"""Makes a session the last that was used; once per turn, and only if it is not already."""


def _append_batch(db: Connection, process: ProcessLock, batch: _Batch) -> None:
    if batch.first_id and _is_on_disk(db, batch):
        return
    if batch.create is not None:
        _insert_session(db, batch.create, batch.now)
    for index, row in enumerate(batch.rows):
        values = (*row, batch.session_id, process.name)
        db.execute(_INSERT, values)
        if not db.changes():
            _claim_session(db, process, batch.session_id)
            db.execute(_INSERT, values)
        if index == 0:
            batch.first_id = db.last_insert_rowid()
    if batch.taint:
        sql = "UPDATE sessions SET taint = taint | ? WHERE id = ?"
        db.execute(sql, (batch.taint, batch.session_id))
    if batch.state is not None:
        _set_state(db, process, batch.session_id, batch.state)
    if batch.create is None and any(role == "user" for role, *_ in batch.rows):
        db.execute(_USE, (batch.session_id,))


def _is_on_disk(db: Connection, batch: _Batch) -> bool:
    """Whether an earlier attempt, which ended in an I/O error, reached the disk after all."""
    sql = "SELECT created, body FROM messages WHERE id = ?"
    return db.execute(sql, (batch.first_id,)).fetchall() == [batch.rows[0][2:]]


def _claim_session(db: Connection, process: ProcessLock, session_id: str) -> int:
    """The number of a session that this process may write to. A turn that a dead process left
    running is marked as interrupted."""
    found: list[tuple[Any, ...]] = db.execute(
        "SELECT n, state, owner FROM sessions WHERE id = ?", (session_id,)
    ).fetchall()
    if not found:
        raise errors.session_missing_error(session_id)
    n, state, holder = found[0]
    if state == "running" and holder != process.name:
        if process.is_alive(holder):
            raise StoreError(
                f"Session {session_id} is in use by another process. Nothing was saved or lost. "
                "Wait for its turn to end, or end that process.",
                "in_use",
            )
        db.execute("UPDATE sessions SET state = 'interrupted', owner = '' WHERE n = ?", (n,))
    return int(n)


def _insert_session(db: Connection, meta: SessionMeta, now: float) -> None:
    import apsw

    try:
        db.execute(
            "INSERT INTO sessions (id, source, key, cwd, title, model, parent, created, updated,"
            " taint, used) VALUES (?,?,?,?,?,?,?,?,?,?,"
            " (SELECT coalesce(max(used), 0) + 1 FROM sessions))",
            codec.encode_session(meta, now),
        )
    except apsw.ConstraintError:
        text = f"Session {meta.id} already exists; it was not changed."
        raise StoreError(text, "exists") from None
    if meta.system:
        values = (db.last_insert_rowid(), replace_invalid(meta.system))
        db.execute("INSERT INTO systems (session, text) VALUES (?, ?)", values)


def _continue_in_child(db: Connection, process: ProcessLock, parent: str, batch: _Batch) -> None:
    n = _claim_session(db, process, parent)
    if batch.first_id and _is_on_disk(db, batch):
        return
    _append_batch(db, process, batch)
    db.execute(
        "UPDATE sessions SET title = p.title, taint = sessions.taint | p.taint,"
        " pinned = p.pinned, archived = p.archived"
        " FROM (SELECT title, taint, pinned, archived FROM sessions WHERE n = ?) AS p WHERE id = ?",
        (n, batch.session_id),
    )
    sql = "UPDATE sessions SET next = ?, state = 'idle', owner = '' WHERE n = ?"
    db.execute(sql, (batch.session_id, n))


def _set_state(db: Connection, process: ProcessLock, session_id: str, state: SessionState) -> None:
    n = _claim_session(db, process, session_id)
    holder = process.acquire() if state == "running" else ""
    db.execute("UPDATE sessions SET state = ?, owner = ? WHERE n = ?", (state, holder, n))


def _delete_conversation(process: ProcessLock, session_id: str, db: Connection) -> bool:
    parts = [id for (id,) in db.execute(_CONVERSATION, (session_id, session_id))]
    for n in [_claim_session(db, process, part) for part in parts]:
        search_index.remove_session(db, n)
        db.execute("DELETE FROM sessions WHERE n = ?", (n,))
    sql = "DELETE FROM objects WHERE kind = 'handoff' AND id = ?"
    db.executemany(sql, [(part,) for part in parts])
    sql = "DELETE FROM objects WHERE kind = 'tape' AND owner = ?"
    db.executemany(sql, [(part,) for part in parts])
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
"""A session, those it was compressed into, and those compressed into it."""

"""Sessions and their messages on PostgreSQL; who runs a session writes with its epoch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from msgspec import Struct

from hermes.core.errors import StoreError
from hermes.core.message import Message
from hermes.core.store import MailboxChange, SessionMeta, SessionState, StoredMessage
from hermes.core.taint import Taint
from hermes.core.text import replace_invalid
from hermes.store import codec, errors
from hermes.store.postgres.connection import PostgresConnection, SessionKey
from hermes.store.postgres.database import TenantDatabase, UnreadResult
from hermes.store.postgres.errors import fenced_error
from hermes.store.postgres.search import PostgresSearch
from hermes.store.tables.ledger import SqlLedger
from hermes.store.tables.mailbox_rows import apply_change
from hermes.store.tables.session_list import CONVERSATION, SqlSessionList
from hermes.store.tables.tenancy import CURRENT_TENANT

log = logging.getLogger(__name__)
PAGE_SIZE = 500
"""Messages fetched at a time when a session is streamed."""
_RETRY_SECONDS = 1.0
_LAST_SEQ = 0xFFFFFF
_LAST_BODY = (
    "SELECT body FROM messages WHERE session = s.n AND role <> 'tool' ORDER BY seq DESC LIMIT 1"
)
_WRITE = "SELECT * FROM hermes.write_session(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_WRITE_ONE = (
    "SELECT * FROM hermes.write_session(%s, %s, %s, %s, ARRAY[%s::text], ARRAY[%s::text], %s,"
    " ARRAY[%s::bytea], %s, %s, %s)"
)
_PAGE = "SELECT m.seq, m.created, m.body FROM sessions s JOIN messages m ON m.session = s.n"


class _Change(Struct):
    """What one call writes to a session; the call may run more than once before it succeeds."""

    session_id: str
    rows: Sequence[Message] = ()
    state: SessionState | None = None
    taint: int = 0
    begins: bool = False
    """Whether the session becomes the last that was used."""


class PostgresSessions(SqlSessionList):
    """Implements `core.store.SessionStore`."""

    def __init__(
        self,
        database: TenantDatabase,
        ledger: SqlLedger,
        search: PostgresSearch,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(database, _LAST_BODY)
        self._database = database
        self._ledger = ledger
        self._search = search
        self._clock = clock
        self.fenced_writes = 0
        self._left: set[SessionKey] = set()
        """Sessions whose turn ended because it could not be written; they still count as run by
        this process."""
        self._releasing: set[asyncio.Task[None]] = set()

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
        now = self._clock()
        begins = create is None and any(m.role == "user" for m in messages)
        bits = taint.bits if taint is not None else 0
        change = _Change(replace_invalid(session_id), messages, state, bits, begins)
        bodies = [codec.encode_message(m) for m in messages]

        def append_messages(db: PostgresConnection) -> UnreadResult:
            self._left.discard((db.tenant, change.session_id))
            if create is not None:
                _insert_session(db, create, now)
            read_first = self._send(db, change, now, bodies)
            if mailbox is not None:
                apply_change(db, mailbox)
            return UnreadResult(lambda: read_first() + len(bodies) - 1)

        last: int = await self._write_with_ledger(append_messages, session_id)
        self._search.count_added(len(bodies))
        return last

    async def continue_in_child(
        self, session_id: str, child: SessionMeta, messages: Sequence[Message], state: SessionState
    ) -> None:
        now = self._clock()
        parent, bodies = replace_invalid(session_id), [codec.encode_message(m) for m in messages]

        def append_to_child(db: PostgresConnection) -> None:
            self._write(db, _Change(parent), now)
            _insert_session(db, child, now)
            self._write(db, _Change(replace_invalid(child.id), messages, state), now, bodies)
            db.execute(
                "UPDATE sessions SET title = p.title, taint = sessions.taint | p.taint,"
                " pinned = p.pinned, archived = p.archived FROM sessions AS p"
                " WHERE p.id = ? AND sessions.id = ?",
                (parent, child.id),
            )
            self._write(db, _Change(parent, state="idle"), now)
            db.execute("UPDATE sessions SET next = ? WHERE id = ?", (child.id, parent))

        await self._write_with_ledger(append_to_child, parent)
        self._search.count_added(len(bodies))

    async def set_state(
        self, session_id: str, state: SessionState, *, mailbox: MailboxChange | None = None
    ) -> None:
        now = self._clock()
        change = _Change(replace_invalid(session_id), state=state)

        def update_state(db: PostgresConnection) -> UnreadResult:
            self._left.discard((db.tenant, change.session_id))
            read_place = self._send(db, change, now)
            if mailbox is not None:
                apply_change(db, mailbox)
            return UnreadResult(read_place)

        await self._write_with_ledger(update_state, session_id)

    async def delete(self, session_id: str) -> bool:
        cleaned, now = replace_invalid(session_id), self._clock()

        def delete_conversation(db: PostgresConnection) -> bool:
            parts = [id for (id,) in db.execute(CONVERSATION, (cleaned, cleaned))]
            for part in parts:
                self._write(db, _Change(part), now)
                n = db.execute("SELECT n FROM sessions WHERE id = ?", (part,)).get
                for table in ("messages", "pending", "search", "systems"):
                    db.execute(f"DELETE FROM {table} WHERE session = ?", (n,))
                for table in ("snapshots", "calls"):
                    db.execute(f"DELETE FROM {table} WHERE session = ?", (part,))
                db.execute("DELETE FROM sessions WHERE n = ?", (n,))
                db.execute("DELETE FROM objects WHERE kind = 'handoff' AND id = ?", (part,))
                db.new_epochs[db.tenant, part] = None
            return bool(parts)

        return bool(await self._write_with_ledger(delete_conversation, cleaned))

    async def load_messages(self, session_id: str) -> list[Message]:
        sql = "SELECT m.body FROM sessions s JOIN messages m ON m.session = s.n WHERE s.id = ?"

        def select_bodies(db: PostgresConnection) -> list[bytes]:
            rows = db.execute(f"{sql} ORDER BY m.seq", (replace_invalid(session_id),))
            return [body for (body,) in rows]

        return codec.decode_messages(await self._database.read(select_bodies))

    async def stream_messages(
        self, session_id: str, *, after: int = -1
    ) -> AsyncIterator[StoredMessage]:
        while page := await self.load_window(session_id, after=after, limit=PAGE_SIZE, last=False):
            for stored in page:
                yield stored
            after = page[-1].seq

    async def load_window(
        self, session_id: str, *, after: int = -1, before: int = _LAST_SEQ, limit: int, last: bool
    ) -> list[StoredMessage]:
        where = f"WHERE s.id = ? AND m.seq > ? AND m.seq < ? ORDER BY m.seq {'DESC' * last} LIMIT ?"
        bounds = (max(after, -1), min(before, _LAST_SEQ))
        values = (replace_invalid(session_id), *bounds, limit)
        rows = await self._database.read(
            lambda db: db.execute(f"{_PAGE} {where}", values).fetchall()
        )
        found = [StoredMessage(seq, at, codec.decode_message(body, seq)) for seq, at, body in rows]
        return found[::-1] if last else found

    def _write(
        self,
        db: PostgresConnection,
        change: _Change,
        now: float,
        bodies: Sequence[bytes] = (),
    ) -> int:
        """The place of the first message."""
        return self._send(db, change, now, bodies)()

    def _send(
        self,
        db: PostgresConnection,
        change: _Change,
        now: float,
        bodies: Sequence[bytes] = (),
    ) -> Callable[[], int]:
        """Send one statement that finds the session, checks that nobody else runs it, adds the
        messages and sets the state; what is returned reads the place of the first message."""
        id, process = change.session_id, self._database.process
        me = process.acquire() if change.state == "running" else process.name
        session = db.tenant, id
        held = db.find_epoch(session)
        rows = change.rows
        end = (change.state, change.taint, change.begins)
        columns: list[Any]
        if len(rows) == 1:
            (row,), (body,) = rows, bodies
            sql, columns = _WRITE_ONE, [row.role, row.kind, now, body]
        else:
            sql = _WRITE
            columns = [[m.role for m in rows], [m.kind for m in rows], now, list(bodies)]
        cursor = db.db.execute(sql, (*session, me, held, *columns, *end))

        def read_place() -> int:
            found = cursor.fetchone()
            assert found is not None
            code, first, epoch = found
            if code:
                raise _explain_refusal(code, id)
            if epoch is None or change.state == "running" or held is not None:
                db.new_epochs[session] = epoch
            return int(first)

        return read_place

    async def _write_with_ledger(
        self, run: Callable[[PostgresConnection], Any], session_id: str
    ) -> Any:
        """In one transaction with the ledger entries that are waiting."""
        both, entries = self._ledger.take_pending(run)
        try:
            return await self._database.writer.submit(both)
        except Exception as error:
            self._ledger.restore_pending(entries)
            if isinstance(error, StoreError) and error.code in ("fenced", "in_use", "missing"):
                self.fenced_writes += error.code == "fenced"
                self._database.forget_epoch(replace_invalid(session_id))
            elif self._database.holds_epoch(replace_invalid(session_id)):
                self._release_later(replace_invalid(session_id))
            raise

    def _release_later(self, session_id: str) -> None:
        """Give the session up as soon as it can be written again: otherwise no other node could
        run it as long as this one lives."""
        session = CURRENT_TENANT.get(), session_id
        if session not in self._left:
            self._left.add(session)
            releasing = asyncio.create_task(self._release_left(session))
            self._releasing.add(releasing)
            releasing.add_done_callback(self._releasing.discard)

    async def _release_left(self, session: SessionKey) -> None:
        now, change = self._clock(), _Change(session[1], state="interrupted")

        def release_session(db: PostgresConnection) -> None:
            if session in self._left:  # no other turn of it has begun here since
                self._write(db, change, now)

        while session in self._left:
            await asyncio.sleep(_RETRY_SECONDS)
            try:
                await self._database.writer.submit(release_session)
            except StoreError as error:
                if error.code not in ("fenced", "in_use", "missing", "closed"):
                    log.warning("session %s is not released yet: %s", session[1], error)
                    continue
            self._left.discard(session)


def _explain_refusal(code: str, session_id: str) -> StoreError:
    match code:
        case "missing":
            return errors.session_missing_error(session_id)
        case "in_use":
            return errors.session_in_use_error(session_id)
        case _:
            return fenced_error(session_id)


def _insert_session(db: PostgresConnection, meta: SessionMeta, now: float) -> None:
    found = db.execute(
        "INSERT INTO sessions (id, source, key, cwd, title, model, parent, created, updated, taint)"
        " VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING RETURNING n",
        codec.encode_session(meta, now),
    ).get
    if found is None:
        raise errors.session_exists_error(meta.id)
    if meta.system:
        db.execute("INSERT INTO systems (session, text) VALUES (?, ?)", (found, meta.system))

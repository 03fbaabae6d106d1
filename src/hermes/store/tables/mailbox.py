"""The mailbox of messengers: messages and replies, conversations and chats, paired people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import structs

from hermes.core.store import (
    Conversation,
    InboxEntry,
    InboxState,
    MailboxChange,
    MailboxCounts,
    OutboxEntry,
    Pairing,
    Store,
)
from hermes.store.codec import LAST_CHARACTER
from hermes.store.tables.connection import SqlConnection, SqlDatabase
from hermes.store.tables.mailbox_rows import (
    CONVERSATION_COLUMNS,
    OUTBOX_COLUMNS,
    apply_change,
    put_conversation,
    put_reply,
    put_row,
)

_INBOX_COLUMNS = "platform, chat, id, key, body, n, state, received, session"


class SqlMailbox:
    """Whatever was written is on disk when the call returns."""

    def __init__(self, database: SqlDatabase, clock: Callable[[], float]) -> None:
        self._read = database.read
        self._write = database.writer.submit
        self._clock = clock
        self.revision = 0
        """Grows with every change to conversations that no turn makes."""

    async def add_message(self, entry: InboxEntry) -> int:
        """The number of the stored message; 0, with nothing changed, when it is known already."""
        now = self._clock()
        values = (entry.platform, entry.chat, entry.id, entry.key, entry.body, entry.state, now)

        def insert_message(db: SqlConnection) -> int:
            found = db.execute(_ADD_MESSAGE, values).fetchall()
            return int(found[0][0]) if found else 0

        return await self._write(insert_message)

    async def find_waiting(self, platform: str, chat: str, id: str) -> InboxEntry | None:
        """A message that still waits."""
        where = "platform = ? AND chat = ? AND id = ? AND state = 'waiting'"
        sql = f"SELECT {_INBOX_COLUMNS} FROM inbox WHERE {where}"
        rows: Any = await self._read(lambda db: db.execute(sql, (platform, chat, id)).fetchall())
        return InboxEntry(*rows[0]) if rows else None

    async def replace_waiting(self, platform: str, chat: str, id: str, body: bytes) -> int:
        """Replace the content of a message that still waits; its number, or 0."""

        def update_body(db: SqlConnection) -> int:
            found: Any = db.execute(
                "UPDATE inbox SET body = ? WHERE platform = ? AND chat = ? AND id = ?"
                " AND state = 'waiting' RETURNING n",
                (body, platform, chat, id),
            ).fetchall()
            return int(found[0][0]) if found else 0

        return await self._write(update_body)

    async def set_state(self, numbers: Sequence[int], state: InboxState) -> None:
        if not numbers:
            return
        rows = [(state, n) for n in numbers]
        sql = "UPDATE inbox SET state = ? WHERE n = ?"
        await self._write(lambda db: _do_nothing(db.executemany(sql, rows)))

    async def apply(self, change: MailboxChange) -> None:
        await self._write(lambda db: apply_change(db, change))
        self.revision += change.conversation is not None

    async def put_reply(self, reply: OutboxEntry) -> None:
        await self._write(lambda db: put_reply(db, reply))

    async def list_open_messages(self) -> list[InboxEntry]:
        """All that are not done, the oldest first."""
        sql = f"SELECT {_INBOX_COLUMNS} FROM inbox WHERE state <> 'done' ORDER BY n"
        return await self._read(lambda db: [InboxEntry(*row) for row in db.execute(sql)])

    async def list_open_replies(self) -> list[OutboxEntry]:
        """All that are neither delivered nor given up, in order."""
        where = "state IN ('pending', 'attempting')"
        sql = f"SELECT {OUTBOX_COLUMNS} FROM outbox WHERE {where} ORDER BY n"
        return await self._read(lambda db: [_decode_reply(row) for row in db.execute(sql)])

    async def find_last_number(self) -> int:
        """The highest number of a reply so far."""
        sql = "SELECT coalesce(max(n), 0) FROM outbox"
        return await self._read(lambda db: int(db.execute(sql).get))

    async def count_open(self) -> MailboxCounts:
        def count_states(db: SqlConnection) -> MailboxCounts:
            rows: Any = db.execute(
                "SELECT state, count(*) FROM inbox WHERE state <> 'done' GROUP BY state"
                " UNION ALL SELECT state, count(*) FROM outbox WHERE state <> 'delivered'"
                " GROUP BY state"
            )
            return MailboxCounts(**dict(rows))

        return await self._read(count_states)

    async def forget_before(self, time: float) -> None:
        """Delete finished messages and replies that are older."""

        def delete_old(db: SqlConnection) -> None:
            db.execute("DELETE FROM inbox WHERE state = 'done' AND received < ?", (time,))
            db.execute("DELETE FROM chats WHERE dead = 0 AND until < ?", (time,))
            sql = "DELETE FROM outbox WHERE state IN ('delivered', 'failed') AND created < ?"
            db.execute(sql, (time,))

        await self._write(delete_old)

    async def get_conversation(self, key: str) -> Conversation:
        sql = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE key = ?"

        def select_conversation(db: SqlConnection) -> Conversation:
            row = db.execute(sql, (key,)).fetchone()
            return _decode_conversation(row) if row else Conversation(key)

        return await self._read(select_conversation)

    async def put_conversation(self, conversation: Conversation) -> None:
        await self._write(lambda db: put_conversation(db, conversation))
        self.revision += 1

    async def suspend_used_since(self, time: float) -> None:
        sql = "UPDATE conversations SET suspended = 1 WHERE used >= ? AND session <> ''"
        await self._write(lambda db: _do_nothing(db.execute(sql, (time,))))
        self.revision += 1

    async def move_chat(self, platform: str, old: str, new: str, keys: dict[str, str]) -> None:
        """Follow a chat whose id has changed. `keys`: the keys of its conversations, old to new."""

        def rename_chat(db: SqlConnection) -> None:
            for table, id in (("inbox", "id"), ("chats", "platform")):
                theirs = f"SELECT {id} FROM {table} WHERE platform = ? AND chat = ?"
                sql = f"DELETE FROM {table} WHERE platform = ? AND chat = ? AND {id} IN ({theirs})"
                db.execute(sql, (platform, new, platform, old))
            for table in ("inbox", "outbox", "chats"):
                sql = f"UPDATE {table} SET chat = ? WHERE platform = ? AND chat = ?"
                db.execute(sql, (new, platform, old))
            for before, after in keys.items():
                theirs = "EXISTS (SELECT 1 FROM conversations WHERE key = ?)"
                sql = f"DELETE FROM conversations WHERE key = ? AND {theirs}"
                db.execute(sql, (after, before))
                for table in ("inbox", "conversations", "sessions"):
                    sql = f"UPDATE {table} SET key = ? WHERE key = ?"
                    db.execute(sql, (after, before))

        await self._write(rename_chat)
        self.revision += 1

    async def list_keys(self, prefix: str) -> list[str]:
        """The keys of the conversations that begin with this."""
        sql = "SELECT key FROM conversations WHERE key >= ? AND key < ?"
        values = (prefix, prefix + LAST_CHARACTER)
        return await self._read(lambda db: [row[0] for row in db.execute(sql, values)])

    async def list_blocked_chats(self) -> list[tuple[str, str, bool, float]]:
        """Platform, chat, whether it is gone, and until when nothing may be sent to it."""
        sql = "SELECT platform, chat, dead, until FROM chats"
        return await self._read(
            lambda db: [(p, c, bool(dead), until) for p, c, dead, until in db.execute(sql)]
        )

    async def block_chat(self, platform: str, chat: str, *, dead: bool, until: float) -> None:
        values = (platform, chat, int(dead), until)
        columns = "platform, chat, dead, until"
        await self._write(lambda db: put_row(db, "chats", columns, values, keys=2))

    async def unblock_chat(self, platform: str, chat: str) -> None:
        sql = "DELETE FROM chats WHERE platform = ? AND chat = ?"
        await self._write(lambda db: _do_nothing(db.execute(sql, (platform, chat))))


_ADD_MESSAGE = (
    "INSERT INTO inbox (platform, chat, id, key, body, state, received) VALUES (?,?,?,?,?,?,?)"
    " ON CONFLICT DO NOTHING RETURNING n"
)


def _do_nothing(_: object) -> None:
    """Drops the cursor, which must not leave its thread."""


def _decode_reply(row: Any) -> OutboxEntry:
    values = list(row)
    values[5] = bool(values[5])
    return OutboxEntry(*values)


def _decode_conversation(row: Any) -> Conversation:
    values = list(row)
    values[2] = bool(values[2])
    return Conversation(*values)


_PAIRING_COLUMNS = 'platform, "user", name, chat, created, approved, code'


class SqlPairings:
    """Read by the running gateway and changed by `hermes pairing` in another process."""

    def __init__(self, database: SqlDatabase, clock: Callable[[], float]) -> None:
        self._read = database.read
        self._write = database.writer.submit
        self._clock = clock

    async def is_paired(self, platform: str, user: str) -> bool:
        sql = 'SELECT 1 FROM pairings WHERE platform = ? AND "user" = ? AND approved = 1'
        return await self._read(lambda db: db.execute(sql, (platform, user)).fetchone() is not None)

    async def list_all(self, platform: str = "") -> list[Pairing]:
        """The oldest first."""
        where, values = ("WHERE platform = ?", [platform]) if platform else ("", [])
        sql = f"SELECT {_PAIRING_COLUMNS} FROM pairings {where} ORDER BY created"

        def select_pairings(db: SqlConnection) -> list[Pairing]:
            rows: Any = db.execute(sql, values)
            return [_decode_pairing(*row) for row in rows]

        return await self._read(select_pairings)

    async def put(self, pairing: Pairing) -> None:
        values = structs.astuple(pairing)
        await self._write(lambda db: put_row(db, "pairings", _PAIRING_COLUMNS, values, keys=2))

    async def remove(self, platform: str, user: str) -> bool:
        def delete_pairing(db: SqlConnection) -> bool:
            db.execute('DELETE FROM pairings WHERE platform = ? AND "user" = ?', (platform, user))
            return bool(db.changes())

        return await self._write(delete_pairing)

    async def count_failures(self, platform: str) -> tuple[int, float]:
        """Wrong codes in a row, and the time of the last one."""
        sql = "SELECT failures, failed FROM pairing_failures WHERE platform = ?"
        return await self._read(lambda db: db.execute(sql, (platform,)).fetchone() or (0, 0.0))

    async def set_failures(self, platform: str, failures: int) -> None:
        values = (platform, failures, self._clock())
        columns = "platform, failures, failed"
        await self._write(lambda db: put_row(db, "pairing_failures", columns, values))


class MessengerStore(Store, Protocol):
    """A store that messengers can use."""

    @property
    def mailbox(self) -> SqlMailbox: ...

    @property
    def pairings(self) -> SqlPairings: ...


def _decode_pairing(*values: Any) -> Pairing:
    platform, user, name, chat, created, approved, code = values
    return Pairing(platform, user, name, chat, created, bool(approved), code)

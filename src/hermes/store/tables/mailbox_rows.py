"""Writes rows of the mailbox inside a transaction that may belong to a transcript."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from msgspec import structs

from hermes.core.store import Conversation, MailboxChange, OutboxEntry
from hermes.store.codec import Column
from hermes.store.tables.connection import SqlConnection

OUTBOX_COLUMNS = (
    "n, platform, chat, body, state, draft, inbox, created, due, tries, error, progress"
)
CONVERSATION_COLUMNS = "key, session, suspended, strikes, used, settings"


def apply_change(db: SqlConnection, change: MailboxChange) -> None:
    """Applying the same change again changes nothing."""
    for n in change.running:
        sql = "UPDATE inbox SET state = 'running', session = ? WHERE n = ? AND state <> 'done'"
        db.execute(sql, (change.session, n))
    for n in change.done:
        db.execute("UPDATE inbox SET state = 'done' WHERE n = ?", (n,))
    for reply in change.replies:
        put_reply(db, reply)
    if change.conversation is not None:
        put_conversation(db, change.conversation)
    if change.finished:
        sql = "UPDATE conversations SET strikes = 0, used = ? WHERE key = ?"
        db.execute(sql, (change.ended, change.finished))
    if (run := change.run) is not None:
        sql = "UPDATE runs SET delivery = ? WHERE job = ? AND due = ? AND delivery = 'pending'"
        db.execute(sql, (run.state, run.job, run.due))


def put_reply(db: SqlConnection, reply: OutboxEntry) -> None:
    put_row(db, "outbox", OUTBOX_COLUMNS, structs.astuple(reply))


def put_conversation(db: SqlConnection, conversation: Conversation) -> None:
    put_row(db, "conversations", CONVERSATION_COLUMNS, structs.astuple(conversation))


def put_row(
    db: SqlConnection, table: str, columns: str, values: Sequence[Column], keys: int = 1
) -> None:
    """Add a row, or replace the one with the same key: the first `keys` columns."""
    db.execute(_write_upsert(table, columns, keys), values)


@cache
def _write_upsert(table: str, columns: str, keys: int) -> str:
    names = columns.split(", ")
    marks = ", ".join("?" * len(names))
    rest = ", ".join(f"{name} = excluded.{name}" for name in names[keys:])
    conflict = f"ON CONFLICT ({', '.join(names[:keys])}) DO UPDATE SET {rest}"
    return f"INSERT INTO {table} ({columns}) VALUES ({marks}) {conflict}"

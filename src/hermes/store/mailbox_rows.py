"""Writes rows of the mailbox inside a transaction that may belong to a transcript."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from hermes.core.store import Conversation, MailboxChange, OutboxEntry

if TYPE_CHECKING:
    from apsw import Connection

OUTBOX_COLUMNS = (
    "n, platform, chat, body, state, draft, inbox, created, due, tries, error, progress"
)
CONVERSATION_COLUMNS = "key, session, suspended, strikes, used, settings"


def apply_change(db: Connection, change: MailboxChange) -> None:
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
        db.execute("UPDATE conversations SET strikes = 0 WHERE key = ?", (change.finished,))
    if (run := change.run) is not None:
        sql = "UPDATE runs SET delivery = ? WHERE job = ? AND due = ? AND delivery = 'pending'"
        db.execute(sql, (run.state, run.job, run.due))


def put_reply(db: Connection, reply: OutboxEntry) -> None:
    marks = ", ".join("?" * len(reply.__struct_fields__))
    sql = f"INSERT OR REPLACE INTO outbox ({OUTBOX_COLUMNS}) VALUES ({marks})"
    db.execute(sql, structs.astuple(reply))


def put_conversation(db: Connection, conversation: Conversation) -> None:
    marks = ", ".join("?" * len(conversation.__struct_fields__))
    sql = f"INSERT OR REPLACE INTO conversations ({CONVERSATION_COLUMNS}) VALUES ({marks})"
    db.execute(sql, structs.astuple(conversation))

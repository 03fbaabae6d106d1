"""The full-text index: messages are added in batches, sessions removed, damage repaired."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from hermes.store.connection import make_busy_handler
from hermes.store.database import Database
from hermes.store.db_thread import roll_back
from hermes.store.migrations import SEARCH_TABLE
from hermes.store.search_terms import read_text, split_unspaced_scripts

if TYPE_CHECKING:
    from apsw import Connection

log = logging.getLogger(__name__)

BATCH_SIZE = 256
"""Messages indexed at a time: one by one, indexing costs more than storing."""
CLOSING_BATCHES = 4
"""Indexed at most when closing; the next search indexes the rest."""
_TOKENIZER = ("unicode61", ["remove_diacritics", "2"])
"""That of the index."""
_SHADOW_TABLES = ("data", "idx", "content", "docsize", "config")


class IndexDamaged(Exception):
    """The index cannot be used; the messages themselves are intact."""


class IndexBacklog:
    """Counts the messages this process has not indexed yet, on the writer's thread alone."""

    def __init__(self) -> None:
        self.count = 0

    def index_pending(self, db: Connection, closing: bool) -> None:
        """Put off until it is worth a transaction; never waits for a lock."""
        if self.count < (1 if closing else BATCH_SIZE):
            return
        db.set_busy_handler(None)
        try:
            for _ in range(CLOSING_BATCHES if closing else 1):
                self.count = self.count - BATCH_SIZE if index_batch(db) else 0
                if self.count <= 0:
                    break
        except IndexDamaged as error:
            self.count = 0
            log.warning("the search index is damaged; the next search rebuilds it: %s", error)
        finally:
            db.set_busy_handler(make_busy_handler())


def has_pending(db: Connection) -> bool:
    """Whether the index lacks any messages."""
    return db.execute("SELECT 1 FROM pending LIMIT 1").get is not None


def index_batch(db: Connection) -> bool:
    """Index the next batch in a transaction; whether there may be more."""
    db.execute("BEGIN IMMEDIATE")
    try:
        has_more = _add_batch(db)
        db.execute("COMMIT")
    finally:
        roll_back(db)
    return has_more


def _add_batch(db: Connection) -> bool:
    import apsw

    room = BATCH_SIZE
    todo: list[tuple[Any, ...]] = db.execute(
        "SELECT session, first FROM pending LIMIT ?", (BATCH_SIZE,)
    ).fetchall()
    for session, first in todo:
        found: list[tuple[Any, ...]] = db.execute(
            "SELECT id, body FROM messages WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            (first, session + 1 << 24, room),
        ).fetchall()
        texts = [(id, read_text(body).replace("\0", " ")) for id, body in found]
        rows = [(id, split_unspaced_scripts(text)) for id, text in texts]
        try:
            db.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", rows)
            _add_words(db, rows)
        except (apsw.CorruptError, apsw.SQLError, apsw.ConstraintError) as error:
            raise IndexDamaged(str(error)) from error
        if len(found) == room:
            sql = "UPDATE pending SET first = ? WHERE session = ?"
            db.execute(sql, (found[-1][0] + 1, session))
            return True
        db.execute("DELETE FROM pending WHERE session = ?", (session,))
        room -= len(found)
    return len(todo) == BATCH_SIZE


def _add_words(db: Connection, rows: list[tuple[Any, str]]) -> None:
    """Add the words of these texts to the list of all."""
    import apsw

    tokenize = db.fts5_tokenizer(*_TOKENIZER)
    how = {"include_offsets": False, "include_colocated": False}
    flag = apsw.FTS5_TOKENIZE_DOCUMENT
    words = {word for _, text in rows for word in tokenize(text.encode(), flag, None, **how)}
    sql = "INSERT OR IGNORE INTO search_words VALUES (?)"
    db.executemany(sql, [(word,) for word in sorted(words)])


def remove_session(db: Connection, session: int) -> None:
    """To be called before the session itself is deleted."""
    import apsw

    sql = "DELETE FROM search WHERE rowid >= ? AND rowid < ?"
    try:
        db.execute(sql, (session << 24, session + 1 << 24))
    except (apsw.CorruptError, apsw.SQLError, apsw.ConstraintError) as error:
        raise IndexDamaged(str(error)) from error


async def repair_index(database: Database) -> None:
    """Replace a damaged index; the next search fills the new one."""
    await database.writer.submit(_replace_index, mode="alone")
    database.notices.append("The search index was damaged and has been rebuilt; nothing was lost.")


def _replace_index(db: Connection) -> None:
    """Drop the index, whatever state it is in, and mark every message as pending."""
    import apsw

    db.execute("BEGIN IMMEDIATE")
    try:
        try:
            db.execute("DROP TABLE IF EXISTS search")
        except apsw.Error:
            # Too broken to drop: once cut out of the schema, its parts are plain tables.
            db.execute("PRAGMA writable_schema = ON")
            db.execute("DELETE FROM sqlite_schema WHERE name = 'search'")
            db.execute("PRAGMA writable_schema = RESET").fetchall()
        for part in _SHADOW_TABLES:
            db.execute(f"DROP TABLE IF EXISTS search_{part}")
        db.execute(SEARCH_TABLE)
        db.execute("DELETE FROM search_words")
        db.execute("INSERT OR REPLACE INTO pending SELECT n, n << 24 FROM sessions WHERE count > 0")
        db.execute("COMMIT")
    finally:
        roll_back(db)

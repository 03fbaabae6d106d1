"""The schema, as the list of steps that lead to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apsw import Connection

APPLICATION = 0x48524D53
"""`PRAGMA application_id`: tells our files from other programs' (the bytes "HRMS")."""

SEARCH = """
CREATE VIRTUAL TABLE search USING fts5(
    text, content='', contentless_delete=1, tokenize="unicode61 remove_diacritics 2"
)"""


def _first(db: Connection) -> None:
    """`sessions` has what every append changes, so its rows stay small: long and constant texts
    live elsewhere, and nothing indexes `updated`. `indexed` is the last message in `search`."""
    db.execute("""
    CREATE TABLE sessions (
        n INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        source TEXT NOT NULL,
        key TEXT NOT NULL,
        cwd TEXT NOT NULL,
        title TEXT NOT NULL,
        model TEXT NOT NULL,
        parent TEXT NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        state TEXT NOT NULL DEFAULT 'idle',
        owner TEXT NOT NULL DEFAULT '',
        count INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX sessions_cwd ON sessions (cwd);
    CREATE INDEX sessions_key ON sessions (source, key) WHERE key <> '';
    CREATE TABLE systems (
        session INTEGER PRIMARY KEY REFERENCES sessions (n) ON DELETE CASCADE,
        text TEXT NOT NULL
    );
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY,
        session INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        role TEXT NOT NULL,
        kind TEXT NOT NULL,
        created REAL NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (session, seq)
    );
    CREATE TRIGGER messages_stay BEFORE UPDATE ON messages BEGIN
        SELECT raise(ABORT, 'messages are append-only');
    END;
    CREATE TABLE progress (indexed INTEGER NOT NULL);
    INSERT INTO progress VALUES (0);
    """).fetchall()
    db.execute(SEARCH)


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (_first,)
"""Never edited once released, only added to: `user_version` counts those applied."""
VERSION = len(MIGRATIONS)


def version(db: Connection) -> int:
    return int(db.pragma("user_version"))


def migrate(db: Connection) -> None:
    """Each step in a transaction of its own; what another process did meanwhile is skipped."""
    while version(db) < VERSION:
        db.execute("BEGIN IMMEDIATE")
        try:
            at = version(db)
            if at < VERSION:
                MIGRATIONS[at](db)
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                db.execute(f"PRAGMA user_version = {at + 1}")
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")

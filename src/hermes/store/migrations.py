"""The schema, as the list of steps that build it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apsw import Connection

APPLICATION_ID = 0x48524D53
"""`PRAGMA application_id`, the bytes "HRMS": distinguishes our files from other programs'."""

SEARCH_TABLE = """
CREATE VIRTUAL TABLE search USING fts5(
    text, content='', contentless_delete=1, tokenize="unicode61 remove_diacritics 2"
)"""


def _create_sessions(db: Connection) -> None:
    """An append touches two pages: the message's, and the session's row. That row is short because
    long constant texts are stored elsewhere, and no index covers what every append changes.

    A message's id combines its session's number and its position there, so that the messages of
    a session lie together, in order, without an index. `pending` holds the first message of a
    session that is not yet in `search`.
    """
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
        count INTEGER NOT NULL DEFAULT 0 CHECK (count < 1 << 24)
    );
    CREATE INDEX sessions_cwd ON sessions (cwd);
    CREATE INDEX sessions_key ON sessions (source, key) WHERE key <> '';
    CREATE TABLE systems (
        session INTEGER PRIMARY KEY REFERENCES sessions (n) ON DELETE CASCADE,
        text TEXT NOT NULL
    );
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY,
        session INTEGER AS (id >> 24),
        seq INTEGER AS (id & 0xffffff),
        role TEXT NOT NULL,
        kind TEXT NOT NULL,
        created REAL NOT NULL,
        body BLOB NOT NULL
    );
    CREATE TABLE pending (
        session INTEGER PRIMARY KEY REFERENCES sessions (n) ON DELETE CASCADE,
        first INTEGER NOT NULL
    );
    CREATE TRIGGER messages_added AFTER INSERT ON messages BEGIN
        UPDATE sessions SET count = count + 1, updated = new.created WHERE n = new.id >> 24;
        INSERT OR IGNORE INTO pending VALUES (new.id >> 24, new.id);
    END;
    CREATE TRIGGER messages_stay BEFORE UPDATE ON messages BEGIN
        SELECT raise(ABORT, 'messages are append-only');
    END;
    CREATE TRIGGER sessions_gone AFTER DELETE ON sessions BEGIN
        DELETE FROM messages WHERE id >= old.n << 24 AND id < (old.n + 1) << 24;
    END;
    """).fetchall()
    db.execute(SEARCH_TABLE)


def _add_taint(db: Connection) -> None:
    """It is unknown what older sessions have read: both bits are set for them."""
    db.execute("ALTER TABLE sessions ADD COLUMN taint INTEGER NOT NULL DEFAULT 3")


def _add_next(db: Connection) -> None:
    """The session in which a compressed one continues."""
    db.execute("ALTER TABLE sessions ADD COLUMN next TEXT NOT NULL DEFAULT ''")
    db.execute("CREATE INDEX sessions_next ON sessions (next) WHERE next <> ''")


def _create_ledger(db: Connection) -> None:
    """A call's id is the time it began, in nanoseconds: calls made together lie together. `spent`
    has the sums per day, session, user and job, so that checking a cap reads one row."""
    db.execute("""
    CREATE TABLE ledger (
        id INTEGER PRIMARY KEY,
        day TEXT NOT NULL,
        session TEXT NOT NULL,
        user TEXT NOT NULL,
        job TEXT NOT NULL,
        purpose TEXT NOT NULL,
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        input INTEGER NOT NULL,
        output INTEGER NOT NULL,
        cache_read INTEGER NOT NULL,
        cache_write INTEGER NOT NULL,
        reasoning INTEGER NOT NULL,
        cost REAL,
        estimated INTEGER NOT NULL,
        seconds REAL NOT NULL,
        outcome TEXT NOT NULL,
        tools TEXT NOT NULL
    );
    CREATE TABLE reservations (
        id INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        entry BLOB NOT NULL
    );
    CREATE TABLE spent (
        scope TEXT PRIMARY KEY,
        usd REAL NOT NULL,
        tokens INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE warned (
        scope TEXT NOT NULL,
        cap TEXT NOT NULL,
        level REAL NOT NULL,
        percent INTEGER NOT NULL,
        PRIMARY KEY (scope, cap, level, percent)
    ) WITHOUT ROWID;
    """).fetchall()


def _create_objects(db: Connection) -> None:
    """Everything durable that is not a conversation; an object's events are deleted with it."""
    db.execute("""
    CREATE TABLE objects (
        kind TEXT NOT NULL,
        id TEXT NOT NULL,
        owner TEXT NOT NULL,
        created REAL NOT NULL,
        used REAL NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (kind, id)
    ) WITHOUT ROWID;
    CREATE INDEX objects_used ON objects (kind, owner, used);
    CREATE TABLE events (
        stream TEXT NOT NULL,
        n INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (stream, n)
    ) WITHOUT ROWID;
    CREATE TRIGGER objects_gone AFTER DELETE ON objects BEGIN
        DELETE FROM events WHERE stream = old.id;
    END;
    """).fetchall()


def _add_order(db: Connection) -> None:
    """`used` numbers the sessions in the order of their last turns, whatever the clock said."""
    db.execute("ALTER TABLE sessions ADD COLUMN used INTEGER NOT NULL DEFAULT 0")
    db.execute(
        "UPDATE sessions SET used = o.position FROM"
        " (SELECT n, row_number() OVER (ORDER BY updated, n) AS position FROM sessions) AS o"
        " WHERE sessions.n = o.n"
    )
    db.execute("CREATE INDEX sessions_used ON sessions (used)")


def _create_schedule(db: Connection) -> None:
    """A run's key is its job and its due second: inserting it is the claim."""
    db.execute("""
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY,
        created REAL NOT NULL,
        wake INTEGER,
        body BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX jobs_wake ON jobs (wake) WHERE wake IS NOT NULL;
    CREATE TABLE runs (
        job TEXT NOT NULL,
        due INTEGER NOT NULL,
        state TEXT NOT NULL,
        delivery TEXT NOT NULL,
        late INTEGER NOT NULL,
        session TEXT NOT NULL,
        began REAL NOT NULL,
        ended REAL NOT NULL,
        error TEXT NOT NULL,
        text TEXT NOT NULL,
        output TEXT NOT NULL,
        owner TEXT NOT NULL,
        PRIMARY KEY (job, due)
    ) WITHOUT ROWID;
    CREATE INDEX runs_unwritten ON runs (due)
        WHERE output = '' AND state NOT IN ('skipped', 'missed');
    """).fetchall()


def _create_mailbox(db: Connection) -> None:
    """Messengers: a message is stored before anything acts on it, a reply before it is sent.
    `tag` only tells rows from those of other tables in a damaged file."""
    db.execute("""
    CREATE TABLE inbox (
        n INTEGER PRIMARY KEY,
        platform TEXT NOT NULL,
        chat TEXT NOT NULL,
        id TEXT NOT NULL,
        key TEXT NOT NULL,
        state TEXT NOT NULL,
        received REAL NOT NULL,
        session TEXT NOT NULL DEFAULT '',
        body BLOB NOT NULL,
        UNIQUE (platform, chat, id)
    );
    CREATE INDEX inbox_open ON inbox (state) WHERE state <> 'done';
    CREATE TABLE outbox (
        n INTEGER PRIMARY KEY,
        platform TEXT NOT NULL,
        chat TEXT NOT NULL,
        state TEXT NOT NULL,
        draft INTEGER NOT NULL,
        inbox INTEGER NOT NULL,
        created REAL NOT NULL,
        due REAL NOT NULL,
        tries INTEGER NOT NULL,
        error TEXT NOT NULL,
        body BLOB NOT NULL,
        progress BLOB NOT NULL
    );
    CREATE INDEX outbox_open ON outbox (state) WHERE state <> 'delivered';
    CREATE TABLE conversations (
        key TEXT PRIMARY KEY,
        session TEXT NOT NULL,
        suspended INTEGER NOT NULL,
        strikes INTEGER NOT NULL,
        used REAL NOT NULL,
        settings BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE chats (
        platform TEXT NOT NULL,
        chat TEXT NOT NULL,
        dead INTEGER NOT NULL,
        until REAL NOT NULL,
        tag TEXT NOT NULL DEFAULT 'chat',
        PRIMARY KEY (platform, chat)
    ) WITHOUT ROWID;
    """).fetchall()


def _create_pairings(db: Connection) -> None:
    """People let in by a code, those who wait, and wrong codes in a row."""
    db.execute("""
    CREATE TABLE pairings (
        platform TEXT NOT NULL,
        user TEXT NOT NULL,
        name TEXT NOT NULL,
        chat TEXT NOT NULL,
        created REAL NOT NULL,
        approved INTEGER NOT NULL,
        code TEXT NOT NULL,
        PRIMARY KEY (platform, user)
    ) WITHOUT ROWID;
    CREATE TABLE pairing_failures (
        platform TEXT PRIMARY KEY,
        failures INTEGER NOT NULL,
        failed REAL NOT NULL,
        tag TEXT NOT NULL DEFAULT 'failures'
    ) WITHOUT ROWID;
    """).fetchall()


def _create_facts(db: Connection) -> None:
    """Memory. A fact's text never changes; ids are never used again. The index follows the table by
    triggers, so that whatever copies rows fills it too."""
    db.execute("""
    CREATE TABLE facts (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        scope TEXT NOT NULL,
        target TEXT NOT NULL,
        text TEXT NOT NULL,
        words TEXT NOT NULL,
        state TEXT NOT NULL,
        created REAL NOT NULL,
        changed REAL NOT NULL,
        used REAL NOT NULL,
        session TEXT NOT NULL,
        user TEXT NOT NULL,
        origin TEXT NOT NULL,
        action TEXT NOT NULL,
        old INTEGER NOT NULL
    );
    CREATE INDEX facts_scope ON facts (scope, used, state);
    CREATE VIRTUAL TABLE facts_search USING fts5(
        words, content='facts', content_rowid='id', tokenize="unicode61 remove_diacritics 2"
    );
    CREATE TRIGGER facts_added AFTER INSERT ON facts BEGIN
        INSERT INTO facts_search (rowid, words) VALUES (new.id, new.words);
    END;
    CREATE TRIGGER facts_gone AFTER DELETE ON facts BEGIN
        INSERT INTO facts_search (facts_search, rowid, words) VALUES ('delete', old.id, old.words);
    END;
    """).fetchall()


def _create_search_words(db: Connection) -> None:
    """Every word of the index once, so that parts of words can be found without reading it all."""
    db.execute("""
    CREATE TABLE search_words (word TEXT PRIMARY KEY) WITHOUT ROWID;
    CREATE VIRTUAL TABLE temp.old_words USING fts5vocab('main', 'search', 'row');
    INSERT OR IGNORE INTO search_words SELECT term FROM temp.old_words;
    DROP TABLE temp.old_words;
    """).fetchall()


def _add_flags(db: Connection) -> None:
    """What a person did with a session in their list."""
    db.execute("ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0")


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (
    _create_sessions,
    _add_taint,
    _add_next,
    _create_ledger,
    _create_objects,
    _add_order,
    _create_schedule,
    _create_mailbox,
    _create_pairings,
    _create_facts,
    _create_search_words,
    _add_flags,
)
"""Never edited once released, only extended: `user_version` counts the applied ones."""
SCHEMA_VERSION = len(MIGRATIONS)


def read_version(db: Connection) -> int:
    return int(db.pragma("user_version"))


def migrate(db: Connection) -> None:
    """Each step in a transaction of its own; steps another process has applied are skipped."""
    while read_version(db) < SCHEMA_VERSION:
        db.execute("BEGIN IMMEDIATE")
        try:
            version = read_version(db)
            if version < SCHEMA_VERSION:
                MIGRATIONS[version](db)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {version + 1}")
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")

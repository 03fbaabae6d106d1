"""Full-text search: indexing in batches, queries of literal words, snippets, and the rebuild."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from hermes.core.errors import StoreError
from hermes.core.store import Hit, SessionMeta
from hermes.core.text import clean
from hermes.store import codec as rows
from hermes.store.migrations import SEARCH

if TYPE_CHECKING:
    from apsw import Connection

BATCH = 256
"""Messages put into the index at a time: one by one, indexing costs more than storing."""
MAX_TERMS = 32
MAX_QUERY = 2000
_SHADOWS = ("data", "idx", "content", "docsize", "config")


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    """Compiled when it is first used: most starts search for nothing."""
    return re.compile(pattern)


_PIECE = r'"([^"]*)"?|([^\s"]+)'
# Scripts written without spaces: the tokenizer would take a whole sentence for one word.
_UNSPACED = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]"
)


class IndexDamaged(Exception):
    """The index cannot be used; the messages themselves are untouched."""


def behind(db: Connection) -> bool:
    """Whether there are messages the index does not have yet."""
    return db.execute("SELECT 1 FROM pending LIMIT 1").get is not None


def advance(db: Connection) -> bool:
    """Index the next batch, in the caller's transaction; whether there may be more."""
    import apsw

    room = BATCH
    todo: list[tuple[Any, ...]] = db.execute(
        "SELECT session, first FROM pending LIMIT ?", (BATCH,)
    ).fetchall()
    for session, first in todo:
        found: list[tuple[Any, ...]] = db.execute(
            "SELECT id, body FROM messages WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            (first, session + 1 << 24, room),
        ).fetchall()
        texts = [(n, _indexable(body)) for n, body in found]
        try:
            db.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", texts)
        except (apsw.CorruptError, apsw.SQLError, apsw.ConstraintError) as error:
            raise IndexDamaged(str(error)) from error
        if len(found) == room:
            db.execute(
                "UPDATE pending SET first = ? WHERE session = ?", (found[-1][0] + 1, session)
            )
            return True
        db.execute("DELETE FROM pending WHERE session = ?", (session,))
        room -= len(found)
    return len(todo) == BATCH


def forget(db: Connection, session: int) -> None:
    """Before a session is deleted."""
    import apsw

    try:
        db.execute(
            "DELETE FROM search WHERE rowid >= ? AND rowid < ?", (session << 24, session + 1 << 24)
        )
    except (apsw.CorruptError, apsw.SQLError, apsw.ConstraintError) as error:
        raise IndexDamaged(str(error)) from error


def rebuild(db: Connection) -> None:
    """Throw the index away, whatever state it is in; `advance` fills the new one."""
    import apsw

    db.execute("BEGIN IMMEDIATE")
    try:
        try:
            db.execute("DROP TABLE IF EXISTS search")
        except apsw.Error:
            # Too broken to be dropped: cut it out of the schema, then its parts are plain tables.
            db.execute("PRAGMA writable_schema = ON")
            db.execute("DELETE FROM sqlite_schema WHERE name = 'search'")
            db.execute("PRAGMA writable_schema = RESET").fetchall()
        for part in _SHADOWS:
            db.execute(f"DROP TABLE IF EXISTS search_{part}")
        db.execute(SEARCH)
        db.execute("INSERT OR REPLACE INTO pending SELECT n, n << 24 FROM sessions WHERE count > 0")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _indexable(body: bytes) -> str:
    return spread(_visible(body).replace("\0", " "))


def _visible(body: bytes) -> str:
    """Nothing, of a message that cannot be read: it must not hide the others."""
    try:
        return rows.visible(rows.decode(body, 0))
    except StoreError:
        return ""


def spread(text: str) -> str:
    """Each character of an unspaced script as a word of its own; phrases then match inside."""
    return text if text.isascii() else _regex(_UNSPACED).sub(r" \g<0> ", text)


def terms(query: str) -> list[str]:
    """The words and quoted phrases of what a person typed."""
    found = []
    for match in _regex(_PIECE).finditer(clean(query[:MAX_QUERY])):
        text = match[1] if match[1] is not None else match[2]
        if any(c.isalnum() for c in text):
            found.append(text)
    return found[:MAX_TERMS]


# Asking for the rank itself would make FTS5 compute it a second time.
_BEST = "SELECT rowid FROM search WHERE search MATCH ? ORDER BY rank LIMIT ?"
_ROWS = (
    f"SELECT m.id, m.seq, m.role, m.body, {rows.COLUMNS} FROM json_each(?) AS best"
    " CROSS JOIN messages m ON m.id = best.value JOIN sessions s ON s.n = m.id >> 24"
)


def query(
    db: Connection, text: str, limit: int, session: Callable[[Sequence[Any]], SessionMeta]
) -> list[Hit]:
    """The best `limit` hits. Ranking happens inside FTS5; only the winners are looked up."""
    import apsw

    wanted = terms(text)
    if not wanted or limit <= 0:
        return []
    match = " ".join('"' + spread(t) + '"' for t in wanted)
    try:
        best: list[Any] = [n for (n,) in db.execute(_BEST, (match, limit))]
    except (apsw.CorruptError, apsw.SQLError, apsw.ConstraintError) as error:
        raise IndexDamaged(str(error)) from error
    found: dict[int, Sequence[Any]] = {n: row for n, *row in db.execute(_ROWS, (str(best),))}
    pattern = _pattern(wanted)
    return [
        Hit(session(row), seq, role, snippet(_visible(body), pattern))
        for seq, role, body, *row in (found[n] for n in best if n in found)
    ]


def _pattern(wanted: list[str]) -> re.Pattern[str]:
    options = []
    for term in wanted:
        words = re.findall(r"\w+", term)
        edge = r"\b" if term.isascii() else ""
        options.append(edge + r"[\W_]+".join(map(re.escape, words)) + edge)
    return re.compile("|".join(options), re.IGNORECASE)


def snippet(text: str, pattern: re.Pattern[str], width: int = 160) -> str:
    """One line around the first hit (a hit found only without its accents: the beginning)."""
    hit = pattern.search(text)
    at = hit.start() if hit else 0
    start = max(0, at - width // 3)
    if start:
        space = text.find(" ", start, at)
        start = space + 1 if space >= 0 else start
    end = start + width
    line = " ".join(text[start:end].split())
    return ("…" if start else "") + line + ("…" if end < len(text) else "")

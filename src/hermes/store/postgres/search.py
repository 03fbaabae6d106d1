"""Search in messages on PostgreSQL: the index, and queries of plain words and quoted phrases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any
from unicodedata import combining, normalize

from hermes.core.store import SearchFilter, SearchHit
from hermes.store import codec
from hermes.store.postgres.connection import PostgresConnection
from hermes.store.postgres.database import TenantDatabase
from hermes.store.search_terms import (
    compile_terms,
    make_snippet,
    parse_terms,
    read_text,
    split_unspaced_scripts,
)

BATCH_SIZE = 256
"""Messages indexed at a time."""
_LONGEST_WORD = 200
_LAST_POSITION = 16_383
_MAX_VARIANTS = 100
"""Words of the index that one word of a query may stand for."""
_LEAST_SUBSTRING = 3


class PostgresSearch:
    """Implements `core.store.MessageSearch`. A search covers every committed message: the index
    catches up first when it has to."""

    def __init__(self, database: TenantDatabase) -> None:
        self._database = database
        self._waiting = 0

    def count_added(self, messages: int) -> None:
        """Index what was added when it is worth a transaction; nobody waits for it."""
        self._waiting += messages
        if self._waiting >= BATCH_SIZE:
            self._waiting = 0
            self._database.writer.submit(_index_batch).add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )

    async def find_messages(
        self, query: str, *, limit: int = 20, within: SearchFilter | None = None
    ) -> list[SearchHit]:
        terms = parse_terms(query)
        if not terms or limit <= 0:
            return []
        while await self._database.read(_has_pending):
            await self._database.writer.submit(_index_batch)
        return await self._database.read(
            lambda db: self._query(db, terms, limit, within or SearchFilter())
        )

    def _query(
        self, db: PostgresConnection, terms: Sequence[str], limit: int, within: SearchFilter
    ) -> list[SearchHit]:
        rows: list[Any] = []
        for expression in _list_expressions(db, terms):
            if rows := _select_best(db, expression, limit, within):
                break
        pattern, is_alive = compile_terms(terms), cache(self._database.process.is_alive)
        hits = []
        for seq, role, created, body, *row in rows:
            snippet = make_snippet(read_text(body), pattern)
            hits.append(SearchHit(codec.decode_session(row, is_alive), seq, role, snippet, created))
        return hits


def list_words(text: str) -> list[str]:
    """The words of a text as the index has them: without case and accents."""
    plain = text.lower()
    if not plain.isascii():
        plain = normalize("NFKD", split_unspaced_scripts(text).lower())
        plain = "".join(c for c in plain if not combining(c))
    return [word[:_LONGEST_WORD] for word in re.findall(r"[^\W_]+", plain)]


def compose_vector(words: Sequence[str]) -> str:
    """The words of a text and their places, as a tsvector is written."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words, 1):
        places.setdefault(word, []).append(place)
    return " ".join(
        f"'{word}':" + ",".join(str(p) for p in found if p <= _LAST_POSITION)
        if found[0] <= _LAST_POSITION
        else f"'{word}'"
        for word, found in places.items()
    )


def compose_query(terms: Sequence[str], *, prefix: bool = False, any_of: bool = False) -> str:
    """The terms as a tsquery is written; the words of a term stand side by side."""
    found = []
    for term in terms:
        if words := [f"'{word}'" for word in list_words(term)]:
            found.append("(" + " <-> ".join(words) + (":*" if prefix else "") + ")")
    return (" | " if any_of else " & ").join(found)


def _has_pending(db: PostgresConnection) -> bool:
    return db.execute("SELECT 1 FROM pending LIMIT 1").get is not None


def _index_batch(db: PostgresConnection) -> None:
    """The row of a session is locked meanwhile, as whoever appends does: nothing that is added now
    can be missed."""
    room = BATCH_SIZE
    sql = "SELECT session FROM pending ORDER BY session LIMIT ?"
    for (session,) in db.execute(sql, (BATCH_SIZE,)).fetchall():
        db.execute("SELECT 1 FROM sessions WHERE n = ? FOR UPDATE", (session,))
        first = db.execute("SELECT first FROM pending WHERE session = ?", (session,)).get
        if first is None:
            continue  # another node was faster
        sql = "SELECT seq, body FROM messages WHERE session = ? AND seq >= ? ORDER BY seq LIMIT ?"
        found = db.execute(sql, (session, first, room)).fetchall()
        texts = [(seq, list_words(read_text(body))) for seq, body in found]
        db.executemany(
            "INSERT INTO search (session, seq, words) VALUES (?, ?, ?::tsvector)"
            " ON CONFLICT DO NOTHING",
            [(session, seq, compose_vector(words)) for seq, words in texts],
        )
        different = sorted({word for _, words in texts for word in words})
        db.execute(
            "INSERT INTO search_words (word) SELECT unnest(?::text[]) ON CONFLICT DO NOTHING",
            (different,),
        )
        if len(found) == room:
            sql = "UPDATE pending SET first = ? WHERE session = ?"
            db.execute(sql, (found[-1][0] + 1, session))
            return
        db.execute("DELETE FROM pending WHERE session = ?", (session,))
        room -= len(found)


def _list_expressions(db: PostgresConnection, terms: Sequence[str]) -> Iterator[str]:
    """What to look for, one after the other until something is found: the words, words that begin
    so, words that contain them."""
    if not (words := compose_query(terms)):
        return
    yield words
    yield compose_query(terms, prefix=True)
    if all(len(term) >= _LEAST_SUBSTRING for term in terms):
        groups = [_find_variants(db, word) for term in terms for word in list_words(term)]
        if groups and all(groups):
            yield " & ".join(f"({' | '.join(group)})" for group in groups)


def _find_variants(db: PostgresConnection, word: str) -> list[str]:
    """The words of the index that contain this one, quoted."""
    sql = "SELECT word FROM search_words WHERE position(? in word) > 0 LIMIT ?"
    return [f"'{found}'" for (found,) in db.execute(sql, (word, _MAX_VARIANTS))]


def _select_best(
    db: PostgresConnection, expression: str, limit: int, within: SearchFilter
) -> list[Any]:
    tests, values = ["f.words @@ ?1::tsquery"], [expression]
    columns = {"s.source": within.source, "s.key": within.key, "m.role": within.role}
    for column, value in columns.items():
        if value is not None:
            values.append(value)
            tests.append(f"{column} = ?{len(values)}")
    if within.since is not None:
        values.append(str(within.since))
        tests.append(f"m.created >= ?{len(values)}::float8")
    best = "" if within.newest else "ts_rank(f.words, ?1::tsquery, 1) DESC, "
    rows = (
        "search f JOIN sessions s ON s.n = f.session"
        " JOIN messages m ON m.session = f.session AND m.seq = f.seq"
    )
    where = " AND ".join(tests)
    if within.per_session is not None:
        where += (
            " AND (f.session, f.seq) IN (SELECT session, seq FROM (SELECT f.session, f.seq,"
            f" row_number() OVER (PARTITION BY f.session ORDER BY {best}m.seq DESC) AS place"
            f" FROM {rows} WHERE {where}) ranked WHERE place <= {int(within.per_session)})"
        )
    sql = (
        f"SELECT m.seq, m.role, m.created, m.body, {codec.SESSION_COLUMNS} FROM {rows}"
        f" WHERE {where} ORDER BY {best}s.n DESC, m.seq DESC LIMIT {int(limit)}"
    )
    return db.execute(sql, values).fetchall()

"""Search in messages: queries of plain words and quoted phrases, ranked hits with snippets."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from hermes.core.store import SearchHit
from hermes.core.text import compile_pattern, replace_invalid
from hermes.store import codec, errors, search_index
from hermes.store.database import Database
from hermes.store.search_index import IndexDamaged, split_unspaced_scripts

if TYPE_CHECKING:
    from apsw import Connection

MAX_TERMS = 32
MAX_QUERY_LENGTH = 2000
_TERM = r'"([^"]*)"?|([^\s"]+)'


class SqliteSearch:
    """Implements `core.store.MessageSearch`. A search covers every committed message: the index
    catches up first when it has to, and the disk can be written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_messages(self, query: str, *, limit: int = 20) -> list[SearchHit]:
        try:
            return await self._query_all(query, limit)
        except IndexDamaged:
            await search_index.repair_index(self._database)
        try:
            return await self._query_all(query, limit)
        except IndexDamaged as error:
            path = self._database.path
            raise errors.error_of_kind("damaged", path, "its search index") from error

    async def _query_all(self, query: str, limit: int) -> list[SearchHit]:
        is_alive = cache(self._database.process.is_alive)

        writable = not self._database.read_only

        def query_once(db: "Connection", *, catch_up: bool = writable) -> list[SearchHit] | None:
            if catch_up and search_index.has_pending(db):
                return None
            return _query_index(db, query, limit, is_alive)

        found = await self._database.read(query_once)
        if found is None:
            while await self._database.writer.submit(search_index.index_batch, mode="alone"):
                pass
            found = await self._database.read(lambda db: query_once(db, catch_up=False))
        return found or []


# Selecting the rank itself would make FTS5 compute it a second time.
_BEST = "SELECT rowid FROM search WHERE search MATCH ? ORDER BY rank LIMIT ?"
_ROWS = (
    f"SELECT m.id, m.seq, m.role, m.body, {codec.SESSION_COLUMNS} FROM json_each(?) AS best"
    " CROSS JOIN messages m ON m.id = best.value JOIN sessions s ON s.n = m.id >> 24"
)


def _query_index(
    db: "Connection", query: str, limit: int, is_alive: Callable[[str], bool]
) -> list[SearchHit]:
    """The best hits. Ranking happens inside FTS5; only the winners are read."""
    import apsw

    terms = parse_terms(query)
    if not terms or limit <= 0:
        return []
    try:
        best: list[Any] = [id for (id,) in db.execute(_BEST, (match_expression(terms), limit))]
    except (apsw.CorruptError, apsw.SQLError, apsw.ConstraintError) as error:
        raise IndexDamaged(str(error)) from error
    found: dict[int, Sequence[Any]] = {id: row for id, *row in db.execute(_ROWS, (str(best),))}
    pattern = compile_terms(terms)
    hits = []
    for seq, role, body, *row in (found[id] for id in best if id in found):
        snippet = make_snippet(search_index.read_text(body), pattern)
        hits.append(SearchHit(codec.decode_session(row, is_alive), seq, role, snippet))
    return hits


def parse_terms(query: str) -> list[str]:
    """The words and quoted phrases of what a person typed."""
    pairs = compile_pattern(_TERM).findall(replace_invalid(query[:MAX_QUERY_LENGTH]))
    texts = (quoted or plain for quoted, plain in pairs)
    return [text for text in texts if any(c.isalnum() for c in text)][:MAX_TERMS]


def match_expression(terms: Sequence[str]) -> str:
    """The terms in FTS5's language; each is quoted, so that none is an operator."""
    return " ".join('"' + split_unspaced_scripts(term) + '"' for term in terms)


def compile_terms(terms: Sequence[str]) -> re.Pattern[str]:
    """A pattern that finds any of the terms in a text."""
    options = []
    for term in terms:
        words = re.findall(r"\w+", term)
        edge = r"\b" if term.isascii() else ""
        options.append(edge + r"[\W_]+".join(map(re.escape, words)) + edge)
    return re.compile("|".join(options), re.IGNORECASE)


def make_snippet(text: str, pattern: re.Pattern[str], width: int = 160) -> str:
    """One line around the first match. The index ignores accents, the pattern does not: where
    only the index matches, the line is the beginning of the text."""
    hit = pattern.search(text)
    at = hit.start() if hit else 0
    start = max(0, at - width // 3)
    if start:
        space = text.find(" ", start, at)
        start = space + 1 if space >= 0 else start
    end = start + width
    line = " ".join(text[start:end].split())
    return ("…" if start else "") + line + ("…" if end < len(text) else "")

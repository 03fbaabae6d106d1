"""Search in messages: queries of plain words and quoted phrases, ranked hits with snippets."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from unicodedata import combining, normalize

from msgspec import structs

from hermes.core.store import SearchFilter, SearchHit
from hermes.core.text import replace_invalid
from hermes.store import codec, errors, search_index
from hermes.store.database import Database
from hermes.store.search_index import IndexDamaged
from hermes.store.search_terms import (
    compile_terms,
    make_snippet,
    parse_terms,
    read_text,
    split_unspaced_scripts,
)

if TYPE_CHECKING:
    from apsw import Connection


class SqliteSearch:
    """Implements `core.store.MessageSearch`. A search covers every committed message: the index
    catches up first when it has to, and the disk can be written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_messages(
        self, query: str, *, limit: int = 20, within: SearchFilter | None = None
    ) -> list[SearchHit]:
        wanted = within or SearchFilter()
        try:
            return await self._query_all(query, limit, wanted)
        except IndexDamaged:
            await search_index.repair_index(self._database)
        try:
            return await self._query_all(query, limit, wanted)
        except IndexDamaged as error:
            path = self._database.path
            raise errors.error_of_kind("damaged", path, "its search index") from error

    async def _query_all(self, query: str, limit: int, within: SearchFilter) -> list[SearchHit]:
        is_alive = cache(self._database.process.is_alive)

        writable = not self._database.read_only

        def query_once(db: "Connection", *, catch_up: bool = writable) -> list[SearchHit] | None:
            if catch_up and search_index.has_pending(db):
                return None
            return _query_index(db, query, limit, within, is_alive=is_alive)

        found = await self._database.read(query_once)
        if found is None:
            while await self._database.writer.submit(search_index.index_batch, mode="alone"):
                pass
            found = await self._database.read(lambda db: query_once(db, catch_up=False))
        return found or []


_MAX_VARIANTS = 100
"""Words of the index that one word of a query may stand for."""
_LEAST_SUBSTRING = 3
_MAX_COUNTED = 10_000
"""Hits that are looked at for enough different sessions."""
_ROWS = (
    f"SELECT m.id, m.seq, m.role, m.created, m.body, {codec.SESSION_COLUMNS}"
    " FROM json_each(?) AS best CROSS JOIN messages m ON m.id = best.value"
    " JOIN sessions s ON s.n = m.id >> 24"
)


def _query_index(
    db: "Connection",
    query: str,
    limit: int,
    within: SearchFilter,
    *,
    is_alive: Callable[[str], bool],
) -> list[SearchHit]:
    """The best hits. Ranking happens inside FTS5; only the winners are read."""
    import apsw

    terms = parse_terms(query)
    if not terms or limit <= 0:
        return []
    best: list[Any] = []
    wanted = within
    try:
        for expression in _list_expressions(db, terms):
            if best := _select_best(db, expression, limit, wanted):
                break
            # Parts of words match much of the index: ranking all of it would take too long.
            wanted = structs.replace(within, newest=True)
    except (apsw.CorruptError, apsw.SQLError, apsw.ConstraintError) as error:
        raise IndexDamaged(str(error)) from error
    found: dict[int, Sequence[Any]] = {id: row for id, *row in db.execute(_ROWS, (str(best),))}
    pattern = compile_terms(terms)
    hits = []
    for seq, role, created, body, *row in (found[id] for id in best if id in found):
        snippet = make_snippet(read_text(body), pattern)
        hits.append(SearchHit(codec.decode_session(row, is_alive), seq, role, snippet, created))
    return hits


def _select_best(db: "Connection", expression: str, limit: int, within: SearchFilter) -> list[Any]:
    """The ids of the best messages. Tables are joined only where a filter needs them: selecting the
    rank itself would make FTS5 compute it a second time."""
    joins, tests = "", ["search MATCH ?"]
    values: list[Any] = [expression]
    if within.source is not None or within.key is not None:
        joins += " JOIN sessions s ON s.n = search.rowid >> 24"
    if within.role is not None or within.since is not None:
        joins += " JOIN messages m ON m.id = search.rowid"
    columns = {"s.source": within.source, "s.key": within.key, "m.role": within.role}
    for column, value in columns.items():
        if value is not None:
            tests.append(f"{column} = ?")
            values.append(replace_invalid(value))
    if within.since is not None:
        tests.append("m.created >= ?")
        values.append(within.since)
    order = "search.rowid DESC" if within.newest else "search.rank"
    sql = f"SELECT search.rowid FROM search{joins} WHERE {' AND '.join(tests)} ORDER BY {order}"
    if within.per_session is None:
        return [id for (id,) in db.execute(f"{sql} LIMIT ?", (*values, limit))]
    counts: Counter[int] = Counter()
    best: list[Any] = []
    for (id,) in db.execute(f"{sql} LIMIT {_MAX_COUNTED}", values):
        counts[id >> 24] += 1
        if counts[id >> 24] <= within.per_session:
            best.append(id)
            if len(best) == limit:
                break
    return best


def _list_expressions(db: "Connection", terms: Sequence[str]) -> Iterator[str]:
    """What to look for, one after the other until something is found: the words, words that begin
    so, words that contain them."""
    yield match_expression(terms)
    yield " ".join(f"{match_expression([term])} *" for term in terms)
    if all(len(term) >= _LEAST_SUBSTRING for term in terms):
        groups = [_find_variants(db, word) for term in terms for word in re.findall(r"\w+", term)]
        if groups and all(groups):
            yield " AND ".join(f"({' OR '.join(group)})" for group in groups)


def _find_variants(db: "Connection", word: str) -> list[str]:
    """The words of the index that contain this one, quoted."""
    folded = "".join(c for c in normalize("NFKD", word.lower()) if not combining(c))
    escaped = re.sub(r"([%_\\])", r"\\\1", folded)
    sql = "SELECT word FROM search_words WHERE word LIKE ? ESCAPE '\\' LIMIT ?"
    rows: Any = db.execute(sql, (f"%{escaped}%", _MAX_VARIANTS))
    return ['"' + str(term).replace('"', '""') + '"' for (term,) in rows]


def match_expression(terms: Sequence[str]) -> str:
    """The terms in FTS5's language; each is quoted, so that none is an operator."""
    return " ".join('"' + split_unspaced_scripts(term) + '"' for term in terms)

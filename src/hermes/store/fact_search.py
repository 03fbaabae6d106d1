"""The facts of memory in SQLite, with its full-text index beside them."""

from collections.abc import Sequence

from hermes.core.store import Fact, FactTarget
from hermes.store.search import match_expression
from hermes.store.search_terms import parse_terms
from hermes.store.tables.facts import FOUND, SqlFactTable


class SqliteFactTable(SqlFactTable):
    """Implements `core.store.FactTable`."""

    def search_facts(
        self, scopes: Sequence[tuple[str, FactTarget]], query: str, *, limit: int
    ) -> list[Fact]:
        terms = parse_terms(query)
        if not terms or not scopes:
            return []
        every = match_expression(terms)
        any_of = " OR ".join(f"{match_expression([term])}*" for term in terms)
        return self._match(every, scopes, limit) or self._match(any_of, scopes, limit)

    def _match(
        self, expression: str, scopes: Sequence[tuple[str, FactTarget]], limit: int
    ) -> list[Fact]:
        places = " OR ".join("(scope = ? AND target = ?)" for _ in scopes)
        values = [value for scope in scopes for value in scope]
        where = (
            f"JOIN facts_search ON facts_search.rowid = id WHERE facts_search MATCH ?"
            f" AND {FOUND} AND ({places}) ORDER BY facts_search.rank LIMIT ?"
        )
        return self.select_facts(where, expression, *values, limit)

"""The facts of memory on PostgreSQL, with their words beside them."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.core.store import Fact, FactTarget
from hermes.store.postgres.search import compose_query, compose_vector, list_words
from hermes.store.search_terms import parse_terms
from hermes.store.tables.facts import FOUND, SqlFactTable


class PostgresFactTable(SqlFactTable):
    """Implements `core.store.FactTable`."""

    def insert_fact(self, fact: Fact) -> Fact:
        found = super().insert_fact(fact)
        sql = "UPDATE facts SET found = ?::tsvector WHERE id = ?"
        self.db.execute(sql, (compose_vector(list_words(found.text)), found.id))
        return found

    def search_facts(
        self, scopes: Sequence[tuple[str, FactTarget]], query: str, *, limit: int
    ) -> list[Fact]:
        terms = parse_terms(query)
        every = compose_query(terms)
        if not every or not scopes:
            return []
        any_of = compose_query(terms, prefix=True, any_of=True)
        return self._match(every, scopes, limit) or self._match(any_of, scopes, limit)

    def _match(
        self, expression: str, scopes: Sequence[tuple[str, FactTarget]], limit: int
    ) -> list[Fact]:
        places = " OR ".join("(scope = ? AND target = ?)" for _ in scopes)
        values = [value for scope in scopes for value in scope]
        where = (
            f"WHERE found @@ ?::tsquery AND {FOUND} AND ({places})"
            " ORDER BY ts_rank(found, ?::tsquery, 1) DESC, id LIMIT ?"
        )
        return self.select_facts(where, expression, *values, expression, limit)

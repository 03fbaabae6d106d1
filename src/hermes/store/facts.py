"""The facts of memory: a table with a full-text index beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hermes.core.errors import StoreError
from hermes.core.store import DELIVERIES, Fact, FactState, FactTable, FactTarget
from hermes.core.text import replace_invalid
from hermes.store.database import Database
from hermes.store.search import match_expression, parse_terms
from hermes.store.search_index import split_unspaced_scripts

if TYPE_CHECKING:
    from apsw import Connection

T = TypeVar("T")
_COLUMNS = "id, scope, target, text, state, created, session, user, origin, action, old"
_LOCK_WAITS = 5
"""How often the usual wait for other writers is repeated."""
_FOUND = "state IN ('pinned', 'stored')"


class SqliteFacts:
    """Implements `core.store.Facts`."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    async def change(self, run: Callable[[FactTable], T]) -> T:
        for _ in range(_LOCK_WAITS):
            try:
                return await self._change_once(run)
            except StoreError as error:  # others wrote all the while; nothing was changed
                if error.code != "busy":
                    raise
        return await self._change_once(run)

    async def _change_once(self, run: Callable[[FactTable], T]) -> T:
        return await self._database.writer.submit(lambda db: run(SqliteFactTable(db, self._clock)))

    async def read(self, run: Callable[[FactTable], T]) -> T:
        return await self._database.read(lambda db: run(SqliteFactTable(db, self._clock)))


class SqliteFactTable:
    """Implements `core.store.FactTable`."""

    def __init__(self, db: Connection, clock: Callable[[], float]) -> None:
        self._db = db
        self._clock = clock

    def list_facts(
        self, scope: str, target: FactTarget | None = None, *, states: Sequence[FactState]
    ) -> list[Fact]:
        marks = ", ".join("?" * len(states))
        where = f"(? IS NULL OR scope = ?) AND (? IS NULL OR target = ?) AND state IN ({marks})"
        wanted = scope or None
        return self._select(f"WHERE {where} ORDER BY id", wanted, wanted, target, target, *states)

    def count_stored(self, scope: str, target: FactTarget) -> int:
        sql = "SELECT count(*) FROM facts WHERE scope = ? AND target = ? AND state = 'stored'"
        return int(self._db.execute(sql, (scope, target)).get)

    def find_fact(self, number: int) -> Fact | None:
        return next(iter(self._select("WHERE id = ?", number)), None)

    def insert_fact(self, fact: Fact) -> Fact:
        text = replace_invalid(fact.text)
        row = (fact.scope, fact.target, text, fact.state, fact.created, fact.session, fact.user)
        self._db.execute(
            "INSERT INTO facts (scope, target, text, state, created, session, user, origin, action,"
            " old, words, changed, used) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(*row, fact.origin, fact.action, fact.old),
                *(split_unspaced_scripts(text), self._clock(), fact.created),
            ),
        )
        found = self.find_fact(self._db.last_insert_rowid())
        assert found is not None
        return found

    def change_state(self, number: int, state: FactState) -> None:
        sql = "UPDATE facts SET state = ?, changed = ? WHERE id = ?"
        self._db.execute(sql, (state, self._clock(), number))

    def delete_fact(self, number: int) -> None:
        self._db.execute("DELETE FROM facts WHERE id = ?", (number,))

    def search_facts(
        self, scopes: Sequence[tuple[str, FactTarget]], query: str, *, limit: int
    ) -> list[Fact]:
        terms = parse_terms(query)
        if not terms or not scopes:
            return []
        every = match_expression(terms)
        any_of = " OR ".join(f"{match_expression([term])}*" for term in terms)
        return self._match(every, scopes, limit) or self._match(any_of, scopes, limit)

    def mark_used(self, numbers: Sequence[int]) -> None:
        now = self._clock()
        sql = "UPDATE facts SET used = ? WHERE id = ?"
        self._db.executemany(sql, [(now, number) for number in numbers])

    def drop_surplus(self, scope: str, keep: int) -> None:
        count = self._db.execute(
            f"SELECT count(*) FROM facts WHERE scope = ? AND {_FOUND}", (scope,)
        ).get
        if count > keep:
            self._db.execute(
                "DELETE FROM facts WHERE id IN (SELECT id FROM facts WHERE scope = ?"
                " AND state = 'stored' ORDER BY used, id LIMIT ?)",
                (scope, count - keep),
            )

    def drop_archived(self, before: float) -> None:
        sql = "DELETE FROM facts WHERE state = 'archived' AND changed < ?"
        self._db.execute(sql, (before,))

    def list_scopes(self) -> list[tuple[str, int]]:
        sql = f"SELECT scope, sum({_FOUND}) FROM facts GROUP BY scope ORDER BY scope"
        return [(str(scope), int(count)) for scope, count in self._db.execute(sql)]

    def queue_delivery(self, body: bytes) -> None:
        sql = "SELECT coalesce(max(id), '0') FROM objects WHERE kind = ?"
        number = int(self._db.execute(sql, (DELIVERIES,)).get) + 1
        now = self._clock()
        self._db.execute(
            "INSERT INTO objects (kind, id, owner, created, used, body) VALUES (?, ?, '', ?, ?, ?)",
            (DELIVERIES, f"{number:012}", now, now, body),
        )

    def _match(
        self, expression: str, scopes: Sequence[tuple[str, FactTarget]], limit: int
    ) -> list[Fact]:
        places = " OR ".join("(scope = ? AND target = ?)" for _ in scopes)
        values = [value for scope in scopes for value in scope]
        where = (
            f"JOIN facts_search ON facts_search.rowid = id WHERE facts_search MATCH ?"
            f" AND {_FOUND} AND ({places}) ORDER BY facts_search.rank LIMIT ?"
        )
        return self._select(where, expression, *values, limit)

    def _select(self, where: str, *values: str | int | None) -> list[Fact]:
        rows: Any = self._db.execute(f"SELECT {_COLUMNS} FROM facts {where}", values)
        return [Fact(*row) for row in rows]

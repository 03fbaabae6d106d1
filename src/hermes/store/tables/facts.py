"""The facts of memory: a table with a full-text index beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hermes.core.errors import StoreError
from hermes.core.store import DELIVERIES, Fact, FactState, FactTable, FactTarget
from hermes.core.text import replace_invalid
from hermes.store.search_terms import split_unspaced_scripts
from hermes.store.tables.connection import SqlConnection, SqlDatabase

T = TypeVar("T")
_COLUMNS = 'id, scope, target, text, state, created, session, "user", origin, action, old'
_LOCK_WAITS = 11
"""How often the usual wait for other writers is repeated."""
FOUND = "state IN ('pinned', 'stored')"


class SqlFacts:
    """Implements `core.store.Facts`."""

    def __init__(
        self, database: SqlDatabase, open_table: Callable[[SqlConnection], FactTable]
    ) -> None:
        self._database = database
        self._open_table = open_table

    async def change(self, run: Callable[[FactTable], T]) -> T:
        for _ in range(_LOCK_WAITS):
            try:
                return await self._change_once(run)
            except StoreError as error:  # others wrote all the while; nothing was changed
                if error.code != "busy":
                    raise
        return await self._change_once(run)

    async def _change_once(self, run: Callable[[FactTable], T]) -> T:
        return await self._database.writer.submit(lambda db: run(self._open_table(db)))

    async def read(self, run: Callable[[FactTable], T]) -> T:
        return await self._database.read(lambda db: run(self._open_table(db)))


class SqlFactTable:
    """`core.store.FactTable` without the search, which each database does in its own way."""

    def __init__(self, db: SqlConnection, clock: Callable[[], float]) -> None:
        self.db = db
        self._clock = clock

    def list_facts(
        self, scope: str, target: FactTarget | None = None, *, states: Sequence[FactState]
    ) -> list[Fact]:
        wanted = {"scope": scope, "target": target}
        tests = [f"{name} = ?" for name, value in wanted.items() if value]
        tests.append(f"state IN ({', '.join('?' * len(states))})")
        where = f"WHERE {' AND '.join(tests)} ORDER BY id"
        return self.select_facts(where, *filter(None, wanted.values()), *states)

    def count_stored(self, scope: str, target: FactTarget) -> int:
        sql = "SELECT count(*) FROM facts WHERE scope = ? AND target = ? AND state = 'stored'"
        return int(self.db.execute(sql, (scope, target)).get)

    def find_fact(self, number: int) -> Fact | None:
        return next(iter(self.select_facts("WHERE id = ?", number)), None)

    def insert_fact(self, fact: Fact) -> Fact:
        text = replace_invalid(fact.text)
        row = (fact.scope, fact.target, text, fact.state, fact.created, fact.session, fact.user)
        number = self.db.execute(
            'INSERT INTO facts (scope, target, text, state, created, session, "user", origin,'
            " action, old, words, changed, used) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " RETURNING id",
            (
                *(*row, fact.origin, fact.action, fact.old),
                *(split_unspaced_scripts(text), self._clock(), fact.created),
            ),
        ).get
        found = self.find_fact(number)
        assert found is not None
        return found

    def change_state(self, number: int, state: FactState) -> None:
        sql = "UPDATE facts SET state = ?, changed = ? WHERE id = ?"
        self.db.execute(sql, (state, self._clock(), number))

    def delete_fact(self, number: int) -> None:
        self.db.execute("DELETE FROM facts WHERE id = ?", (number,))

    def mark_used(self, numbers: Sequence[int]) -> None:
        now = self._clock()
        sql = "UPDATE facts SET used = ? WHERE id = ?"
        self.db.executemany(sql, [(now, number) for number in numbers])

    def drop_surplus(self, scope: str, keep: int) -> None:
        count = self.db.execute(
            f"SELECT count(*) FROM facts WHERE scope = ? AND {FOUND}", (scope,)
        ).get
        if count > keep:
            self.db.execute(
                "DELETE FROM facts WHERE id IN (SELECT id FROM facts WHERE scope = ?"
                " AND state = 'stored' ORDER BY used, id LIMIT ?)",
                (scope, count - keep),
            )

    def drop_archived(self, before: float) -> None:
        sql = "DELETE FROM facts WHERE state = 'archived' AND changed < ?"
        self.db.execute(sql, (before,))

    def list_scopes(self) -> list[tuple[str, int]]:
        found = f"count(*) FILTER (WHERE {FOUND})"
        sql = f"SELECT scope, {found} FROM facts GROUP BY scope ORDER BY scope"
        return [(str(scope), int(count)) for scope, count in self.db.execute(sql)]

    def queue_delivery(self, body: bytes) -> None:
        sql = "SELECT coalesce(max(id), '0') FROM objects WHERE kind = ?"
        number = int(self.db.execute(sql, (DELIVERIES,)).get) + 1
        now = self._clock()
        self.db.execute(
            "INSERT INTO objects (kind, id, owner, created, used, body) VALUES (?, ?, '', ?, ?, ?)",
            (DELIVERIES, f"{number:012}", now, now, body),
        )

    def select_facts(self, where: str, *values: str | int | None) -> list[Fact]:
        rows: Any = self.db.execute(f"SELECT {_COLUMNS} FROM facts {where}", values)
        return [Fact(*row) for row in rows]

"""Durable values that are not conversations: stored responses, runs, their events, replays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from hermes.core.store import Object
from hermes.store.tables.connection import SqlConnection, SqlDatabase


class SqlObjects:
    """Implements `core.store.Objects`."""

    def __init__(self, database: SqlDatabase, clock: Callable[[], float]) -> None:
        self._read = database.read
        self._write = database.writer.submit
        self._clock = clock

    async def put(
        self, kind: str, id: str, body: bytes, *, owner: str = "", keep_latest: int | None = None
    ) -> None:
        now = self._clock()

        def put_object(db: SqlConnection) -> None:
            db.execute(_PUT, (kind, id, owner, now, now, body))
            if keep_latest is not None:
                _trim_objects(db, kind, owner, keep_latest)

        await self._write(put_object)

    async def trim(
        self, kind: str, keep_latest: int, *, owner: str, spare: Collection[str]
    ) -> None:
        spared = list(spare)
        await self._write(lambda db: _trim_objects(db, kind, owner, keep_latest, spared))

    async def add(self, kind: str, id: str, body: bytes, *, owner: str = "") -> bool:
        now = self._clock()
        return await self._change(_ADD, kind, id, owner, now, now, body)

    async def get(self, kind: str, id: str, *, owner: str, touch: bool = False) -> Object | None:
        def select_object(db: SqlConnection) -> Object | None:
            row = db.execute(f"{_SELECT} AND id = ? AND owner = ?", (kind, id, owner)).fetchone()
            return Object(*row) if row else None

        found = await self._read(select_object)
        if found is not None and touch:
            sql = "UPDATE objects SET used = ? WHERE kind = ? AND id = ?"
            await self._change(sql, self._clock(), kind, id)
        return found

    async def _change(self, sql: str, *values: str | float | bytes) -> bool:
        """Whether any row was changed."""

        def execute(db: SqlConnection) -> bool:
            db.execute(sql, values)
            return bool(db.changes())

        return await self._write(execute)

    async def remove(self, kind: str, id: str, *, owner: str) -> bool:
        sql = "DELETE FROM objects WHERE kind = ? AND id = ? AND owner = ?"
        return await self._change(sql, kind, id, owner)

    async def list_all(self, kind: str, *, owner: str | None = None) -> list[Object]:
        sql, values = _SELECT, [kind]
        if owner is not None:
            sql, values = f"{sql} AND owner = ?", [kind, owner]
        sql += " ORDER BY created"
        return await self._read(lambda db: [Object(*row) for row in db.execute(sql, values)])

    async def append_events(self, stream: str, first: int, events: Sequence[bytes]) -> None:
        rows = [(stream, number, body) for number, body in enumerate(events, first)]

        def insert_events(db: SqlConnection) -> None:
            sql = "INSERT INTO events (stream, n, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
            db.executemany(sql, rows)

        await self._write(insert_events)

    async def read_events(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[bytes]:
        sql = "SELECT body FROM events WHERE stream = ? AND n > ? ORDER BY n LIMIT ?"
        values = (stream, after, limit)
        return await self._read(lambda db: [row[0] for row in db.execute(sql, values)])


_ALL = 1 << 40
"""More rows than there are."""
_SELECT = "SELECT kind, id, owner, created, body FROM objects WHERE kind = ?"
_INSERT = "INSERT INTO objects (kind, id, owner, created, used, body) VALUES (?, ?, ?, ?, ?, ?)"
_ADD = f"{_INSERT} ON CONFLICT DO NOTHING"
_PUT = (
    f"{_INSERT} ON CONFLICT (kind, id) DO UPDATE SET used = excluded.used, body = excluded.body"
    " WHERE objects.owner = excluded.owner"
)


def _trim_objects(
    db: SqlConnection, kind: str, owner: str, keep_latest: int, spare: Sequence[str] = ()
) -> None:
    # From the index alone: touching any other column of a row reads its whole body.
    old = db.execute(
        "SELECT id FROM objects WHERE kind = ? AND owner = ? ORDER BY used DESC LIMIT ? OFFSET ?",
        (kind, owner, _ALL, keep_latest),
    ).fetchall()
    unwanted = [(kind, id) for (id,) in old if id not in spare]
    db.executemany("DELETE FROM objects WHERE kind = ? AND id = ?", unwanted)

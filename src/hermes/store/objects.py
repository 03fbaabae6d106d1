"""Durable values that are not conversations: stored responses, runs, their events, replays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from hermes.core.store import Object
from hermes.store.database import Database

if TYPE_CHECKING:
    from apsw import Connection


class SqliteObjects:
    """Implements `core.store.Objects`."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._read = database.read
        self._write = database.writer.submit
        self._clock = clock

    async def put(
        self, kind: str, id: str, body: bytes, *, owner: str = "", keep_latest: int | None = None
    ) -> None:
        now = self._clock()

        def put_object(db: Connection) -> None:
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

        def add_object(db: Connection) -> bool:
            db.execute(_ADD, (kind, id, owner, now, now, body))
            return bool(db.changes())

        return await self._write(add_object)

    async def get(self, kind: str, id: str, *, owner: str, touch: bool = False) -> Object | None:
        def select_object(db: Connection) -> Object | None:
            row = db.execute(f"{_SELECT} AND id = ? AND owner = ?", (kind, id, owner)).fetchone()
            return Object(*row) if row else None

        found = await self._read(select_object)
        if found is not None and touch:
            await self._touch_object(kind, id)
        return found

    async def _touch_object(self, kind: str, id: str) -> None:
        now = self._clock()

        def update_used(db: Connection) -> None:
            db.execute("UPDATE objects SET used = ? WHERE kind = ? AND id = ?", (now, kind, id))

        await self._write(update_used)

    async def remove(self, kind: str, id: str, *, owner: str) -> bool:
        def delete_object(db: Connection) -> bool:
            db.execute(
                "DELETE FROM objects WHERE kind = ? AND id = ? AND owner = ?", (kind, id, owner)
            )
            return bool(db.changes())

        return await self._write(delete_object)

    async def list_all(self, kind: str, *, owner: str | None = None) -> list[Object]:
        sql = f"{_SELECT} AND (?2 IS NULL OR owner = ?2) ORDER BY created"
        return await self._read(lambda db: [Object(*row) for row in db.execute(sql, (kind, owner))])

    async def append_events(self, stream: str, first: int, events: Sequence[bytes]) -> None:
        rows = [(stream, number, body) for number, body in enumerate(events, first)]

        def insert_events(db: Connection) -> None:
            db.executemany("INSERT OR IGNORE INTO events VALUES (?, ?, ?)", rows)

        await self._write(insert_events)

    async def read_events(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[bytes]:
        def select_events(db: Connection) -> list[bytes]:
            found = db.execute(
                "SELECT body FROM events WHERE stream = ? AND n > ? ORDER BY n LIMIT ?",
                (stream, after, limit),
            )
            return [body for (body,) in found]

        return await self._read(select_events)


_SELECT = "SELECT kind, id, owner, created, body FROM objects WHERE kind = ?"
_ADD = (
    "INSERT INTO objects (kind, id, owner, created, used, body) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING"
)
_PUT = (
    "INSERT INTO objects (kind, id, owner, created, used, body) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (kind, id) DO UPDATE SET used = excluded.used, body = excluded.body"
    " WHERE owner = excluded.owner"
)


def _trim_objects(
    db: Connection, kind: str, owner: str, keep_latest: int, spare: Sequence[str] = ()
) -> None:
    # From the index alone: touching any other column of a row reads its whole body.
    old = db.execute(
        "SELECT id FROM objects WHERE kind = ? AND owner = ? ORDER BY used DESC LIMIT -1 OFFSET ?",
        (kind, owner, keep_latest),
    ).fetchall()
    unwanted = [(kind, id) for (id,) in old if id not in spare]
    db.executemany("DELETE FROM objects WHERE kind = ? AND id = ?", unwanted)

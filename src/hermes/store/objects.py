"""Answers, runs, their events and replays: rows of two tables beside the sessions."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from hermes.core.object_store import Object

if TYPE_CHECKING:
    from apsw import Connection

Run = Callable[..., Any]


class Submit(Protocol):
    def __call__(self, run: Callable[[Connection], Any]) -> Awaitable[Any]: ...


class SqliteObjects:
    """Implements core.objects.Objects on the store's own threads."""

    def __init__(self, write: Submit, read: Submit, clock: Callable[[], float] = time.time) -> None:
        self._write = write
        self._read = read
        self._clock = clock

    async def put(
        self, kind: str, id: str, body: bytes, *, owner: str = "", most: int | None = None
    ) -> None:
        now = self._clock()

        def run(db: Connection) -> None:
            db.execute(_PUT, (kind, id, owner, now, now, body))
            if most is not None:
                _trim(db, kind, owner, most)

        await self._write(run)

    async def trim(self, kind: str, most: int, *, owner: str, spare: Collection[str]) -> None:
        kept = list(spare)
        await self._write(lambda db: _trim(db, kind, owner, most, kept))

    async def add(self, kind: str, id: str, body: bytes, *, owner: str = "") -> bool:
        now = self._clock()

        def run(db: Connection) -> bool:
            db.execute(_ADD, (kind, id, owner, now, now, body))
            return bool(db.changes())

        return bool(await self._write(run))

    async def get(self, kind: str, id: str, *, owner: str, touch: bool = False) -> Object | None:
        run = partial(_get, kind=kind, id=id, owner=owner)
        found: Object | None = await self._read(run)
        if found is not None and touch:
            await self._write(partial(_touch, kind=kind, id=id, now=self._clock()))
        return found

    async def remove(self, kind: str, id: str, *, owner: str) -> bool:
        def run(db: Connection) -> bool:
            db.execute(
                "DELETE FROM objects WHERE kind = ? AND id = ? AND owner = ?", (kind, id, owner)
            )
            return bool(db.changes())

        return bool(await self._write(run))

    async def every(self, kind: str, *, owner: str | None = None) -> list[Object]:
        found: list[Object] = await self._read(partial(_every, kind=kind, owner=owner))
        return found

    async def log(self, stream: str, first: int, events: Sequence[bytes]) -> None:
        rows = [(stream, first + n, body) for n, body in enumerate(events)]

        def run(db: Connection) -> None:
            db.executemany("INSERT OR IGNORE INTO events VALUES (?, ?, ?)", rows)

        await self._write(run)

    async def read(self, stream: str, *, after: int = 0, most: int = 1000) -> list[bytes]:
        def run(db: Connection) -> list[bytes]:
            found = db.execute(
                "SELECT body FROM events WHERE stream = ? AND n > ? ORDER BY n LIMIT ?",
                (stream, after, most),
            )
            return [body for (body,) in found]

        result: list[bytes] = await self._read(run)
        return result


_ADD = (
    "INSERT INTO objects (kind, id, owner, created, used, body) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING"
)
_PUT = (
    "INSERT INTO objects (kind, id, owner, created, used, body) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (kind, id) DO UPDATE SET used = excluded.used, body = excluded.body"
    " WHERE owner = excluded.owner"
)


def _trim(db: Connection, kind: str, owner: str, most: int, spare: Sequence[str] = ()) -> None:
    # From the index alone: to look at any other column of a row reads its whole body.
    old = db.execute(
        "SELECT id FROM objects WHERE kind = ? AND owner = ? ORDER BY used DESC LIMIT -1 OFFSET ?",
        (kind, owner, most),
    ).fetchall()
    gone = [(kind, id) for (id,) in old if id not in spare]
    db.executemany("DELETE FROM objects WHERE kind = ? AND id = ?", gone)


def _get(db: Connection, kind: str, id: str, owner: str) -> Object | None:
    row = db.execute(
        "SELECT kind, id, owner, created, body FROM objects"
        " WHERE kind = ? AND id = ? AND owner = ?",
        (kind, id, owner),
    ).fetchone()
    return Object(*row) if row else None


def _touch(db: Connection, kind: str, id: str, now: float) -> None:
    db.execute("UPDATE objects SET used = ? WHERE kind = ? AND id = ?", (now, kind, id))


def _every(db: Connection, kind: str, owner: str | None) -> list[Object]:
    found = db.execute(
        "SELECT kind, id, owner, created, body FROM objects WHERE kind = ?"
        " AND (?2 IS NULL OR owner = ?2) ORDER BY created",
        (kind, owner),
    )
    return [Object(*row) for row in found]

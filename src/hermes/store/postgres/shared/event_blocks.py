"""The events of streams in blocks, in a partition for each hour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from hermes.store.tables.connection import SqlConnection
from hermes.store.tables.objects import SqlObjects

if TYPE_CHECKING:
    from psycopg import Connection

MAX_FRAMES = 64
"""Frames of one block: whoever reads from the middle of a stream looks back so far."""
_HOUR = timedelta(hours=1)
_PREPARED = 4
_LOCK = 0x48524D45
"""The bytes "HRME": one node changes the partitions at a time."""
_REST = "event_blocks_rest"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[bytes])


class PostgresObjects(SqlObjects):
    """What is written at one moment is one row. Nodes of the schema before write a row for each
    event, which are read as well."""

    async def append_events(self, stream: str, first: int, events: Sequence[bytes]) -> None:
        rows = []
        for start in range(0, len(events), MAX_FRAMES):
            frames = list(events[start : start + MAX_FRAMES])
            number = first + start
            body = _encoder.encode(frames)
            rows.append((stream, number, number + len(frames) - 1, body))

        def insert_blocks(db: SqlConnection) -> None:
            for row in rows:
                db.execute(_INSERT, row)

        await self._write(insert_blocks)

    async def read_events(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[bytes]:
        """Events that were dropped are empty."""

        def select_blocks(db: SqlConnection) -> list[bytes]:
            found: list[bytes] = []
            for first, body, is_block in db.execute(_SELECT, (stream, after, limit)):
                frames = _decoder.decode(body) if is_block else [body]
                known = after + len(found) + 1 - first
                found += [b""] * -known
                found += frames[max(0, known) :]
            return found[:limit]

        return await self._read(select_blocks)


def expand_blocks(rows: Sequence[tuple[str, int, bytes]]) -> Iterator[tuple[str, int, bytes]]:
    """The events of blocks, each with its number."""
    for stream, first, body in rows:
        for number, frame in enumerate(_decoder.decode(body), first):
            yield stream, number, frame


def renew_partitions(db: Connection[Any], hours: float = 0.0) -> None:
    """Make the partitions of the next hours; drop those that are older than `hours`, if any."""
    import psycopg

    row = db.execute("SELECT pg_try_advisory_lock(%s), clock_timestamp()", (_LOCK,)).fetchone()
    if row is None or not row[0]:
        return
    try:
        now = row[1].astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        known = _list_partitions(db)
        for hour in (now + _HOUR * n for n in range(_PREPARED)):
            if hour not in known:
                # Events of this hour that are in the rest already stay there.
                with suppress(psycopg.Error), db.transaction():
                    _add_partition(db, hour)
        if hours:
            oldest = row[1] - timedelta(hours=hours)
            for hour in known:
                if hour + _HOUR <= oldest:
                    with suppress(psycopg.errors.LockNotAvailable), db.transaction():
                        _run_soon(db, f"DROP TABLE public.{_name_partition(hour)}")
            db.execute(f"DELETE FROM public.{_REST} WHERE made < %s", (oldest,))
    finally:
        db.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def _name_partition(hour: datetime) -> str:
    return f"event_blocks_{hour:%Y%m%d%H}"


def _list_partitions(db: Connection[Any]) -> list[datetime]:
    rows = db.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits"
        " WHERE inhparent = 'public.event_blocks'::regclass"
    ).fetchall()
    ends = (name.rpartition("_")[2] for (name,) in rows)
    return [datetime.strptime(f"{end}+0000", "%Y%m%d%H%z") for end in ends if end.isdecimal()]


def _add_partition(db: Connection[Any], hour: datetime) -> None:
    name = f"public.{_name_partition(hour)}"
    _run_soon(db, f"CREATE TABLE {name} (LIKE public.event_blocks INCLUDING ALL)")
    _run_soon(
        db,
        f"ALTER TABLE public.event_blocks ATTACH PARTITION {name}"
        f" FOR VALUES FROM ('{hour.isoformat()}') TO ('{(hour + _HOUR).isoformat()}')",
    )


def _run_soon(db: Connection[Any], sql: Any) -> None:
    """Nobody waits long for what this locks."""
    db.execute("SET LOCAL lock_timeout = '1s'")
    db.execute(sql)


_INSERT = "INSERT INTO event_blocks (stream, first, last, body) VALUES (?, ?, ?, ?)"
_SELECT = (
    "SELECT first, body, 1 FROM event_blocks WHERE stream = ?1"
    f" AND first > ?2::bigint - {MAX_FRAMES} AND last > ?2::bigint UNION ALL"
    " SELECT n, body, 0 FROM events WHERE stream = ?1 AND n > ?2::bigint ORDER BY 1 LIMIT ?3"
)

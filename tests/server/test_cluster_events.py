"""The events of runs on PostgreSQL: blocks, the schema before, and what was dropped."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from hermes.store.postgres.shared.event_blocks import renew_partitions
from hermes.store.postgres.store import open_postgres
from tests.kit.postgres import create_database

pytestmark = pytest.mark.e2e


@pytest.fixture
def url(postgres_server: str) -> Any:
    with create_database(postgres_server) as made:
        yield made


def make_frames(first: int, last: int) -> list[bytes]:
    return [f"frame {number}".encode() for number in range(first, last + 1)]


async def test_events_are_read_from_any_place(url: str) -> None:
    store = open_postgres(url, node="a")
    try:
        with psycopg.connect(url, autocommit=True) as db:  # as a node of the schema before did
            for number, frame in enumerate(make_frames(1, 3), 1):
                sql = "INSERT INTO events (tenant, stream, n, body) VALUES (0, 's', %s, %s)"
                db.execute(sql, (number, frame))
        await store.objects.append_events("s", 4, make_frames(4, 4))
        await store.objects.append_events("s", 5, make_frames(5, 204))
        await store.objects.append_events("other", 1, make_frames(1, 1))
        for after in (0, 2, 3, 4, 5, 67, 68, 69, 203, 204, 300):
            assert await store.objects.read_events("s", after=after) == make_frames(after + 1, 204)
        assert await store.objects.read_events("s", after=60, limit=10) == make_frames(61, 70)
        with psycopg.connect(url) as db:
            count = db.execute("SELECT count(*) FROM event_blocks WHERE stream = 's'").fetchone()
        assert count == (5,)
    finally:
        await store.close()


async def test_events_of_long_ago_are_dropped_by_the_hour(url: str) -> None:
    store = open_postgres(url, node="a")
    try:
        await store.objects.append_events("s", 1, make_frames(1, 2))
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(
                "CREATE TABLE event_blocks_2020010107 PARTITION OF event_blocks FOR VALUES"
                " FROM ('2020-01-01 07:00+00') TO ('2020-01-01 08:00+00')"
            )
            for hour in (7, 9):  # in its own partition, and in the rest
                db.execute(
                    "INSERT INTO event_blocks (tenant, stream, first, last, made, body)"
                    " SELECT 0, 's', first - 100, last - 100, %s, body FROM event_blocks"
                    " WHERE first = 1",
                    (f"2020-01-01 {hour:02}:30+00",),
                )
            await store.objects.append_events("s", 5, make_frames(5, 5))
            renew_partitions(db, 24.0)
            row = db.execute("SELECT to_regclass('event_blocks_2020010107')").fetchone()
            assert row == (None,)
            left = db.execute("SELECT first FROM event_blocks ORDER BY first").fetchall()
        assert left == [(1,), (5,)]
        # What is missing keeps its numbers.
        found = await store.objects.read_events("s", after=0)
        assert found == [*make_frames(1, 2), b"", b"", *make_frames(5, 5)]
    finally:
        await store.close()

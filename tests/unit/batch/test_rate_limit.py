"""Requests and tokens a minute, by a clock of the test's own."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from hermes.batch.rate_limit import RateLimit, Rates, SharedStart


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def read(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def list_starts(limit: RateLimit, clock: Clock, sizes: list[int]) -> list[float]:
    starts = []
    for size in sizes:
        await limit.admit(size)
        starts.append(clock.now - 100.0)
    return starts


async def test_no_minute_has_more_requests_than_allowed() -> None:
    clock = Clock()
    limit = RateLimit(Rates.per_minute(60, None), clock=clock.read, sleep=clock.sleep)
    starts = await list_starts(limit, clock, [100] * 200)
    busiest = max(sum(begin <= at < begin + 60 for at in starts) for begin in starts)
    assert 55 < busiest <= 59, "some arrive together"


async def test_a_pause_gives_no_right_to_a_burst() -> None:
    clock = Clock()
    limit = RateLimit(Rates.per_minute(60, None), clock=clock.read, sleep=clock.sleep)
    await list_starts(limit, clock, [1] * 3)
    clock.now += 1000
    starts = await list_starts(limit, clock, [1] * 4)
    assert [round(b - a, 6) for a, b in itertools.pairwise(starts)] == [1.03] * 3


async def test_tokens_of_requests_and_answers_count() -> None:
    clock = Clock()
    limit = RateLimit(Rates.per_minute(None, 60), clock=clock.read, sleep=clock.sleep)
    assert await list_starts(limit, clock, [40, 40]) == [0.0, 10.0]
    limit.charge(5)
    assert await list_starts(limit, clock, [4]) == [25.0]


async def test_a_call_that_is_given_up_leaves_no_start_unused() -> None:
    """Of a hundred that wait, only the next one has its start."""
    clock = Clock()
    reached = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if clock.now == 100.0:
            reached.set()
            await asyncio.Event().wait()
        clock.now += seconds

    limit = RateLimit(Rates.per_minute(60, None), clock=clock.read, sleep=sleep)
    await limit.admit(1)
    waiting = [asyncio.create_task(limit.admit(1)) for _ in range(100)]
    await reached.wait()
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    clock.now += 0.5
    await limit.admit(1)
    assert clock.now - 100.0 < 2.2


async def test_processes_of_a_run_have_one_pace(tmp_path: Path) -> None:
    """However unevenly the calls are spread over them."""
    clock, file = Clock(), tmp_path / "run.rate"
    limits = [
        RateLimit(
            Rates.per_minute(60, 60_000), SharedStart(file), clock=clock.read, sleep=clock.sleep
        )
        for _ in range(3)
    ]
    starts = []
    for number in range(120):
        await limits[0 if number % 7 else number % 3].admit(40)
        starts.append(clock.now)
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert all(abs(gap - 1.03) < 1e-6 for gap in gaps)
    limits[1].charge(10_000)
    await limits[2].admit(1)
    assert clock.now - starts[-1] > 9, "tokens of any of them count"
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(b"torn")
    await limits[0].admit(1)


async def test_a_late_start_does_not_delay_those_after_it() -> None:
    clock = Clock()

    async def sleep_long(seconds: float) -> None:
        clock.now += seconds + 0.02

    limit = RateLimit(Rates.per_minute(600, None), clock=clock.read, sleep=sleep_long)
    starts = await list_starts(limit, clock, [1] * 101)
    assert starts[-1] < 100 * 0.103 + 0.05

"""Requests and tokens a minute, by a clock of the test's own."""

from __future__ import annotations

import itertools

from hermes.batch.rate_limit import RateLimit, Rates


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

"""Ten thousand random expressions against a clock that is looked at every minute."""

from __future__ import annotations

import random

import pytest

from tests.unit.cron.clock_oracle import DAY, ZONES, clock_changes, random_expression
from tests.unit.cron.test_schedule import compare_with_clock


@pytest.mark.parametrize("zone", ZONES)
def test_random_expressions(zone: str) -> None:
    rng = random.Random(f"{zone} long")
    changes = clock_changes(zone)
    for _ in range(10_000 // len(ZONES) + 1):
        day = rng.choice(changes)
        if rng.random() < 0.2:
            day += rng.randrange(-100, 100) * DAY
        compare_with_clock(random_expression(rng), zone, day, rng)

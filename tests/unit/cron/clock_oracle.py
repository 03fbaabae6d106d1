"""When cron expressions fire, by looking at a clock every minute; and random expressions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import groupby
from zoneinfo import ZoneInfo

ZONES = (
    "Europe/Berlin",
    "Europe/London",
    "America/New_York",
    "America/St_Johns",
    "America/Santiago",
    "America/Havana",
    "America/Nuuk",
    "Atlantic/Azores",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
NAMES = "sun mon tue wed thu fri sat".split()


@cache
def clock_changes(zone: str) -> list[datetime]:
    """The start of each UTC day between 2024 and 2030 in which the zone changes its offset."""
    tz, found = ZoneInfo(zone), []
    day = datetime(2024, 1, 1, tzinfo=UTC)
    while day.year < 2031:
        following = day + DAY
        if day.astimezone(tz).utcoffset() != following.astimezone(tz).utcoffset():
            found.append(day)
        day = following
    return found


@cache
def minutes_around(zone: str, start: datetime, days: int) -> list[tuple[datetime, datetime]]:
    """Each real minute, and what local clocks show in it."""
    tz = ZoneInfo(zone)
    moments = (start + n * MINUTE for n in range(days * 1440))
    return [(moment, moment.astimezone(tz).replace(tzinfo=None)) for moment in moments]


@dataclass(frozen=True)
class Expression:
    minutes: tuple[str, frozenset[int]]
    hours: tuple[str, frozenset[int]]
    days: tuple[str, frozenset[int]]
    months: tuple[str, frozenset[int]]
    weekdays: tuple[str, frozenset[int]]

    @property
    def text(self) -> str:
        fields = (self.minutes, self.hours, self.days, self.months, self.weekdays)
        return " ".join(text for text, _ in fields)

    def matches_day(self, day: date) -> bool:
        if day.month not in self.months[1]:
            return False
        by_number = day.day in self.days[1]
        by_name = day.isoweekday() % 7 in self.weekdays[1]
        if self.days[0].startswith("*") or self.weekdays[0].startswith("*"):
            return by_number and by_name
        return by_number or by_name

    def matches(self, wall: datetime) -> bool:
        return (
            wall.minute in self.minutes[1]
            and wall.hour in self.hours[1]
            and self.matches_day(wall.date())
        )

    def fire(self, minutes: list[tuple[datetime, datetime]]) -> list[datetime]:
        """The first minute only says where the clock stood before."""
        if self.minutes[0].startswith("*") or self.hours[0].startswith("*"):
            return [
                moment
                for day, group in groupby(minutes[1:], key=lambda row: row[1].date())
                if self.matches_day(day)
                for moment, wall in group
                if wall.minute in self.minutes[1] and wall.hour in self.hours[1]
            ]
        return list(self._fire_fixed(minutes))

    def _fire_fixed(self, minutes: list[tuple[datetime, datetime]]) -> Iterator[datetime]:
        """A time that clocks skip fires when they have skipped it, a repeated one does not."""
        latest = minutes[0][1]
        for moment, wall in minutes[1:]:
            if wall <= latest:
                continue
            passed = (latest + n * MINUTE for n in range(1, (wall - latest) // MINUTE + 1))
            if any(map(self.matches, passed)):
                yield moment
            latest = wall


def random_expression(rng: random.Random) -> Expression:
    days = _random_field(rng, 1, 31, 0.6)
    while min(days[1]) > 29:  # some of these never happen, which is an error
        days = _random_field(rng, 1, 31, 0.6)
    return Expression(
        _random_field(rng, 0, 59, 0.3),
        _random_field(rng, 0, 23, 0.4),
        days,
        _random_field(rng, 1, 12, 0.8),
        _random_weekdays(rng),
    )


def _random_weekdays(rng: random.Random) -> tuple[str, frozenset[int]]:
    if rng.random() < 0.3:
        number = rng.randrange(7)
        return rng.choice((NAMES[number], NAMES[number].upper())), frozenset({number})
    text, numbers = _random_field(rng, 0, 7, 0.5)
    return text, frozenset(number % 7 for number in numbers)


def _random_field(
    rng: random.Random, low: int, high: int, star: float
) -> tuple[str, frozenset[int]]:
    if rng.random() < star:
        if rng.random() < 0.6:
            return "*", frozenset(range(low, high + 1))
        step = rng.randint(1, high)
        return f"*/{step}", frozenset(range(low, high + 1, step))
    parts = [_random_part(rng, low, high) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return ",".join(text for text, _ in parts), frozenset().union(*(found for _, found in parts))


def _random_part(rng: random.Random, low: int, high: int) -> tuple[str, frozenset[int]]:
    first = rng.randint(low, high)
    last = rng.randint(first, high)
    step = rng.randint(1, 10)
    match rng.randrange(4):
        case 0 if last > first:
            return f"{first}-{last}", frozenset(range(first, last + 1))
        case 1 if last > first:
            return f"{first}-{last}/{step}", frozenset(range(first, last + 1, step))
        case 2:
            return f"{first}/{step}", frozenset(range(first, high + 1, step))
        case _:
            return str(first), frozenset({first})

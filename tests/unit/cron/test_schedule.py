"""Schedules against a clock that is looked at every minute, and the words people write."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.core.errors import ConfigError
from hermes.cron.schedule import Schedule, load_zone, parse_duration, parse_schedule, parse_time
from tests.unit.cron.clock_oracle import (
    DAY,
    MINUTE,
    ZONES,
    Expression,
    clock_changes,
    minutes_around,
    random_expression,
)

NOW = datetime(2026, 11, 15, 12, 0, 30, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def times(text: str, zone: str, after: str, count: int = 3) -> list[str]:
    tz = ZoneInfo(zone)
    start = parse_time(after, tz)
    found = parse_schedule(text, tz, start).list_times(start, start)
    return [moment.isoformat() for moment in islice(found, count)]


@pytest.mark.parametrize("zone", ZONES)
def test_each_occurrence_once_at_every_clock_change(zone: str) -> None:
    rng = random.Random(zone)
    for change in clock_changes(zone):
        for _ in range(2):
            compare_with_clock(random_expression(rng), zone, change, rng)


@pytest.mark.parametrize("zone", ZONES)
def test_each_minute_of_the_hours_around_a_change(zone: str) -> None:
    """Fixed times in all the hours that a change can skip or repeat."""
    rng = random.Random(zone)
    every = ("*", frozenset(range(60)))
    days, months, weekdays = (("*", frozenset(range(32))),) * 3
    for change in clock_changes(zone)[-2:]:
        for hour in (0, 1, 2, 3, 22, 23):
            for minutes in (("0,30", frozenset({0, 30})), ("15", frozenset({15})), every):
                hours = (str(hour), frozenset({hour}))
                expression = Expression(minutes, hours, days, months, weekdays)
                compare_with_clock(expression, zone, change, rng)


def compare_with_clock(
    expression: Expression, zone: str, change: datetime, rng: random.Random
) -> None:
    begin = change - DAY
    minutes = minutes_around(zone, begin, 3)
    expected = expression.fire(minutes)
    skipped = rng.randrange(2 * 1440)
    tz = ZoneInfo(zone)
    schedule = Schedule("cron", tz, expression=expression.text)
    end = minutes[-1][0]
    for after in (begin, begin + skipped * MINUTE):
        found = takewhile(lambda moment: moment <= end, schedule.list_times(after, after))
        assert [moment.astimezone(UTC) for moment in found] == [
            moment for moment in expected if moment > after
        ], (expression.text, zone, after)


def test_a_skipped_time_runs_at_the_end_of_the_gap() -> None:
    assert times("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_doubled_time_runs_once_the_first_time() -> None:
    assert times("daily 02:30", "Europe/Berlin", "2026-10-24T12:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    # From within the repeated hour the first one is over.
    found = times("daily 02:30", "Europe/Berlin", "2026-10-25T02:15:00+01:00", 1)
    assert found == ["2026-10-26T02:30:00+01:00"]


def test_with_a_star_every_real_time_counts() -> None:
    assert times("30 * * * *", "Europe/Berlin", "2026-10-25T01:00", 4) == [
        "2026-10-25T01:30:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-25T03:30:00+01:00",
    ]
    # The half hour that Lord Howe gains.
    assert times("*/15 2 * * *", "Australia/Lord_Howe", "2026-04-05T01:00", 3) == [
        "2026-04-05T02:00:00+10:30",
        "2026-04-05T02:15:00+10:30",
        "2026-04-05T02:30:00+10:30",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30m", ["2026-11-15T13:30:30+01:00"]),
        ("2h", ["2026-11-15T15:00:30+01:00"]),
        ("1d", ["2026-11-16T13:00:30+01:00"]),
        ("every 90m", ["2026-11-15T14:30:30+01:00", "2026-11-15T16:00:30+01:00"]),
        ("daily 09:00", ["2026-11-16T09:00:00+01:00", "2026-11-17T09:00:00+01:00"]),
        ("weekdays 09:00", ["2026-11-16T09:00:00+01:00", "2026-11-17T09:00:00+01:00"]),
        ("Mon,Thu 18:30", ["2026-11-16T18:30:00+01:00", "2026-11-19T18:30:00+01:00"]),
        ("sun 7:05", ["2026-11-22T07:05:00+01:00", "2026-11-29T07:05:00+01:00"]),
        ("0 9 * * 1-5", ["2026-11-16T09:00:00+01:00", "2026-11-17T09:00:00+01:00"]),
        ("0  9 * *  MON", ["2026-11-16T09:00:00+01:00", "2026-11-23T09:00:00+01:00"]),
        ("0 0 L * *", ["2026-11-30T00:00:00+01:00", "2026-12-31T00:00:00+01:00"]),
        ("0 0 29 2 *", ["2028-02-29T00:00:00+01:00", "2032-02-29T00:00:00+01:00"]),
        ("2026-12-01T09:00", ["2026-12-01T09:00:00+01:00"]),
        ("2026-12-01 09:00:05", ["2026-12-01T09:00:05+01:00"]),
        ("2026-12-01T09:00Z", ["2026-12-01T10:00:00+01:00"]),
        ("2027-03-28T02:30", ["2027-03-28T03:00:00+02:00"]),
    ],
)
def test_what_people_write(text: str, expected: list[str]) -> None:
    found = parse_schedule(text, BERLIN, NOW).list_times(NOW, NOW)
    assert [moment.isoformat() for moment in islice(found, 2)] == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "soon", "30", "30s", "0m", "-5m", "1.5h", "1w", "30 m", "9999999m", "٣m"),
        *("every", "every day", "every 0m", "every 30s", "every 1h30m", "every -1h"),
        *("0 9 * *", "0 0 9 * * 1", "0 9 * * * 2026", "60 9 * * *", "0 24 * * *", "0 9 0 * *"),
        *("0 9 * 13 *", "0 9 * * 8", "0 9 31 4 *", "0 9 * * mon#6", "*/0 * * * *", "a b c d e"),
        *("0 9 * * mon#2/2", "@daily", "daily", "daily 25:00", "daily 09:60", "daily 9", "mo 9:00"),
        *("weekends 09:00", "mon, thu 18:30", ",mon 09:00", "monday 09:00", "0 9 * * L", "9:00"),
        *("2026-12-01", "2026-13-01T09:00", "2026-12-01T25:00", "20261201T0900", "tomorrow 09:00"),
        *("999999999999999999999999 9 * * *", "\x00 9 * * *", "0\n9\n*\n*", "daily 09:00 now"),
    ],
)
def test_what_nobody_understands(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_schedule(text, BERLIN, NOW)
    assert "is not understood" in str(error.value) or "is not an ISO time" in str(error.value)


@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(st.text("0123456789*/,-#LWmonfri", max_size=6), min_size=5, max_size=5).map(
            " ".join
        ),
    )
)
def test_whatever_is_written_is_understood_or_refused(text: str) -> None:
    try:
        found = parse_schedule(text, BERLIN, NOW).find_next(NOW, NOW)
    except ConfigError:
        return
    assert found is not None and found > NOW


def test_the_sentence_about_a_schedule_that_is_not_understood() -> None:
    with pytest.raises(ConfigError) as error:
        parse_schedule("0 0 9 * * 1", BERLIN, NOW)
    assert str(error.value) == (
        'Schedule "0 0 9 * * 1" is not understood. Examples: 30m, every 2h, 0 9 * * 1-5, '
        "daily 09:00, 2026-12-01T09:00."
    )


def test_a_past_time_is_an_error() -> None:
    with pytest.raises(ConfigError, match="in the past"):
        parse_schedule("2026-11-15T13:00", BERLIN, NOW)


def test_every_counts_from_its_anchor_also_over_clock_changes() -> None:
    anchor = datetime(2026, 10, 24, 22, 0, tzinfo=UTC)
    schedule = parse_schedule("every 2h", BERLIN, anchor)
    after = anchor + timedelta(hours=3)
    found = [m.isoformat() for m in islice(schedule.list_times(after, anchor), 2)]
    assert found == ["2026-10-25T03:00:00+01:00", "2026-10-25T05:00:00+01:00"]


def test_times_end_where_the_calendar_does() -> None:
    after = datetime(9999, 12, 30, tzinfo=UTC)
    utc = ZoneInfo("UTC")
    assert len(list(Schedule("cron", utc, expression="0 9 * * *").list_times(after, after))) == 2
    period = Schedule("every", utc, period=timedelta(days=1))
    assert len(list(period.list_times(after, after))) == 1


@pytest.mark.parametrize("name", ["", "Nowhere/City", "../../etc/passwd", "Europe", "/etc/x", "\0"])
def test_unknown_zones(name: str) -> None:
    with pytest.raises(ConfigError, match="is not known"):
        load_zone(name)


def test_durations() -> None:
    assert parse_duration("30m") == timedelta(minutes=30)
    with pytest.raises(ConfigError, match="is not a duration"):
        parse_duration("half an hour")

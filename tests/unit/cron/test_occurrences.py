"""What becomes of times that have come: on time, late, after days, with a clock that jumps."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from msgspec import structs

from hermes.core.store import ScheduledJob
from hermes.cron.occurrences import (
    MAX_ROWS,
    delay_due,
    format_due,
    list_dues,
    plan_manual_run,
    plan_runs,
    start_schedule,
)

NOW = 1_794_744_030.0  # 2026-11-15T12:00:30Z
HOUR = 3600
DAY = 86400


def make_job(schedule: str, **fields: Any) -> ScheduledJob:
    job = ScheduledJob("a1", "a job", schedule, "Europe/Berlin", prompt="do", created=NOW, **fields)
    return start_schedule(job, NOW)


def plan_states(job: ScheduledJob, now: float) -> list[str]:
    return [run.state for run in plan_runs(job, now)[1]]


def test_a_run_on_time() -> None:
    job = make_job("every 1h")
    assert job.next == int(NOW) + HOUR
    advanced, runs = plan_runs(job, job.next + 3)
    assert [(run.due, run.state, run.late) for run in runs] == [(job.next, "claimed", 3)]
    assert advanced.next == job.next + HOUR
    assert advanced.runs == 1


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("one", ["missed", "missed", "claimed"]),
        ("skip", ["missed", "missed", "missed"]),
        ("all", ["claimed", "claimed", "claimed"]),
    ],
)
def test_off_for_three_days(missed: Any, expected: list[str]) -> None:
    job = make_job("daily 09:00", missed=missed)
    assert job.next is not None
    assert plan_states(job, job.next + 2 * DAY + 2 * HOUR) == expected
    # A run that is a little late was not missed.
    last = ["missed", "missed", "claimed"] if missed == "skip" else expected
    assert plan_states(job, job.next + 2 * DAY + 500) == last


def test_all_makes_up_for_24_at_most() -> None:
    states = plan_states(make_job("every 1h", missed="all"), NOW + 100 * HOUR)
    assert states == ["missed"] * 76 + ["claimed"] * 24


def test_a_year_of_minutes_is_recorded_in_bounds() -> None:
    job = make_job("every 1m")
    advanced, runs = plan_runs(job, NOW + 365 * DAY)
    assert len(runs) == MAX_ROWS
    assert runs[0].error == f"{365 * 1440 - MAX_ROWS} more were missed before."
    assert [run.state for run in runs].count("claimed") == 1
    assert advanced.next is not None and advanced.next > NOW + 365 * DAY


def test_once_ends_after_its_time() -> None:
    advanced, runs = plan_runs(make_job("30m"), NOW + 1801)
    assert [run.state for run in runs] == ["claimed"]
    assert (advanced.next, advanced.wake) == (None, None)
    assert plan_runs(advanced, NOW + DAY)[1] == []


def test_repeat_ends_a_job() -> None:
    job = make_job("every 1h", repeat=2)
    for hour in (1, 2):
        assert job.next is not None
        job, runs = plan_runs(job, NOW + hour * HOUR + 1)
        assert [run.state for run in runs] == ["claimed"]
    assert (job.next, job.runs) == (None, 2)
    assert plan_states(make_job("every 1h", repeat=2, missed="all"), NOW + 5 * HOUR + 1) == [
        *["missed"] * 3,
        *["claimed"] * 2,
    ]


def test_a_clock_set_back_repeats_nothing() -> None:
    job = make_job("every 1h")
    advanced, runs = plan_runs(job, NOW + 10 * HOUR)
    assert runs
    for back in range(1, 10):
        assert plan_runs(advanced, NOW + back * HOUR)[1] == []


def test_jitter_is_the_same_everywhere_and_within_bounds() -> None:
    job = make_job("every 1h", jitter=600.0)
    dues = list(islice(list_dues(job, NOW), 50))
    delays = {delay_due(job, due) - due for due in dues}
    assert len(delays) > 30 and min(delays) >= 0 and max(delays) < 600
    assert job.next is not None and job.wake == delay_due(job, job.next)
    assert plan_states(job, job.wake) == ["claimed"]


def test_a_manual_run_takes_no_time_of_the_schedule() -> None:
    job = make_job("* * * * *")
    assert job.next is not None
    run = plan_manual_run(job, job.next, frozenset({job.next + 1}))
    assert run.due == job.next + 2
    assert [r.due for r in plan_runs(job, job.next)[1]] == [job.next]


def test_times_are_shown_in_the_zone_of_the_job() -> None:
    job = make_job("daily 09:00")
    assert job.next is not None
    assert format_due(job, job.next) == "2026-11-16T09:00:00+01:00"
    assert structs.replace(job, zone="UTC").next == job.next

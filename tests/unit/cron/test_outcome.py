"""What is told about runs, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.core.store import JobRun, ScheduledJob
from hermes.cron.outcome import (
    INTERRUPTED,
    RunOutcome,
    settle_outcome,
    take_message,
    write_output,
)

JOB = ScheduledJob("a1", "backup", "daily 09:00", "UTC", prompt="do", next=1)
RUN = JobRun("a1", 1_794_733_200, "running")
FAILED = RunOutcome("failed", error="No space left.")
HOUR = 3600.0
LONG = "x" * 301


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("All is well.", "All is well."),
        ("  \n", ""),
        ("[SILENT]", ""),
        ("[SILENT] nothing new", ""),
        ("Nothing new.\n[SILENT]", ""),
        ("Nothing new.\n\n  [SILENT]  \n", ""),
        (f"[SILENT] {LONG}", LONG),
        (f"{LONG}\n[SILENT]", LONG),
        ("x" * 300 + "\n[SILENT]", ""),
        ("It said [SILENT] to me.", "It said [SILENT] to me."),
        ("Answer [SILENT]", "Answer [SILENT]"),
        ("[SILENT]\nNothing new.\n[SILENT]", ""),
        (f"[SILENT]\n{LONG}\n[SILENT]", LONG),
        ("[silent]", "[silent]"),
    ],
)
def test_the_silent_mark(answer: str, message: str) -> None:
    assert take_message(answer) == message


def settle_all(
    outcomes: list[RunOutcome], every: float = HOUR
) -> tuple[ScheduledJob, list[JobRun]]:
    job, runs = JOB, []
    for number, outcome in enumerate(outcomes):
        job, run = settle_outcome(job, RUN, outcome, number * every)
        runs.append(run)
    return job, runs


def told(runs: list[JobRun]) -> list[str]:
    return [run.text for run in runs if run.delivery == "pending"]


def test_nine_equal_failures_and_a_success_are_two_messages() -> None:
    job, runs = settle_all([*[FAILED] * 9, RunOutcome("ok", "Done.")])
    assert told(runs) == [
        "backup failed: No space left.",
        "backup works again after 9 failures.\n\nDone.",
    ]
    assert {run.delivery for run in runs[1:9]} == {"none"}
    assert (job.failures, job.error, job.paused) == (0, "", False)


def test_a_silent_success_still_ends_a_series_of_failures() -> None:
    _, runs = settle_all([FAILED, RunOutcome("ok", "[SILENT]"), RunOutcome("ok", "[SILENT]")])
    assert told(runs) == ["backup failed: No space left.", "backup works again after 1 failure."]
    assert runs[2].delivery == "silent"


def test_each_new_error_is_told() -> None:
    other = RunOutcome("timeout", error="It took longer than 30 minutes and was stopped.")
    _, runs = settle_all([FAILED, FAILED, other, FAILED])
    assert len(told(runs)) == 3


def test_the_same_error_is_told_daily_with_a_count() -> None:
    _, runs = settle_all([FAILED] * 8, every=6 * HOUR)
    assert told(runs) == ["backup failed: No space left.", "backup failed 5 times: No space left."]


def test_after_ten_failures_it_is_paused_and_says_so() -> None:
    job, runs = settle_all([FAILED] * 10)
    assert job.paused
    assert told(runs)[1] == (
        "backup failed 10 times: No space left. It is paused after 10 failures in a row. Resume "
        "it with: hermes cron resume a1"
    )


def test_every_interrupted_run_is_told() -> None:
    _, runs = settle_all([INTERRUPTED, INTERRUPTED])
    assert len(told(runs)) == 2 and {run.state for run in runs} == {"interrupted"}


def test_the_result_is_a_private_file_and_old_ones_go(tmp_path: Path) -> None:
    for number in range(5):
        due = RUN.due + number * 60
        run = JobRun("a1", due, "ok", session="s1")
        name = write_output(tmp_path, JOB, run, f"answer {number}", 3)
    folder = tmp_path / "cron" / "output" / "a1"
    files = sorted(folder.iterdir())
    assert len(files) == 3 and files[-1].name == name
    assert files[-1].stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o700
    assert files[-1].read_text().endswith("session s1\n\nanswer 4\n")

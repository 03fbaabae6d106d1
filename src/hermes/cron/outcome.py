"""How a run ended, what is told about it, and when the same failure is not told again."""

from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from hermes.config.paths import make_private_folder
from hermes.config.private_files import replace_file
from hermes.core.store import JobRun, ScheduledJob
from hermes.core.text import format_plural
from hermes.cron.occurrences import format_due, to_datetime

EndState: TypeAlias = Literal["ok", "failed", "timeout", "interrupted"]
SILENT = "[SILENT]"
_SILENT_LENGTH = 300
"""Characters beside the mark that are not worth a message."""
_REMINDER_SECONDS = 86400
MAX_FAILURES = 10
"""Failures in a row after which a job is paused."""


class RunOutcome(Struct, frozen=True):
    state: EndState
    text: str = ""
    """The answer of the agent or the output of the script."""
    error: str = ""
    session: str = ""


INTERRUPTED = RunOutcome(
    "interrupted", error="The run was interrupted: its process ended. It is not repeated."
)


def take_message(answer: str) -> str:
    """The part of an answer that is delivered; empty: nothing is."""
    whole = answer.strip()
    text = whole.removeprefix(SILENT).strip()
    *lines, last = text.split("\n")
    if last.strip() == SILENT:
        text = "\n".join(lines).strip()
    is_silent = text != whole and len(text) <= _SILENT_LENGTH
    return "" if is_silent else text


def settle_outcome(
    job: ScheduledJob, run: JobRun, outcome: RunOutcome, now: float
) -> tuple[ScheduledJob, JobRun]:
    """The job and the run after this outcome."""
    run = structs.replace(
        run, state=outcome.state, ended=now, error=outcome.error, session=outcome.session
    )
    if outcome.state == "ok":
        message = take_message(outcome.text)
        if job.failures:
            count = format_plural(job.failures, "failure")
            message = f"{job.name} works again after {count}.\n\n{message}".strip()
        delivery = "pending" if message else "silent"
        job = structs.replace(job, failures=0, error="", error_told=0.0)
        return job, structs.replace(run, delivery=delivery, text=message)
    failures = job.failures + 1
    is_known = bool(job.failures) and outcome.error == job.error and outcome.state != "interrupted"
    is_paused = failures >= MAX_FAILURES
    if is_known and not is_paused and now - job.error_told < _REMINDER_SECONDS:
        return structs.replace(job, failures=failures), run
    times = f" {failures} times" if is_known else ""
    message = f"{job.name} failed{times}: {outcome.error}"
    if is_paused:
        message += (
            f" It is paused after {failures} failures in a row. Resume it with: "
            f"hermes cron resume {job.id}"
        )
    job = structs.replace(
        job, failures=failures, error=outcome.error, error_told=now, paused=job.paused or is_paused
    )
    return job, structs.replace(run, delivery="pending", text=message)


def write_output(home: Path, job: ScheduledJob, run: JobRun, answer: str, keep: int) -> str:
    """Write the result into a private file, remove the oldest ones, and return its name."""
    folder = home / "cron" / "output" / job.id
    make_private_folder(folder)
    name = to_datetime(run.due).strftime("%Y%m%dT%H%M%SZ.md")
    lines = [f"# {job.name}", "", f"due {format_due(job, run.due)}, {run.state}"]
    if run.session:
        lines.append(f"session {run.session}")
    body = "\n\n".join(filter(None, (run.error, answer.strip())))
    replace_file(folder / name, "\n".join([*lines, "", body, ""]).encode("utf-8", "replace"))
    for old in sorted(folder.glob("*.md"))[:-keep]:
        old.unlink(missing_ok=True)
    return name

"""The check of the schedule: whether a process runs it, and what needs attention."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from hermes.app.control.doctor.check import Check
from hermes.config import paths
from hermes.core.errors import StoreError
from hermes.core.store import JobRun, ScheduledJob
from hermes.core.text import format_plural
from hermes.store.sqlite import SqliteStore

_LATEST_RUNS = 100


async def check_schedule(home: Path) -> Check:
    if not paths.database_file(home).exists():
        return Check("schedule", "ok", "no jobs")
    store = SqliteStore(paths.database_file(home))
    try:
        jobs = await store.jobs.list_jobs()
        runs = await store.jobs.list_runs(limit=_LATEST_RUNS)
    except StoreError:  # the check of the sessions says why
        return Check("schedule", "note", "the jobs could not be read")
    finally:
        await store.close()
    return _judge_schedule(home, jobs, runs)


def _judge_schedule(home: Path, jobs: Sequence[ScheduledJob], runs: Sequence[JobRun]) -> Check:
    from hermes.cron.heartbeat import list_schedulers

    details = tuple(_list_problems(jobs, runs))
    text = format_plural(len(jobs), "job") if jobs else "no jobs"
    is_active = any(job.next is not None and not job.paused for job in jobs)
    if living := list_schedulers(home):
        text += f"; {living[0].name} pid {living[0].pid} runs them"
    elif is_active:
        text += ", but no scheduler is running; run: hermes gateway start, or hermes cron daemon"
        return Check("schedule", "note", text, details)
    return Check("schedule", "note" if details else "ok", text, details)


def _list_problems(jobs: Sequence[ScheduledJob], runs: Sequence[JobRun]) -> Iterator[str]:
    for job in jobs:
        if job.failures:
            count = format_plural(job.failures, "time")
            state = "paused after it" if job.paused else "it"
            yield f"{job.id} {job.name}: {state} failed {count} in a row: {job.error}"
    pending = sum(run.delivery == "pending" and bool(run.output) for run in runs)
    if pending:
        yield f"{format_plural(pending, 'result')} not delivered; see hermes cron runs"

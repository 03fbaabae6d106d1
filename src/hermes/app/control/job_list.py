"""The jobs of the schedule with their next times and last runs."""

from typing import Any

from msgspec import to_builtins

from hermes.core.store import ScheduledJob
from hermes.cron.job_editor import JobEditor, describe_job

_NEXT_TIMES = 5
_MAX_RUNS = 20


async def describe_jobs(editor: JobEditor) -> list[dict[str, Any]]:
    rows = []
    for job in await editor.jobs.list_jobs():
        runs = await editor.jobs.list_runs(job.id, limit=_MAX_RUNS)
        rows.append({**describe_next(editor, job), "history": to_builtins(runs)})
    return rows


def describe_next(editor: JobEditor, job: ScheduledJob) -> dict[str, Any]:
    """A job with its next times."""
    times = editor.list_next(job, _NEXT_TIMES)
    return {**describe_job(job), "paused": job.paused, "next_times": times}

"""/cron: list and change the jobs of the schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermes.app.commands import CommandContext, Reply, command, refuse_agent_tool
from hermes.core.errors import ConfigError
from hermes.core.store import JobRun, ScheduledJob

if TYPE_CHECKING:
    from hermes.cron.job_editor import JobEditor

_USAGE = "[add SCHEDULE PROMPT | runs | pause ID | resume ID | remove ID | run ID]"
_READING = frozenset({"", "list", "runs"})
_MAX_RUNS = 10


@command("cron", "list and change scheduled jobs", _USAGE, admin_only=True, needs_model=False)
async def change_jobs(ctx: CommandContext, args: str) -> Reply:
    editor = ctx.runtime.scheduled_prompts.open_editor()
    action, _, rest = args.partition(" ")
    if action not in _READING:
        refuse_agent_tool("change or run scheduled jobs")
    match action:
        case "" | "list":
            return Reply(_format_jobs(await editor.jobs.list_jobs()))
        case "runs":
            return Reply(_format_runs(await editor.jobs.list_runs(limit=_MAX_RUNS)))
        case "add":
            return Reply(await _add_job(ctx, editor, rest.strip()))
        case "pause" | "resume" | "remove" | "run" if rest.strip():
            job = await editor.find_job(rest.strip())
        case _:
            raise ConfigError(f"Usage: /cron {_USAGE}")
    match action:
        case "pause":
            job = await editor.pause_job(job)
        case "resume":
            job = await editor.resume_job(job)
        case "remove":
            await editor.remove_job(job)
            return Reply(f"Removed {job.name}.")
        case "run":
            outcome = await ctx.runtime.scheduled_prompts.create_scheduler().run_now(job)
            return Reply(outcome.text or outcome.error or "Nothing to report.")
    return Reply(_format_jobs([job]))


async def _add_job(ctx: CommandContext, editor: JobEditor, text: str) -> str:
    from hermes.cron.conversation_jobs import find_origin
    from hermes.cron.job_editor import JobWishes, split_schedule

    schedule, prompt = split_schedule(text, editor.find_zone())
    meta = ctx.session.transcript.meta
    origin = find_origin(meta.source, meta.key, "")
    wishes = JobWishes(
        schedule=schedule, prompt=prompt, workdir=meta.cwd, deliver="origin" if origin else None
    )
    job = editor.draft_job(wishes, origin=origin.key if origin else "")
    await editor.add_job(job)
    return _format_jobs([job])


def _format_jobs(jobs: Sequence[ScheduledJob]) -> str:
    from hermes.cron.job_editor import describe_job

    rows = [(job, describe_job(job)) for job in jobs]
    lines = [f"{job.id}  {row['next'] or row['state']}  {job.name}" for job, row in rows]
    return "\n".join(lines) or "There are no scheduled jobs."


def _format_runs(runs: Sequence[JobRun]) -> str:
    from hermes.cron.occurrences import to_datetime

    lines = [
        f"{run.job}  {to_datetime(run.due):%Y-%m-%dT%H:%MZ}  {run.state}  {run.error}".rstrip()
        for run in runs
    ]
    return "\n".join(lines) or "No job has run yet."

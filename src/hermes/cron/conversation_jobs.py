"""What a conversation may do with the schedule: each change is described before it is made."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from hermes.core.errors import ConfigError
from hermes.core.store import ScheduledJob
from hermes.cron.job_editor import JobEditor, JobWishes, describe_job
from hermes.cron.outcome import RunOutcome

_SHOWN_TIMES = 3


class JobChange(Struct, frozen=True):
    """A change that was checked and not made yet."""

    reason: str
    """What it does, as a clause."""
    text: str
    """Everything about the job as it would be."""
    run: Callable[[], Awaitable[dict[str, Any]]]

    async def apply(self) -> dict[str, Any]:
        return await self.run()


class ConversationJobs:
    """The schedule as the tools of one conversation use it."""

    def __init__(
        self,
        editor: JobEditor,
        run_now: Callable[[ScheduledJob], Awaitable[RunOutcome]],
        cwd: str,
        taint: Callable[[], int],
    ) -> None:
        self._editor = editor
        self._run_now = run_now
        self._cwd = cwd
        self._taint = taint
        """What the conversation has read by now: a job that it makes has read it, too."""

    async def list_jobs(self) -> list[dict[str, Any]]:
        return [_drop_empty(describe_job(job)) for job in await self._editor.jobs.list_jobs()]

    async def plan_change(self, action: str, job: str, wishes: Mapping[str, Any]) -> JobChange:
        """Check a change and describe it; ConfigError when it cannot work."""
        if action == "create":
            return self._plan_job(wishes)
        if not job:
            raise ConfigError(f"{action} needs a job: its id or name.")
        found = await self._editor.find_job(job)
        match action:
            case "update":
                return self._plan_update(found, JobWishes(**wishes))
            case "pause":
                return self._plan(action, found, lambda: self._editor.pause_job(found))
            case "resume":
                return self._plan(action, found, lambda: self._editor.resume_job(found))
            case "remove":
                return self._plan(action, found, lambda: self._remove(found))
        return JobChange(_explain(action), self.describe(found), lambda: self._run(found))

    def _plan_job(self, wishes: Mapping[str, Any]) -> JobChange:
        if not wishes.get("schedule"):
            raise ConfigError("create needs a schedule and a prompt.")
        workdir = wishes.get("workdir") or self._cwd
        draft = self._editor.draft_job(JobWishes(**{**wishes, "workdir": workdir}), self._taint())

        async def add() -> ScheduledJob:
            await self._editor.add_job(draft)
            return draft

        return self._plan("create", draft, add)

    def _plan_update(self, job: ScheduledJob, wishes: JobWishes) -> JobChange:
        changed = self._editor.apply_wishes(job, wishes)
        taint = self._taint()
        return self._plan("update", changed, lambda: self._editor.edit_job(job, wishes, taint))

    def _plan(
        self, action: str, shown: ScheduledJob, change: Callable[[], Awaitable[ScheduledJob]]
    ) -> JobChange:
        async def run() -> dict[str, Any]:
            job = await change()
            times = self._editor.list_next(job, _SHOWN_TIMES)
            return {"id": job.id, "name": job.name, "next": [] if job.paused else times}

        return JobChange(_explain(action), self.describe(shown), run)

    async def _remove(self, job: ScheduledJob) -> ScheduledJob:
        await self._editor.remove_job(job)
        return job

    async def _run(self, job: ScheduledJob) -> dict[str, Any]:
        outcome = await self._run_now(job)
        return _drop_empty({"state": outcome.state, "text": outcome.text, "error": outcome.error})

    def describe(self, job: ScheduledJob) -> str:
        """Everything that a person must see of a job, and its next times."""
        rows = {**describe_job(job), "next": self._editor.list_next(job, _SHOWN_TIMES)}
        names = "name schedule tz next deliver model toolsets workdir script repeat prompt".split()
        return "\n".join(f"{name}: {_format_value(rows[name])}" for name in names if rows[name])


def _explain(action: str) -> str:
    verbs = {"create": "adds", "update": "changes", "run": "runs", "remove": "removes"}
    return f"it {verbs.get(action, action + 's')} a scheduled job, which runs with nobody watching"


def _format_value(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list | tuple) else str(value)


def _drop_empty(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value not in (None, "", (), 0, False)}

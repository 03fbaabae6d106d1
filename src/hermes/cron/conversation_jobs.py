"""What a conversation may do with the schedule: each change is described before it is made."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from hermes.core.errors import ConfigError
from hermes.core.store import ScheduledJob
from hermes.cron.job_editor import JobEditor, JobWishes, describe_job, parse_targets
from hermes.cron.outcome import RunOutcome

_SHOWN_TIMES = 3
_CHAT_KEY = "agent:"
"""The keys of conversations in messengers begin so."""


class JobChange(Struct, frozen=True):
    """A change that was checked and not made yet."""

    reason: str
    """What it does, as a clause."""
    text: str
    """Everything about the job as it would be."""
    run: Callable[[], Awaitable[dict[str, Any]]]

    async def apply(self) -> dict[str, Any]:
        return await self.run()


class JobOrigin(Struct, frozen=True):
    """The chat in which jobs are made."""

    key: str
    targets: tuple[str, ...]
    """Where its jobs may deliver to, besides `origin`, `home` and `local`."""

    def check_targets(self, targets: Sequence[str]) -> None:
        for target in targets:
            place = ":".join(target.split(":")[:2])
            if ":" in target and place not in self.targets:
                raise ConfigError(
                    f"From this chat, results go to origin, home or your direct chat, not to "
                    f"{target}."
                )


def find_origin(source: str, key: str, user: str) -> JobOrigin | None:
    """The chat of a conversation; None: it is in no messenger."""
    if not key.startswith(_CHAT_KEY):
        return None
    chat = key.split(":")[4].replace("%3A", ":").replace("%25", "%")
    people = (user,) if user else ()
    return JobOrigin(key, tuple(f"{source}:{place}" for place in (chat, *people)))


class ConversationJobs:
    """The schedule as the tools of one conversation use it. In a messenger it sees only the jobs
    that it has made itself."""

    def __init__(
        self,
        editor: JobEditor,
        run_now: Callable[[ScheduledJob], Awaitable[RunOutcome]],
        cwd: str,
        taint: Callable[[], int],
        origin: JobOrigin | None = None,
    ) -> None:
        self._editor = editor
        self._origin = origin
        self._run_now = run_now
        self._cwd = cwd
        self._taint = taint
        """What the conversation has read by now: a job that it makes has read it, too."""

    async def list_jobs(self) -> list[dict[str, Any]]:
        jobs = await self._editor.jobs.list_jobs()
        return [_drop_empty(describe_job(job)) for job in jobs if self._is_visible(job)]

    def _is_visible(self, job: ScheduledJob) -> bool:
        return self._origin is None or job.origin == self._origin.key

    async def plan_change(self, action: str, job: str, wishes: Mapping[str, Any]) -> JobChange:
        """Check a change and describe it; ConfigError when it cannot work."""
        if action == "create":
            return self._plan_job(wishes)
        if not job:
            raise ConfigError(f"{action} needs a job: its id or name.")
        found = await self._editor.find_job(job)
        if not self._is_visible(found):
            raise ConfigError(f"There is no job {job!r} of this chat.")
        match action:
            case "update":
                return self._plan_update(found, self._complete_wishes(wishes, ""))
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
        wanted = self._complete_wishes({**wishes, "workdir": workdir}, "origin")
        draft = self._editor.draft_job(wanted, self._taint(), self._find_key())

        async def add() -> ScheduledJob:
            await self._editor.add_job(draft)
            return draft

        return self._plan("create", draft, add)

    def _find_key(self) -> str:
        return self._origin.key if self._origin is not None else ""

    def _complete_wishes(self, wishes: Mapping[str, Any], deliver: str) -> JobWishes:
        """`deliver`: where results go when nothing is said about it in a chat."""
        found = JobWishes(**wishes)
        if self._origin is None:
            return found
        if found.deliver is None:
            return structs.replace(found, deliver=deliver or None)
        self._origin.check_targets(parse_targets(found.deliver, has_origin=True))
        return found

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
        names = "name schedule tz next deliver skills model toolsets workdir script repeat prompt"
        shown = [name for name in names.split() if rows[name]]
        return "\n".join(f"{name}: {_format_value(rows[name])}" for name in shown)


def _explain(action: str) -> str:
    verbs = {"create": "adds", "update": "changes", "run": "runs", "remove": "removes"}
    return f"it {verbs.get(action, action + 's')} a scheduled job, which runs with nobody watching"


def _format_value(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list | tuple) else str(value)


def _drop_empty(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value not in (None, "", (), 0, False)}

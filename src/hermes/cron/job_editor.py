"""Makes and changes jobs from what people and models write, and refuses what cannot work."""

import re
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from hermes.config.time_zone import find_machine_zone
from hermes.core.errors import ConfigError
from hermes.core.store import JobStore, MissedPolicy, ScheduledJob
from hermes.cron.occurrences import format_due, list_dues, set_next, start_schedule
from hermes.cron.schedule import load_zone, not_understood, parse_duration, parse_schedule
from hermes.cron.script import find_script

_LONGEST_NAME = 60
_DEFAULT_NAME = 40
_TARGET = re.compile(r"[a-z][a-z0-9_]*:\S+")
_MAX_PROMPT = 32 * 1024


class JobWishes(Struct, frozen=True):
    """What somebody wants a job to be, as written; None: as it is, or the default."""

    schedule: str | None = None
    prompt: str | None = None
    name: str | None = None
    tz: str | None = None
    deliver: str | None = None
    skills: str | tuple[str, ...] | None = None
    """A list, or names separated by commas."""
    model: str | None = None
    toolsets: str | None = None
    workdir: str | None = None
    script: str | None = None
    no_agent: bool | None = None
    repeat: int | None = None
    missed: MissedPolicy | None = None
    timeout: str | None = None
    max_turns: int | None = None
    budget_usd: float | None = None
    jitter: str | None = None


class JobEditor:
    """Changes jobs in the store; two processes that change the same job keep both changes."""

    def __init__(
        self,
        jobs: JobStore,
        home: Path,
        zone: str = "",
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.jobs = jobs
        self._home = home
        self._zone = zone
        self._clock = clock

    def find_zone(self, wanted: str = "") -> str:
        """The name of the zone that is meant, the configured one or the machine's."""
        return load_zone(wanted or self._zone or find_machine_zone()).key

    async def find_job(self, word: str) -> ScheduledJob:
        """The job with this name, or whose id begins so."""
        jobs = await self.jobs.list_jobs()
        found = [job for job in jobs if word in (job.id, job.name)]
        found = found or [job for job in jobs if word and job.id.startswith(word)]
        match found:
            case [job]:
                return job
            case []:
                raise ConfigError(f"There is no job {word!r}. Run: hermes cron list")
            case several:
                ids = ", ".join(job.id for job in several)
                raise ConfigError(f"{word!r} matches several jobs ({ids}); give the id.")

    def draft_job(self, wishes: JobWishes, taint: int = 0, origin: str = "") -> ScheduledJob:
        """A new job, not stored yet; ConfigError when it could not work. `origin`: the key of the
        conversation in a messenger that it is made in."""
        now = self._clock()
        job = ScheduledJob(
            id=secrets.token_hex(4),
            name="",
            schedule="",
            zone=self.find_zone(wishes.tz or ""),
            created=now,
            taint=taint,
            origin=origin,
        )
        return self.apply_wishes(job, wishes)

    async def add_job(self, job: ScheduledJob) -> None:
        await self.jobs.add_job(job)

    async def edit_job(self, job: ScheduledJob, wishes: JobWishes, taint: int = 0) -> ScheduledJob:
        def change(found: ScheduledJob) -> ScheduledJob:
            changed = self.apply_wishes(found, wishes)
            return structs.replace(changed, taint=found.taint | taint)

        return await self._change_job(job, change)

    async def pause_job(self, job: ScheduledJob) -> ScheduledJob:
        return await self._change_job(job, lambda found: structs.replace(found, paused=True))

    async def resume_job(self, job: ScheduledJob) -> ScheduledJob:
        """Continue a paused job from now on: what it would have run meanwhile is not run."""

        def resume(found: ScheduledJob) -> ScheduledJob:
            if not found.paused:
                return found
            following = next(list_dues(found, self._clock()), None)
            if found.next is not None and following is not None:
                following = max(found.next, following)
            found = structs.replace(found, paused=False, failures=0, error="", error_told=0.0)
            return set_next(found, following)

        return await self._change_job(job, resume)

    async def remove_job(self, job: ScheduledJob) -> None:
        await self.jobs.remove_job(job.id)

    def list_next(self, job: ScheduledJob, count: int) -> list[str]:
        """The next times of the job, in its zone."""
        if job.next is None:
            return []
        dues = [job.next]
        with suppress(ConfigError):  # a zone that is not known any more
            dues = list(islice(list_dues(job, job.next - 1), count))
        return [format_due(job, due) for due in dues]

    def apply_wishes(self, job: ScheduledJob, wishes: JobWishes) -> ScheduledJob:
        """The job as wished; ConfigError when it could not work."""
        plain = {
            name: value
            for name in ("prompt", "model", "script", "no_agent", "repeat", "missed")
            if (value := getattr(wishes, name)) is not None
        }
        changed = structs.replace(job, **plain, **self._read_wishes(wishes, job))
        if not changed.name:
            changed = structs.replace(changed, name=_take_name(changed.prompt or changed.script))
        self._check_job(changed)
        if wishes.schedule is not None or wishes.tz is not None:
            return start_schedule(structs.replace(changed, runs=0), self._clock())
        return set_next(changed, changed.next)

    def _read_wishes(self, wishes: JobWishes, job: ScheduledJob) -> dict[str, Any]:
        """The wishes that are not stored as they were written."""
        found: dict[str, Any] = {}
        if wishes.schedule is not None:
            found["schedule"] = " ".join(wishes.schedule.split())
        if wishes.name is not None:
            found["name"] = " ".join(wishes.name.split())[:_LONGEST_NAME]
        if wishes.tz is not None:
            found["zone"] = self.find_zone(wishes.tz)
        if wishes.deliver is not None:
            found["deliver"] = parse_targets(wishes.deliver, has_origin=bool(job.origin))
        if wishes.skills is not None:
            found["skills"] = _split_names(wishes.skills)
        if wishes.toolsets is not None:
            names = _split_names(wishes.toolsets)
            found["toolsets"] = () if names == ("none",) else names
        if wishes.workdir is not None:
            found["workdir"] = str(Path(wishes.workdir).expanduser().absolute())
        for name in ("timeout", "jitter"):
            if (text := getattr(wishes, name)) is not None:
                found[name] = parse_duration(text).total_seconds()
        if wishes.max_turns is not None:
            found["max_turns"] = wishes.max_turns
        if wishes.budget_usd is not None:
            found["budget_usd"] = wishes.budget_usd
        return found

    def _check_job(self, job: ScheduledJob) -> None:
        if job.script:
            find_script(self._home, job.script)
        if job.no_agent and job.skills:
            raise ConfigError("A job without an agent cannot use skills.")
        if job.no_agent and not job.script:
            raise ConfigError("A job without an agent needs a script.")
        if not job.no_agent and not job.prompt.strip():
            raise ConfigError("A job needs a prompt.")
        if len(job.prompt.encode("utf-8", "replace")) > _MAX_PROMPT:
            raise ConfigError(f"The prompt is longer than {_MAX_PROMPT // 1024} KB.")
        check_folder(job.workdir)

    async def _change_job(
        self, job: ScheduledJob, change: Callable[[ScheduledJob], ScheduledJob]
    ) -> ScheduledJob:
        changed = await self.jobs.change_job(job.id, change)
        if changed is None:
            raise ConfigError(f"The job {job.id} was removed meanwhile. Nothing was changed.")
        return changed


def _split_names(names: str | Sequence[str]) -> tuple[str, ...]:
    words = names.split(",") if isinstance(names, str) else names
    return tuple(dict.fromkeys(filter(None, (word.strip() for word in words))))


def _take_name(text: str) -> str:
    """The first words, as many as fit."""
    words = text.split()
    while len(words) > 1 and len(" ".join(words)) > _DEFAULT_NAME:
        words.pop()
    return " ".join(words)[:_DEFAULT_NAME]


def check_folder(path: str) -> None:
    """ConfigError when a job cannot work in this folder; empty: it names none."""
    if path and not Path(path).is_dir():
        raise ConfigError(f"The folder {path} does not exist.")


def split_schedule(text: str, zone: str) -> tuple[str, str]:
    """The schedule that a line begins with, quoted or not, and the rest of the line."""
    words = text.split()
    if text[:1] in "\"'" and text[1:].count(text[0]):
        schedule, _, rest = text[1:].partition(text[0])
        return schedule, rest.strip()
    for count in (5, 2, 1):
        schedule = " ".join(words[:count])
        try:
            parse_schedule(schedule, load_zone(zone), datetime.now(UTC))
        except ConfigError:
            continue
        return schedule, " ".join(words[count:])
    raise not_understood(text)


def parse_targets(text: str, *, has_origin: bool = False) -> tuple[str, ...]:
    """Where results go; ConfigError when a target cannot exist. Only jobs that were made in a chat
    have an `origin`."""
    known = ("local", "home", "origin") if has_origin else ("local", "home")
    targets = tuple(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
    for target in targets or ("",):
        if target not in known and not _TARGET.fullmatch(target):
            names = ", ".join(known)
            raise ConfigError(f"{target!r} is not a target. Use {names} or platform:chat.")
    return targets


def describe_state(job: ScheduledJob) -> str:
    return "paused" if job.paused else "active" if job.next is not None else "done"


def describe_job(job: ScheduledJob) -> dict[str, Any]:
    """The job for programs; times are ISO times in its zone."""
    names = (
        "id name schedule prompt deliver origin skills model toolsets workdir script no_agent "
        "repeat missed timeout max_turns budget_usd jitter runs failures error"
    )
    return {
        **{name: getattr(job, name) for name in names.split()},
        "tz": job.zone,
        "state": describe_state(job),
        "created": format_due(job, job.created),
        "next": None if job.next is None or job.paused else format_due(job, job.next),
    }

"""Which runs of a job are due, and what becomes of those that nobody ran in time."""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from hashlib import sha256

from msgspec import structs

from hermes.core.errors import ConfigError
from hermes.core.store import JobRun, ScheduledJob
from hermes.cron.schedule import Schedule, load_zone, parse_schedule

LATE_SECONDS = 600
"""A run that begins later than this was missed."""
MAX_CATCH_UP = 24
"""Most missed runs that `all` makes up for."""
MAX_ROWS = 1000
"""Most missed runs that are recorded at once; the oldest of them says how many came before."""


def read_schedule(job: ScheduledJob) -> Schedule:
    """The schedule of a stored job."""
    return parse_schedule(job.schedule, load_zone(job.zone), to_datetime(job.anchor))


def start_schedule(job: ScheduledJob, now: float) -> ScheduledJob:
    """The job with its schedule begun now; ConfigError when it is not understood."""
    job = structs.replace(job, anchor=now)
    return set_next(job, next(list_dues(job, now), None))


def set_next(job: ScheduledJob, due: int | None) -> ScheduledJob:
    return structs.replace(job, next=due, wake=None if due is None else delay_due(job, due))


def list_dues(job: ScheduledJob, after: float) -> Iterator[int]:
    """The times later than `after` at which the job is due."""
    times = read_schedule(job).list_times(to_datetime(after), to_datetime(job.anchor))
    return (int(moment.timestamp()) for moment in times)


def delay_due(job: ScheduledJob, due: int) -> int:
    """When the run of that time begins: the same in every process."""
    if not job.jitter:
        return due
    digest = sha256(f"{job.id} {due}".encode()).digest()
    return due + int(job.jitter * int.from_bytes(digest[:4]) / (1 << 32))


def plan_runs(job: ScheduledJob, now: float) -> tuple[ScheduledJob, list[JobRun]]:
    """The job with its next time, and a run for each time that has come, the oldest first."""
    if job.next is None:
        return job, []
    dues: deque[int] = deque(maxlen=MAX_ROWS)
    count, following = 0, None
    for due in list_dues(job, job.next - 1):
        if delay_due(job, due) > now:
            following = due
            break
        dues.append(due)
        count += 1
    is_late = bool(dues) and now - delay_due(job, dues[-1]) > LATE_SECONDS
    wanted = {"one": 1, "skip": 0 if is_late else 1, "all": MAX_CATCH_UP}[job.missed]
    if job.repeat is not None:
        wanted = min(wanted, job.repeat - job.runs)
    first = len(dues) - min(wanted, len(dues))
    runs = [
        JobRun(job.id, due, "claimed" if n >= first else "missed", late=max(0, int(now - due)))
        for n, due in enumerate(dues)
    ]
    if count > len(dues):
        runs[0] = structs.replace(runs[0], error=f"{count - len(dues)} more were missed before.")
    total = job.runs + len(dues) - first
    is_over = job.repeat is not None and total >= job.repeat
    advanced = set_next(job, None if is_over else following)
    return structs.replace(advanced, runs=total), runs


def plan_manual_run(job: ScheduledJob, now: float, taken: frozenset[int]) -> JobRun:
    """A run at a second at which the job is not due otherwise."""
    due = int(now)
    while due in taken or next(list_dues(job, due - 1), None) == due:
        due += 1
    return JobRun(job.id, due, "claimed")


def format_due(job: ScheduledJob, due: float) -> str:
    """The time as the job's zone writes it; in UTC if that zone is not known any more."""
    zone: tzinfo = UTC
    with suppress(ConfigError):
        zone = load_zone(job.zone)
    return to_datetime(due).astimezone(zone).isoformat(timespec="seconds")


def to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

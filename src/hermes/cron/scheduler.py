"""Runs what is due: claims it, executes it, and records how it ended."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct, structs

from hermes.config.schema import CronSection
from hermes.core.errors import ConfigError, HermesError, StoreError
from hermes.core.store import JobRun, JobStore, ScheduledJob
from hermes.core.text import format_plural
from hermes.cron.heartbeat import Heartbeat
from hermes.cron.job_editor import check_folder
from hermes.cron.occurrences import (
    LATE_SECONDS,
    format_due,
    plan_manual_run,
    plan_runs,
    read_schedule,
    set_next,
)
from hermes.cron.outcome import (
    INTERRUPTED,
    SILENT,
    RunOutcome,
    settle_outcome,
    write_output,
)
from hermes.cron.script import find_script, run_script

log = logging.getLogger(__name__)

TICK_SECONDS = 5.0


class JobPrompt(Struct, frozen=True):
    """What the agent is asked for one run of a job."""

    job: ScheduledJob
    head: str
    """Which job this is, and that nobody is there."""
    data: str
    """The output of its script."""
    note_session: Callable[[str], None]
    """Told the id of the session that answers it, also if that is stopped."""


class AgentAnswer(Protocol):
    async def __call__(self, prompt: JobPrompt) -> RunOutcome:
        """Answer the prompt in a new session with nobody present. Cancelling it stops the turn."""


class SchedulerSettings(Struct, frozen=True):
    """What the runs of a process share."""

    home: Path
    limits: CronSection
    child_env: Mapping[str, str]
    """The environment of scripts, without secrets."""
    redact: Callable[[str], str]


class RunCount(Struct, frozen=True):
    """What one look at the schedule has run."""

    ran: int = 0
    failed: int = 0


class Scheduler:
    """Any number of processes may run one on the same store: each run is claimed once."""

    def __init__(
        self,
        jobs: JobStore,
        settings: SchedulerSettings,
        answer: AgentAnswer,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._jobs = jobs
        self._settings = settings
        self._answer = answer
        self._clock = clock
        self._sleep = sleep
        self._slots = asyncio.Semaphore(settings.limits.max_parallel_jobs)
        self.is_draining = False
        """Whether nothing more is claimed."""
        self.runs: set[asyncio.Future[None]] = set()
        """Runs under way; each is done when its result is stored."""

    async def run_forever(self, heartbeat: Heartbeat) -> None:
        """Run what becomes due until cancelled; runs that are under way are then interrupted."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                heartbeat.beat()
                try:
                    await self._finish_abandoned()
                    async for claimed in self._claim_due():
                        tasks.create_task(self._execute_in_order(*claimed))
                except HermesError as error:
                    log.warning("the schedule could not be read: %s", error)
                await self._sleep(TICK_SECONDS)

    async def run_due(self) -> RunCount:
        """Run everything that is due now, and return when it has ended."""
        await self._finish_abandoned()
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._execute_in_order(*claimed))
                async for claimed in self._claim_due()
            ]
        ended = [outcome for task in running for outcome in task.result()]
        return RunCount(len(ended), sum(outcome.state != "ok" for outcome in ended))

    async def run_now(self, job: ScheduledJob) -> RunOutcome:
        """Run a job whether it is due or not."""
        taken = frozenset(run.due for run in await self._jobs.list_runs(job.id, limit=100))
        run = plan_manual_run(job, self._clock(), taken)
        claimed = await self._jobs.claim_runs(job, job, [run])
        if not claimed:
            raise ConfigError(f"{job.name} is running already. Nothing was started.")
        return await self._execute(job, claimed[0])

    async def _claim_due(self) -> AsyncIterator[tuple[ScheduledJob, list[JobRun]]]:
        """Each is to be started at once: a failure while others are claimed must not lose it."""
        now = self._clock()
        for job in await self._jobs.list_due(now):
            if self.is_draining:
                return
            try:
                advanced, runs = plan_runs(job, now)
            except ConfigError:  # a time zone that is not known any more: this run tells it
                advanced = set_next(job, None)
                runs = [JobRun(job.id, job.next or int(now), "claimed")]
            if claimed := await self._jobs.claim_runs(job, advanced, runs):
                yield job, claimed

    async def _execute_in_order(self, job: ScheduledJob, runs: list[JobRun]) -> list[RunOutcome]:
        async with self._slots:
            return [await self._execute(job, run) for run in runs]

    async def _execute(self, job: ScheduledJob, run: JobRun) -> RunOutcome:
        outcome = INTERRUPTED
        sessions: list[str] = []
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.runs.add(ended)
        ended.add_done_callback(self.runs.discard)
        try:
            if not await self._jobs.start_run(run, self._clock()):
                return RunOutcome("failed", error="The job was removed.")
            async with asyncio.timeout(job.timeout):
                outcome = await self._produce_outcome(job, run, sessions.append)
        except TimeoutError:
            minutes = format_plural(round(job.timeout / 60), "minute")
            error = f"It took longer than {minutes} and was stopped."
            outcome = RunOutcome("timeout", error=error)
        except HermesError as error:
            outcome = RunOutcome("failed", error=str(error))
        except Exception as error:
            log.exception("job %s failed", job.id)
            outcome = RunOutcome("failed", error=f"Internal error ({type(error).__name__}).")
        finally:
            # Also when this process is stopped: nothing is left without a result.
            outcome = structs.replace(outcome, session="".join(sessions))
            try:
                await asyncio.shield(self._record_outcome(job, run, outcome))
            finally:
                ended.set_result(None)
        return outcome

    async def _produce_outcome(
        self, job: ScheduledJob, run: JobRun, note_session: Callable[[str], None]
    ) -> RunOutcome:
        data = ""
        _check_schedule(job)
        check_folder(job.workdir)
        if job.script:
            path = find_script(self._settings.home, job.script)
            cwd = Path(job.workdir) if job.workdir else path.parent
            result = await run_script(path, cwd, self._settings.child_env)
            data = self._settings.redact(result.output).strip()
            if result.error:
                return RunOutcome("failed", data, self._settings.redact(result.error))
            if not result.wakes_agent:
                return RunOutcome("ok")
            if job.no_agent:
                return RunOutcome("ok", data)
        return await self._answer(JobPrompt(job, describe_run(job, run), data, note_session))

    async def _record_outcome(self, job: ScheduledJob, run: JobRun, outcome: RunOutcome) -> None:
        def settle(job: ScheduledJob, run: JobRun) -> tuple[ScheduledJob, JobRun]:
            return settle_outcome(job, run, outcome, self._clock())

        try:
            ended = await self._jobs.settle_run(run, settle)
            if ended is not None:
                is_told = ended.state == "ok" and ended.text
                await self._write_result(job, ended, ended.text if is_told else outcome.text)
        except StoreError as error:  # the run reads as interrupted once this process has ended
            log.warning("the result of job %s was not stored: %s", job.id, error)

    async def _write_result(self, job: ScheduledJob, run: JobRun, answer: str) -> None:
        keep = self._settings.limits.output_retention
        try:
            name = await asyncio.to_thread(
                write_output, self._settings.home, job, run, answer or run.text, keep
            )
        except OSError as error:
            log.warning("the result of job %s was not written: %s", job.id, error.strerror)
        else:
            await self._jobs.set_output(run, name)

    async def _finish_abandoned(self) -> None:
        """Record the end of runs whose process is gone, and write the results it did not write."""
        for run in await self._jobs.list_abandoned():
            job = next((j for j in await self._jobs.list_jobs() if j.id == run.job), None)
            if job is None:
                continue
            if run.state in ("claimed", "running"):
                await self._record_outcome(job, run, INTERRUPTED)
            else:
                await self._write_result(job, run, run.text)


def _check_schedule(job: ScheduledJob) -> None:
    try:
        read_schedule(job)
    except ConfigError as error:
        command = f"hermes cron edit {job.id} --tz ZONE"
        raise ConfigError(f"{error} The job does not run again until you run: {command}") from None


def describe_run(job: ScheduledJob, run: JobRun) -> str:
    """The head of a run's prompt."""
    late = ""
    if run.late > LATE_SECONDS:
        late = f" It runs {_format_delay(run.late)} late, because no scheduler was running."
    return (
        f"[Scheduled job {job.name!r}, due {format_due(job, run.due)}.{late} Nobody is here to "
        "answer questions or approve anything. Your final answer is delivered as it is. If there "
        f"is nothing to report, answer {SILENT}.]"
    )


def _format_delay(seconds: int) -> str:
    minutes = seconds // 60
    if minutes < 120:
        return f"{minutes} minutes"
    return f"{minutes // 60} hours" if minutes < 2880 else f"{minutes // 1440} days"

"""One look at a schedule of 1,000 jobs, none of them due: python -m bench.schedule URL GROUP..."""

import asyncio
import tempfile
from pathlib import Path
from typing import NoReturn

from bench.awaited import cpu_ms
from bench.measure import emit
from hermes.config.schema import CronSection
from hermes.core.store import ScheduledJob
from hermes.cron.outcome import RunOutcome
from hermes.cron.scheduler import JobPrompt, Scheduler, SchedulerSettings
from hermes.store.sqlite import SqliteStore

JOBS = 1000
LOOKS = 20
FUTURE = 1 << 40


async def answer_never(prompt: JobPrompt) -> RunOutcome:
    _fail(prompt)


def _fail(prompt: JobPrompt) -> NoReturn:
    raise AssertionError(f"{prompt.job.id} is not due")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "ours.db")
        for number in range(JOBS):
            job = ScheduledJob(
                f"job{number}", "a job", "0 9 * * *", "UTC", prompt="look", next=FUTURE, wake=FUTURE
            )
            await store.jobs.add_job(job)
        settings = SchedulerSettings(Path(folder), CronSection(), {}, str)
        scheduler = Scheduler(store.jobs, settings, answer_never)
        await scheduler.run_due()

        async def look() -> None:
            for _ in range(LOOKS):
                await scheduler.run_due()

        emit("schedule_tick", await cpu_ms(look) / LOOKS)
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())

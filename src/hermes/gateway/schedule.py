"""The schedule in the gateway: runs jobs, and delivers the results of all runs to chats."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from hermes.core.store import (
    Conversation,
    JobRun,
    JobStore,
    MailboxChange,
    RunDelivery,
    ScheduledJob,
)
from hermes.gateway import texts
from hermes.gateway.content.reply import Content, Reply
from hermes.gateway.hub import CarriedResult, Hub, decode_settings
from hermes.gateway.people.owner import Owner
from hermes.gateway.turn_reply import ReplyAddress

if TYPE_CHECKING:
    from hermes.cron.scheduler import Scheduler

_MAX_CARRIED = 3
_LONGEST_CARRIED = 4000


class GatewaySchedule:
    """A result is handed to the outbox once: the run stays pending until the reply is delivered or
    given up, which is recorded together with the reply."""

    def __init__(self, hub: Hub, jobs: JobStore, owner: Owner) -> None:
        self._hub = hub
        self._jobs = jobs
        self._owner = owner
        self._scheduler: Scheduler | None = None

    async def run_jobs(self) -> None:
        """Run what becomes due until cancelled."""
        from hermes.cron.heartbeat import announce_scheduler

        self._scheduler = self._hub.runtime.scheduled_prompts.create_scheduler()
        with announce_scheduler(self._hub.runtime.setup.home, "gateway") as heartbeat:
            await self._scheduler.run_forever(heartbeat)

    async def drain_runs(self, seconds: float) -> None:
        """Begin no more runs, and let those under way end."""
        if self._scheduler is None:
            return
        self._scheduler.is_draining = True
        if runs := set(self._scheduler.runs):
            await asyncio.wait(runs, timeout=seconds)

    async def deliver_results(self) -> None:
        """Post every result that waits and is not in the outbox yet."""
        waiting = await self._jobs.list_undelivered()
        waiting = [
            run for run in waiting if not self._hub.outbox.results.holds_run(run.job, run.due)
        ]
        if not waiting:
            return
        jobs = {job.id: job for job in await self._jobs.list_jobs()}
        for run in waiting:
            job = jobs.get(run.job)
            if job is not None and job.deliver != ("local",):
                await self._post_result(job, run)

    async def _post_result(self, job: ScheduledJob, run: JobRun) -> None:
        replies: list[Reply] = []
        missing: list[str] = []
        for target in job.deliver:
            if target == "local":
                continue
            address = await self._find_address(job, target)
            if address is None or address.platform not in self._hub.platforms:
                missing.append(target)
                continue
            content = Content(
                run.text, address.thread, in_group=address.in_group, run=(run.job, run.due)
            )
            replies.append(self._hub.outbox.create_reply(address.platform, address.chat, content))
        failure = RunDelivery(run.job, run.due, "failed") if missing else None
        change = MailboxChange(replies=tuple(reply.entry for reply in replies), run=failure)
        if "origin" in job.deliver and "origin" not in missing:
            async with self._hub.lock_conversation(job.origin):
                origin = await self._carry_result(job, run)
                await self._hub.mailbox.apply(structs.replace(change, conversation=origin))
        else:
            await self._hub.mailbox.apply(change)
        for reply in replies:
            self._hub.outbox.schedule(reply)
        for target in missing:
            await self.tell_failure(job.id, run.due, f"{target} is not connected or not known")

    async def _find_address(self, job: ScheduledJob, target: str) -> ReplyAddress | None:
        if target == "home":
            return self._owner.find_address()
        if target == "origin":
            row = await self._hub.mailbox.get_conversation(job.origin)
            return decode_settings(row).address
        return self._hub.parse_address(target)

    async def _carry_result(self, job: ScheduledJob, run: JobRun) -> Conversation:
        """The conversation that made the job: its next message brings the result along."""
        row = await self._hub.mailbox.get_conversation(job.origin)
        meta = await self._hub.runtime.store.sessions.get_meta(run.session) if run.session else None
        taint = job.taint | (meta.taint.bits if meta is not None else 0)
        result = CarriedResult(job.name, run.text[:_LONGEST_CARRIED], taint)
        saved = decode_settings(row)
        carried = (*saved.carried, result)[-_MAX_CARRIED:]
        body = msgspec.msgpack.encode(structs.replace(saved, carried=carried))
        return structs.replace(row, settings=body)

    async def tell_failure(self, job_id: str, due: int, why: str) -> None:
        """Tell the owner that a result did not arrive; once for each run."""
        jobs = {job.id: job.name for job in await self._jobs.list_jobs()}
        text = texts.NOT_DELIVERED.format(job=jobs.get(job_id, job_id), why=why, id=job_id)
        await self._owner.tell(f"run {job_id} {due}", text)

    async def follow_keys(self, keys: dict[str, str]) -> None:
        """Jobs follow the conversation that made them. `keys`: old to new."""
        for job in await self._jobs.list_jobs():
            if job.origin in keys:
                change = partial(structs.replace, origin=keys[job.origin])
                await self._jobs.change_job(job.id, change)


async def has_active_jobs(jobs: JobStore) -> bool:
    """Whether there is a job that will run again."""
    return any(job.next is not None and not job.paused for job in await jobs.list_jobs())

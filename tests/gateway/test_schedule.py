"""The schedule in the gateway: jobs run, and their results reach the chats they are for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from hermes.core.store import JobRun, ScheduledJob
from hermes.cron.job_editor import JobEditor, JobWishes
from hermes.gateway import texts
from hermes.gateway.adapter import Attachment, Platform
from hermes.store.sqlite import SqliteStore
from tests.flow.loop_parts import results
from tests.gateway.gateways import gateway, live_gateway
from tests.kit import Gate, Home, call, run_hermes, say
from tests.kit.bodies import messages
from tests.kit.telegram import OWNER, Fault

pytestmark = pytest.mark.e2e

GROUP, OTHER = -500, 3003


@asynccontextmanager
async def opened(home: Home) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(home.path / "hermes.db")
    try:
        yield store
    finally:
        await store.close()


async def add_due_job(
    home: Home, deliver: str, prompt: str = "Report.", origin: str = ""
) -> ScheduledJob:
    """A job that is due now, made by another process."""
    async with opened(home) as store:
        editor = JobEditor(store.jobs, home.path, "UTC", clock=lambda: time.time() - 60)
        job = editor.draft_job(JobWishes(schedule="1m", prompt=prompt, name="news"))
        job = structs.replace(job, deliver=tuple(deliver.split(",")), origin=origin)
        await editor.add_job(job)
        return job


async def until_run(home: Home, test: Callable[[JobRun], bool]) -> JobRun:
    async with opened(home) as store, asyncio.timeout(90):
        while True:
            for run in await store.jobs.list_runs():
                if test(run):
                    return run
            await asyncio.sleep(0.05)


def _move_back(job: ScheduledJob) -> ScheduledJob:
    """As if an hour had passed."""
    assert job.next is not None
    due = job.next - 3600
    return structs.replace(job, anchor=job.anchor - 3600, next=due, wake=due)


async def test_a_result_reaches_home_and_a_chat(tmp_path: Path) -> None:
    platform = {"home_chat": OWNER, "allowed_chats": [GROUP]}
    async with gateway(tmp_path, [say("All is **well**.")], platform=platform) as g:
        status = await run_hermes(["cron", "status"], g.home)
        assert status.rc == 0 and status.stdout.startswith("scheduler: gateway pid ")
        await add_due_job(g.home, f"home,telegram:{GROUP}")
        await g.telegram.until_shown("All is well.", count=2)
        run = await until_run(g.home, lambda run: run.delivery != "pending")
        assert (run.state, run.delivery) == ("ok", "delivered")
        assert {s.chat for s in g.telegram.sent} == {OWNER, GROUP}
        head = messages(g.provider.requests[0])[-1].text
        assert head.startswith("[Scheduled job 'news', due ")


async def test_what_cannot_be_delivered_is_told_at_home_once(tmp_path: Path) -> None:
    async with gateway(tmp_path, [say("lost")], platform={"home_chat": OWNER}) as g:
        job = await add_due_job(g.home, "irc:nowhere")
        why = "irc:nowhere is not connected or not known"
        await g.telegram.until_shown(texts.NOT_DELIVERED.format(job="news", why=why, id=job.id))
        await until_run(g.home, lambda run: (run.state, run.delivery) == ("ok", "failed"))
        listed = await run_hermes(["cron", "list"], g.home)
        assert "ok, not delivered" in listed.stdout


async def test_f83_a_result_is_repeated_only_with_its_mark(tmp_path: Path) -> None:
    async with gateway(tmp_path, [say("the report")], platform={"home_chat": OWNER}) as g:
        sent = asyncio.Event()

        def kill_it(method: str, params: object) -> Fault | None:
            if method == "sendMessage" and not sent.is_set():
                sent.set()
                g.process.kill()
            return None

        g.telegram.fault = kill_it
        await add_due_job(g.home, "home")
        await sent.wait()
        await g.wait()
        assert (await until_run(g.home, lambda run: run.state == "ok")).delivery == "pending"
        await g.start()
        await g.telegram.until_shown(f"{texts.REPEATED}\nthe report")
        await until_run(g.home, lambda run: run.delivery == "delivered")
        assert len(g.provider.requests) == 1


async def test_a_result_that_comes_while_a_turn_starts_is_carried_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [say("Hello."), say("the report"), say("A picture."), say("As reported.")]
    async with live_gateway(tmp_path, steps) as g:
        await g.telegram.say("hi")
        await g.telegram.until_shown("Hello.")
        fetching, gate = asyncio.Event(), asyncio.Event()

        async def fetch(platform: Platform, attachment: Attachment) -> tuple[str, None]:
            fetching.set()
            await gate.wait()
            return "[an attachment]", None

        monkeypatch.setattr(g.service.hub.media, "fetch", fetch)
        await g.telegram.say("look", document={"file_id": "f", "file_name": "a.txt"})
        async with asyncio.timeout(90):
            await fetching.wait()
        await add_due_job(g.home, "origin", origin=f"agent:main:telegram:dm:{OWNER}")
        await g.telegram.until_shown("the report")
        gate.set()
        await g.telegram.until_shown("A picture.")
        await g.telegram.say("and?")
        await g.telegram.until_shown("As reported.")
        asked = messages(g.provider.requests[-1])
        assert texts.CARRIED.format(job="news") in asked[-1].text
        assert "the report" in asked[-1].text
        assert next(m.text for m in asked if m.role == "user") == "hi"


async def test_a_job_made_in_a_chat_answers_there_and_is_carried_along(tmp_path: Path) -> None:
    wish = {"action": "create", "schedule": "1h", "prompt": "Look.", "name": "watch"}
    steps = [
        call(("c1", "cronjob", wish)),
        say("I will."),
        say("The <b>moon</b> is full."),
        say("As I said."),
        say("Yes."),
    ]
    async with live_gateway(tmp_path, steps) as g:
        await g.telegram.say("watch the moon")
        await g.telegram.until(lambda: any(s.buttons for s in g.telegram.sent))
        asked = next(s for s in g.telegram.sent if s.buttons)
        assert "deliver: origin" in asked.text and "prompt: Look." in asked.text
        assert {b["text"] for b in asked.buttons} == {"Allow once", "Deny"}
        await g.telegram.press(asked, "Allow once")
        await g.telegram.until_shown("I will.")
        async with opened(g.home) as store:
            (job,) = await store.jobs.list_jobs()
            assert job.origin == f"agent:main:telegram:dm:{OWNER}"
            await store.jobs.change_job(job.id, _move_back)
        await g.telegram.until(lambda: any("moon" in t for t in g.telegram.texts()))
        await g.telegram.say("what did it say?")
        await g.telegram.until_shown("As I said.")
        asked_text = messages(g.provider.requests[3])[-1].text
        assert texts.CARRIED.format(job="watch") in asked_text and "moon" in asked_text
        assert asked_text.endswith("what did it say?")
        await g.telegram.say("really?")
        await g.telegram.until_shown("Yes.")
        assert messages(g.provider.requests[4])[-1].text == "really?"


async def test_only_administrators_make_jobs_and_only_for_their_chats(tmp_path: Path) -> None:
    def make(deliver: str) -> dict[str, str]:
        return {"action": "create", "schedule": "1h", "prompt": "x", "deliver": deliver}

    steps = [
        call(("c1", "cronjob", make("origin"))),
        say("not for you"),
        call(("c2", "cronjob", make(f"telegram:{OTHER}"))),
        say("refused"),
        call(("c3", "cronjob", {"action": "list"})),
        say("nothing"),
    ]
    platform = {"allowed_users": [OWNER, OTHER], "admins": [OWNER]}
    async with live_gateway(tmp_path, steps, platform=platform) as g:
        await g.telegram.say("remind me", user=OTHER)
        await g.telegram.until_shown("not for you")
        assert "cronjob" in results(g.provider.requests[1])[0]
        await g.telegram.say("remind them")
        await g.telegram.until_shown("refused")
        assert f"not to telegram:{OTHER}" in results(g.provider.requests[3])[0]
        async with opened(g.home) as store:
            assert not await store.jobs.list_jobs()
        await add_due_job(g.home, "local", "the owner's secret plan")
        await g.telegram.say("list them")
        await g.telegram.until_shown("nothing")
        assert "secret plan" not in results(g.provider.requests[-1])[-1]


async def test_without_a_messenger_it_runs_for_its_jobs(tmp_path: Path) -> None:
    async with gateway(tmp_path, [say("done")], start=False) as g:
        del g.home.env["TELEGRAM_BOT_TOKEN"]
        refused = await run_hermes(["gateway", "run"], g.home)
        assert refused.rc == 2 and "hermes gateway setup" in refused.stderr
        await add_due_job(g.home, "local")
        await g.start()
        await until_run(g.home, lambda run: (run.state, run.delivery) == ("ok", "delivered"))
        assert await g.stop() == 0
        refused = await run_hermes(["gateway", "run"], g.home)
        assert refused.rc == 2, "the job has ended"


async def test_a_drain_lets_a_run_end_and_delivers_it(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("just in time").hold(gate, n=0)]
    async with gateway(tmp_path, steps, platform={"home_chat": OWNER}) as g:
        await add_due_job(g.home, "home")
        await gate.reached()
        g.process.terminate()
        gate.open()
        assert await g.wait() == 0
        await g.telegram.until_shown("just in time")

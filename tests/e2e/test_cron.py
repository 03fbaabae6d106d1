"""`hermes cron` as a process: jobs, several schedulers at once, and what a kill leaves behind."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hermes.config.paths import database_file
from hermes.core.store import JobRun, ScheduledJob
from hermes.store.sqlite import SqliteStore
from tests.kit import Gate, Home, Provider, run_hermes, say
from tests.kit.home import program
from tests.kit.processes import until


async def cron(home: Home, *args: str, rc: int = 0, **more: Any) -> str:
    done = await run_hermes(["cron", *args], home, **more)
    assert done.rc == rc, done.stdout + done.stderr
    return done.stdout + done.stderr if rc else done.stdout


async def add(home: Home, *args: str) -> str:
    """The id of a new job."""
    return (await cron(home, "add", *args)).split()[0]


def write_script(home: Home, name: str, text: str) -> None:
    folder = home.path / "scripts"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)


@asynccontextmanager
async def opened(home: Home) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(database_file(home.path))
    try:
        yield store
    finally:
        await store.close()


async def read_runs(home: Home) -> list[JobRun]:
    async with opened(home) as store:
        return (await store.jobs.list_runs(limit=1000))[::-1]


async def make_due(home: Home) -> None:
    """As if all jobs had been made long ago, and the scheduler had kept up until a moment ago."""
    async with opened(home) as store:
        for job in await store.jobs.list_jobs():
            await store.jobs.change_job(job.id, _move_back)


def _move_back(job: ScheduledJob) -> ScheduledJob:
    assert job.next is not None
    back = job.next - int(job.anchor) + 100  # a second in which nothing else has run
    return structs.replace(
        job, anchor=job.anchor - back, next=job.next - back, wake=job.next - back
    )


async def start(home: Home, *args: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *program(), "cron", *args, cwd=home.work, env=home.env,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_the_life_of_a_job(tmp_path: Path) -> None:
    home = Home(tmp_path, timezone="Europe/Berlin")
    write_script(home, "hello.sh", "echo hello")
    line = await cron(home, "add", "every 1h", "--script", "hello.sh", "--no-agent", "--name", "hi")
    id, rest = line.split(" ", 1)
    assert rest.startswith("hi, next 20") and rest.strip().endswith(("+01:00", "+02:00"))
    assert "hello" in await cron(home, "run", id)
    assert "ran 0, failed 0" in await cron(home, "run-due")
    await make_due(home)
    assert await cron(home, "run-due") == "ran 1, failed 0\n"
    rows = json.loads(await cron(home, "runs", "--json"))
    assert [(r["job"], r["state"], r["delivery"]) for r in rows] == [(id, "ok", "delivered")] * 2
    assert len(list((home.path / "cron" / "output" / id).iterdir())) == 2
    assert "hi, paused" in await cron(home, "pause", id[:5])
    assert "hi, next" in await cron(home, "resume", "hi")
    assert "bye, next" in await cron(home, "edit", id, "--name", "bye", "--schedule", "daily 09:00")
    (row,) = json.loads(await cron(home, "list", "--json"))
    assert (row["name"], row["schedule"], row["tz"]) == ("bye", "daily 09:00", "Europe/Berlin")
    assert row["next"].endswith(("T09:00:00+01:00", "T09:00:00+02:00"))
    assert row["last"]["state"] == "ok"
    assert await cron(home, "next", id, "-n", "1") == row["next"] + "\n"
    assert "daily 09:00" in await cron(home, "show", id)
    assert await cron(home, "remove", id) == f"removed {id} bye\n"
    assert "There is no job" in await cron(home, "show", id, rc=2)


async def test_a_time_zone_that_is_gone_stops_its_job_and_says_so(tmp_path: Path) -> None:
    home = Home(tmp_path)
    write_script(home, "hello.sh", "echo hello")
    zones = tmp_path / "zones"
    zones.mkdir()
    (zones / "Kit").write_bytes((files("tzdata") / "zoneinfo/Europe/Berlin").read_bytes())
    home.env["PYTHONTZPATH"] = str(zones)
    script = ("--script", "hello.sh", "--no-agent")
    bad = await add(home, "every 1h", *script, "--name", "bad", "--tz", "Kit")
    await add(home, "every 1h", *script, "--name", "good")
    (zones / "Kit").unlink()
    await make_due(home)
    listed = json.loads(await cron(home, "list", "--json"))
    assert [row["name"] for row in listed] == ["bad", "good"]
    assert listed[0]["next"].endswith("+00:00")
    assert "bad, paused" in await cron(home, "pause", "bad")
    assert "is not known" in await cron(home, "resume", "bad", rc=2)
    async with opened(home) as store:
        await store.jobs.change_job(bad, lambda job: structs.replace(job, paused=False))
    assert await cron(home, "run-due", rc=1) == "ran 2, failed 1\n"
    row = json.loads(await cron(home, "runs", bad, "--json"))[0]
    assert (row["state"], row["delivery"]) == ("failed", "delivered")
    assert row["error"].startswith('Time zone "Kit" is not known.'), row
    assert f"hermes cron edit {bad} --tz ZONE" in row["error"]
    assert await cron(home, "run-due") == "ran 0, failed 0\n"
    assert "done" in await cron(home, "show", bad)
    assert "bad, next" in await cron(home, "edit", bad, "--tz", "Europe/Berlin")


async def test_the_daemon_runs_jobs_and_shows_that_it_lives(tmp_path: Path) -> None:
    async with Provider([say("All is well.")]) as provider:
        home = Home.of(tmp_path, provider)
        await add(home, "every 1h", "look")
        await make_due(home)
        daemon = await start(home, "daemon")
        assert daemon.stderr is not None
        assert b"running" in await daemon.stderr.readline()
        while not [run for run in await read_runs(home) if run.output]:
            assert daemon.returncode is None
            await asyncio.sleep(0.05)
        assert f"scheduler: daemon pid {daemon.pid}, " in await cron(home, "status")
        daemon.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(daemon.wait(), 90) == 0
        (run,) = await read_runs(home)
        assert (run.state, run.delivery, run.text) == ("ok", "delivered", "All is well.")


async def run_together(home: Home, jobs: int, processes: int, *, with_daemon: bool) -> Counter[str]:
    """Several schedulers at once over due jobs; how often each job's script ran."""
    log = home.work / "log"
    write_script(home, "mark.sh", f'echo "$PPID" >> {log}')
    async with opened(home) as store:
        for number in range(jobs):
            job = ScheduledJob(
                f"job{number}", f"job {number}", "every 1h", "UTC", script="mark.sh",
                no_agent=True, created=1.0, anchor=1.0, next=1, wake=1,
            )  # fmt: skip
            await store.jobs.add_job(job)
        for job in await store.jobs.list_jobs():
            await store.jobs.change_job(job.id, _come_due)
    daemon = await start(home, "daemon") if with_daemon else None
    running = [await start(home, "run-due") for _ in range(processes)]
    total = 0
    for process in running:
        out, err = await asyncio.wait_for(process.communicate(), 200)
        assert process.returncode == 0, err
        total += int(out.decode().split()[1].strip(","))
    await until(lambda: len(log.read_text().splitlines()) >= jobs)
    if daemon is not None:
        while [run for run in await read_runs(home) if run.state != "ok"]:
            await asyncio.sleep(0.05)
        daemon.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(daemon.wait(), 90) == 0
    else:
        assert total == jobs
    assert len(log.read_text().splitlines()) == jobs
    return Counter(run.state for run in await read_runs(home))


def _come_due(job: ScheduledJob) -> ScheduledJob:
    import time

    now = int(time.time())
    return structs.replace(job, anchor=now - 3605.0, next=now - 5, wake=now - 5)


async def test_two_schedulers_share_due_jobs(tmp_path: Path) -> None:
    assert await run_together(Home(tmp_path), 6, 2, with_daemon=False) == {"ok": 6}


async def start_agent_run(home: Home, provider: Provider) -> asyncio.subprocess.Process:
    await add(home, "every 1h", "look", "--name", "watch")
    await make_due(home)
    return await start(home, "run-due")


async def test_a_kill_during_the_model_call_leaves_one_true_row(tmp_path: Path) -> None:
    gate = Gate()
    async with Provider([say("never").hold(gate)], then=lambda _: say("again")) as provider:
        home = Home.of(tmp_path, provider)
        process = await start_agent_run(home, provider)
        await gate.reached()
        process.kill()
        await process.wait()
        gate.open()
        assert await cron(home, "run-due") == "ran 0, failed 0\n"
        (run,) = await read_runs(home)
        assert (run.state, run.delivery) == ("interrupted", "delivered")
        assert run.text.startswith("watch failed: The run was interrupted")
        assert len(provider.requests) == 1
        assert await cron(home, "run-due") == "ran 0, failed 0\n"
        assert len(await read_runs(home)) == 1


@pytest.mark.parametrize("moment", ["claim", "script", "delivery"])
async def test_a_kill_at_other_moments_leaves_one_true_row(tmp_path: Path, moment: str) -> None:
    home = Home(tmp_path)
    begun, log = home.work / "begun", home.work / "log"
    wait = f"touch {begun}; while [ ! -e {home.work}/go ]; do sleep 0.05; done; "
    write_script(home, "x.sh", f"echo ran >> {log}; {wait if moment == 'script' else ''}echo done")
    id = await add(home, "every 1h", "--script", "x.sh", "--no-agent", "--name", "watch")
    await make_due(home)
    if moment == "script":
        process = await start(home, "run-due")
        await until(begun.exists)
        process.kill()
        await process.wait()
        (home.work / "go").touch()
    else:
        await die_in_the_middle(home, moment)
    assert await cron(home, "run-due") == "ran 0, failed 0\n"
    (run,) = await read_runs(home)
    expected = "ok" if moment == "delivery" else "interrupted"
    assert (run.state, run.delivery) == (expected, "delivered")
    assert (home.path / "cron" / "output" / id / run.output).exists()
    assert (log.exists() and log.read_text().count("ran")) == (moment != "claim")


_DIE = """
import asyncio, os, signal, sys
from pathlib import Path
from hermes.config.schema import CronSection
from hermes.cron.scheduler import Scheduler, SchedulerSettings
from hermes.store.tables.jobs import SqlJobs
from hermes.store.sqlite import SqliteStore
home, moment = Path(sys.argv[1]), sys.argv[2]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(SqlJobs, {"claim": "start_run", "delivery": "set_output"}[moment], die)
async def main():
    store = SqliteStore(home / "hermes.db")
    settings = SchedulerSettings(home, CronSection(), dict(os.environ), str)
    await Scheduler(store.jobs, settings, None).run_due()
asyncio.run(main())
"""


async def die_in_the_middle(home: Home, moment: str) -> None:
    import sys

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _DIE, str(home.path), moment, env=home.env
    )
    assert await asyncio.wait_for(process.wait(), 90) == -signal.SIGKILL


async def test_doctor_and_status_know_the_schedule(tmp_path: Path) -> None:
    home = Home(tmp_path)
    write_script(home, "x.sh", "exit 1")
    await add(home, "every 1h", "--script", "x.sh", "--no-agent", "--name", "watch")
    await cron(home, "run", "watch", rc=1)
    rows = (await run_hermes(["doctor", "--json"], home)).json
    (check,) = [row for row in rows if row["name"] == "schedule"]
    assert check["state"] == "note" and "no scheduler is running" in check["text"]
    assert "failed 1 time" in check["details"][0]


async def test_the_slash_command(tmp_path: Path) -> None:
    async with Provider([say("Fine.")]) as provider:
        home = Home.of(tmp_path, provider)

        async def slash(words: str) -> str:
            done = await run_hermes(["chat", "-q", f"/cron {words}".strip()], home)
            return done.stdout + done.stderr

        assert "There are no scheduled jobs." in await slash("")
        added = await slash("add every 2h look at it")
        id = added.split()[0]
        assert added.strip().endswith("look at it")
        (row,) = json.loads(await cron(home, "list", "--json"))
        assert (row["id"], row["schedule"], row["prompt"]) == (id, "every 2h", "look at it")
        assert "Fine." in await slash(f"run {id}")
        assert "ok" in await slash("runs")
        assert "paused" in await slash(f"pause {id}")
        assert "Removed" in await slash(f"remove {id}")
        assert "Usage: /cron" in await slash("dance")

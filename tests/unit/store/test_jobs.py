"""Jobs and runs in the store: two processes at once, and one that is gone."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from msgspec import structs

from hermes.core.store import JobRun, ScheduledJob
from hermes.store.sqlite import SqliteStore
from tests.unit.store.conftest import MakeStore
from tests.unit.store.stores import on_both_databases

JOB = ScheduledJob("a1", "a job", "every 1h", "UTC", prompt="do", created=1.0, next=100, wake=100)
RUN = JobRun("a1", 100, "claimed")


def ended(job: ScheduledJob, run: JobRun) -> tuple[ScheduledJob, JobRun]:
    run = structs.replace(run, state="ok", delivery="pending", text="done \ud800")
    return structs.replace(job, failures=0), run


@on_both_databases
async def test_one_of_two_claims_a_run(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    await one.jobs.add_job(JOB)
    assert await one.jobs.list_due(99) == []
    due = await other.jobs.list_due(100)
    assert due == [JOB]
    advanced = structs.replace(JOB, next=3700, wake=3700, runs=1)
    results = await asyncio.gather(
        *(store.jobs.claim_runs(JOB, advanced, [RUN]) for store in (one, other) * 5)
    )
    assert sorted(map(len, results)) == [0] * 9 + [1]
    assert await one.jobs.list_jobs() == [advanced]
    assert [run.state for run in await one.jobs.list_runs("a1")] == ["claimed"]


@on_both_databases
async def test_a_run_stays_claimed_when_the_clock_goes_back(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    await one.jobs.add_job(JOB)
    assert await one.jobs.claim_runs(JOB, JOB, [RUN])
    await one.jobs.settle_run(RUN, ended)
    assert await other.jobs.claim_runs(JOB, JOB, [RUN]) == []
    assert [run.state for run in await one.jobs.list_runs()] == ["ok"]


@on_both_databases
async def test_while_a_run_goes_on_the_next_is_skipped(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    await one.jobs.add_job(JOB)
    assert await one.jobs.claim_runs(JOB, JOB, [RUN])
    assert await one.jobs.start_run(RUN, 101.0)
    later = structs.replace(RUN, due=200)
    assert await other.jobs.claim_runs(JOB, JOB, [later]) == []
    assert [(r.due, r.state) for r in await one.jobs.list_runs()] == [
        (200, "skipped"),
        (100, "running"),
    ]
    await one.jobs.settle_run(RUN, ended)
    assert await other.jobs.claim_runs(JOB, JOB, [structs.replace(RUN, due=300)])


@on_both_databases
async def test_both_changes_of_a_job_are_kept(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    await one.jobs.add_job(JOB)
    await asyncio.gather(
        *(
            store.jobs.change_job("a1", lambda job: structs.replace(job, runs=job.runs + 1))
            for store in (one, other) * 20
        )
    )
    assert (await one.jobs.list_jobs())[0].runs == 40
    assert await one.jobs.change_job("b2", lambda job: job) is None


@on_both_databases
async def test_paused_and_ended_jobs_are_not_due(make_store: MakeStore) -> None:
    one = make_store()
    await one.jobs.add_job(structs.replace(JOB, paused=True))
    await one.jobs.add_job(structs.replace(JOB, id="b2", next=None, wake=None))
    assert await one.jobs.list_due(1e12) == []
    assert await one.jobs.claim_runs(JOB, JOB, [RUN]) == []


@on_both_databases
async def test_a_removed_job_takes_its_runs_along(make_store: MakeStore) -> None:
    one = make_store()
    await one.jobs.add_job(JOB)
    await one.jobs.claim_runs(JOB, JOB, [RUN])
    assert await one.jobs.remove_job("a1")
    assert not await one.jobs.remove_job("a1")
    assert not await one.jobs.start_run(RUN, 1.0)
    assert await one.jobs.settle_run(RUN, ended) is None
    assert await one.jobs.list_runs() == []


@on_both_databases
async def test_the_result_decides_about_delivery(make_store: MakeStore) -> None:
    one = make_store()
    for id, deliver in (("a1", ("local",)), ("b2", ("local", "home"))):
        job = structs.replace(JOB, id=id, deliver=deliver)
        run = structs.replace(RUN, job=id)
        await one.jobs.add_job(job)
        await one.jobs.claim_runs(job, job, [run])
        stored = await one.jobs.settle_run(run, ended)
        assert stored is not None and stored.delivery == "pending"
        await one.jobs.set_output(run, "x.md")
    assert {run.job: run.delivery for run in await one.jobs.list_runs()} == {
        "a1": "delivered",
        "b2": "pending",
    }


_CLAIM = """
import asyncio, os, pathlib, signal, sys
from hermes.core.store import JobRun
from hermes.store.sqlite import SqliteStore
async def main():
    store = SqliteStore(pathlib.Path(sys.argv[1]))
    (job,) = await store.jobs.list_jobs()
    run = JobRun(job.id, 100, "claimed")
    assert await store.jobs.claim_runs(job, job, [run])
    if sys.argv[2] == "running":
        assert await store.jobs.start_run(run, 101.0)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def test_the_runs_of_a_dead_process_are_found(tmp_path: Path) -> None:
    path = tmp_path / "hermes.db"
    for state in ("claimed", "running"):
        store = SqliteStore(path)
        try:
            await store.jobs.remove_job("a1")
            await store.jobs.add_job(JOB)
            assert await store.jobs.list_abandoned() == []
            subprocess.run([sys.executable, "-c", _CLAIM, str(path), state], timeout=90)
            assert [run.state for run in await store.jobs.list_abandoned()] == [state]
            # Nobody runs it any more, so the next time is not skipped.
            assert await store.jobs.claim_runs(JOB, JOB, [structs.replace(RUN, due=200)])
        finally:
            await store.close()


async def test_salvage_brings_jobs_and_runs(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hermes.db")
    try:
        await store.jobs.add_job(JOB)
        await store.jobs.claim_runs(JOB, JOB, [RUN])
        await store.jobs.settle_run(RUN, ended)
        before = await store.jobs.list_jobs(), await store.jobs.list_runs()
        await store.maintenance.salvage()
        assert (await store.jobs.list_jobs(), await store.jobs.list_runs()) == before
        assert json.dumps(before[1][0].text)
    finally:
        await store.close()


@on_both_databases
async def test_old_runs_are_trimmed(make_store: MakeStore) -> None:
    store = make_store()
    await store.jobs.add_job(JOB)
    runs = [JobRun("a1", due, "missed") for due in range(1, 1501)]
    await store.jobs.claim_runs(JOB, JOB, runs)
    kept = await store.jobs.list_runs(limit=5000)
    assert (len(kept), kept[0].due) == (1001, 1500)

"""Wakes that a cluster could lose: whatever becomes of the engine's rows, each run ends, once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kit import Gate, say
from tests.kit.postgres import create_database
from tests.kit.server import Provider, Received
from tests.server.serve_process import serve
from tests.server.test_cluster import make_home, read_run, run_nodes, start_run
from tests.server.test_cluster_queue import last_prompt

pytestmark = pytest.mark.e2e


@pytest.fixture
def url(postgres_server: str) -> Any:
    with create_database(postgres_server, tables=False) as made:
        yield made


def execute(url: str, sql: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as db:
        cursor = db.execute(sql)
        return cursor.fetchall() if cursor.description else []


async def wait_for_row(url: str, sql: Any) -> None:
    async with asyncio.timeout(90):
        while not execute(url, sql):
            await asyncio.sleep(0.05)


async def test_a_worker_whose_row_was_deleted_goes_on(tmp_path: Path, url: str) -> None:
    """A node that starts deletes the rows of workers that it holds for dead; one was only late."""
    async with (
        Provider(then=lambda request: say("Worked.")) as provider,
        run_nodes(tmp_path, provider, url, "a") as (a,),
    ):
        assert (await read_run(a, await start_run(a, "Hi")))[-1][0] == "run.completed"
        execute(url, "DELETE FROM procrastinate_workers")
        assert (await read_run(a, await start_run(a, "Hi again")))[-1][0] == "run.completed"


async def test_a_worker_goes_on_after_its_tables_were_away(tmp_path: Path, url: str) -> None:
    async with (
        Provider(then=lambda request: say("Worked.")) as provider,
        run_nodes(tmp_path, provider, url, "a", lease_seconds=3) as (a,),
    ):
        assert (await read_run(a, await start_run(a, "Hi")))[-1][0] == "run.completed"
        execute(url, "ALTER TABLE procrastinate_workers RENAME TO away")
        ((now,),) = execute(url, "SELECT clock_timestamp()")
        await wait_for_row(
            url,
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'hermes-engine'"
            f" AND query LIKE '%heartbeat%' AND query_start > '{now}'",
        )
        execute(url, "ALTER TABLE away RENAME TO procrastinate_workers")
        assert (await read_run(a, await start_run(a, "Hi again")))[-1][0] == "run.completed"


async def test_a_late_worker_that_gets_its_wake_again_runs_nothing_twice(
    tmp_path: Path, url: str
) -> None:
    gate = Gate()
    seen: list[str] = []

    def answer(request: Received) -> Any:
        seen.append(last_prompt(request))
        if seen == ["m0"]:
            return say("First", " one").hold(gate, n=1)
        return say(f"Answer to {seen[-1]}.")

    async with (
        Provider(then=answer) as provider,
        run_nodes(tmp_path, provider, url, "a") as (a,),
    ):
        runs = [await start_run(a, "m0", "talk")]
        await gate.reached()
        execute(url, "UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL")
        await wait_for_row(url, "SELECT 1 FROM procrastinate_jobs WHERE status = 'doing'")
        runs.append(await start_run(a, "m1", "talk"))
        gate.open()
        ends = [await read_run(a, run) for run in runs]
        assert [events[-1][0] for events in ends] == ["run.completed"] * 2
        assert "run.resumed" not in [name for events in ends for name, _ in events]
        assert seen == ["m0", "m1"]


async def test_a_wake_that_is_lost_is_made_anew(tmp_path: Path, url: str) -> None:
    async with (
        Provider(then=lambda request: say("Worked.")) as provider,
        run_nodes(tmp_path, provider, url, "a", roles=["api"]) as (a,),
    ):
        runs = [await start_run(a, f"m{n}", f"s{n}") for n in range(2)]
        execute(url, "DELETE FROM procrastinate_jobs")
        execute(url, "CREATE TABLE later AS SELECT * FROM session_inbox WHERE session = 's1'")
        execute(url, "DELETE FROM session_inbox WHERE session = 's1'")
        home = make_home(tmp_path / "b", provider, url, lease_seconds=3)
        async with serve(home):
            # A node looks when it begins: the other one is found only by looking again.
            assert (await read_run(a, runs[0]))[-1][0] == "run.completed"
            execute(url, "INSERT INTO session_inbox SELECT * FROM later")
            assert (await read_run(a, runs[1]))[-1][0] == "run.completed"


async def test_a_node_exchanges_notices_again_after_its_connection_was_lost(
    tmp_path: Path, url: str
) -> None:
    """Nothing is under way when it is lost: the node only finds out by listening."""
    found = (
        "FROM pg_stat_activity WHERE application_name = 'hermes-notices' AND query LIKE 'LISTEN%'"
    )
    async with (
        Provider(then=lambda request: say("Worked.")) as provider,
        run_nodes(tmp_path, provider, url, "a"),
    ):
        for _ in range(3):
            await wait_for_row(url, f"SELECT 1 {found}")
            ((pid,),) = execute(url, f"SELECT pid {found}")
            execute(url, f"SELECT pg_terminate_backend({pid})")
            await wait_for_row(url, f"SELECT 1 {found} AND pid <> {pid}")

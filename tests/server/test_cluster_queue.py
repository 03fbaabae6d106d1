"""What waits for sessions of a cluster: limits, order, workers, and no writing with a notice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bench.cluster import copy_queued

from tests.kit import Gate, run_hermes, say
from tests.kit.postgres import create_database
from tests.kit.server import Provider, Received
from tests.server.serve_process import SECRET
from tests.server.test_cluster import make_home, read_run, run_nodes, start_run

pytestmark = pytest.mark.e2e


@pytest.fixture
def url(postgres_server: str) -> Any:
    with create_database(postgres_server, tables=False) as made:
        yield made


def last_prompt(request: Received) -> str:
    return next(m["content"] for m in reversed(request.json["messages"]) if m["role"] == "user")


async def test_messages_of_a_session_are_answered_once_and_in_order(
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
        run_nodes(tmp_path, provider, url, "a", "b", inbox=3) as (a, b),
    ):
        runs = [await start_run(a, "m0", "talk")]
        await gate.reached()
        for number, node in enumerate((b, a, b), 1):
            runs.append(await start_run(node, f"m{number}", "talk"))
        status, refused = await a.call("POST", "/v1/runs", {"input": "m4", "session_id": "talk"})
        assert (status, refused["error"]["code"]) == (429, "inbox_full"), refused
        # A run that nobody has begun is stopped at once, on any node.
        status, stopped = await a.call("POST", f"/v1/runs/{runs[3]}/stop")
        assert (status, stopped["status"]) == (200, "cancelled"), stopped
        gate.open()
        ends = [await read_run(b, run) for run in runs]
        assert [events[-1][0] for events in ends] == [*["run.completed"] * 3, "run.cancelled"]
        assert seen == ["m0", "m1", "m2"]
        with psycopg.connect(url) as db:
            assert db.execute("SELECT count(*) FROM session_inbox").fetchone() == (0,)


async def test_a_worker_runs_what_waits_and_ends(tmp_path: Path, url: str) -> None:
    async with (
        Provider(then=lambda request: say("Worked.")) as provider,
        run_nodes(tmp_path, provider, url, "a", roles=["api"]) as (a,),
    ):
        runs = [await start_run(a, f"m{number}") for number in range(3)]
        _, state = await a.call("GET", f"/v1/runs/{runs[0]}")
        assert state["status"] == "queued"
        home = make_home(tmp_path / "w", provider, url)
        home.env["API_SERVER_KEY"] = SECRET
        done = await run_hermes(["worker", "--queues", "turns", "--until-idle"], home)
        assert done.rc == 0 and "working as w" in done.stderr, done.stderr
        for run in runs:
            assert (await read_run(a, run))[-1][1]["output"] == "Worked."


async def test_a_run_that_waits_is_steered(tmp_path: Path, url: str) -> None:
    async with (
        Provider(then=lambda request: say("Worked.")) as provider,
        run_nodes(tmp_path, provider, url, "a", roles=["api"]) as (a,),
    ):
        run = await start_run(a, "Do it.")
        path = f"/v1/runs/{run}"
        refused = await a.call("POST", f"{path}/approval", {"choice": "once"})
        steered = await a.call("POST", f"{path}/steer", {"text": "Be brief."})
        assert (refused[0], refused[1]["error"]["code"]) == (409, "nothing_to_approve")
        assert steered == (200, {"run_id": run, "status": "queued"})
        home = make_home(tmp_path / "w", provider, url)
        home.env["API_SERVER_KEY"] = SECRET
        done = await run_hermes(["worker", "--queues", "turns", "--until-idle"], home)
        assert done.rc == 0, done.stderr
        assert (await read_run(a, run))[-1][0] == "run.completed"
        assert last_prompt(provider.last) == "Be brief."


async def test_a_run_whose_tenant_is_suspended_says_so(tmp_path: Path, url: str) -> None:
    async with (
        Provider(then=lambda request: say("Worked.")) as provider,
        run_nodes(tmp_path, provider, url, "a", roles=["api"]) as (a,),
    ):
        home = make_home(tmp_path / "w", provider, url)
        home.env["API_SERVER_KEY"] = SECRET
        assert (await run_hermes(["tenants", "add", "ann"], home)).rc == 0
        key = (await run_hermes(["keys", "add", "ann"], home)).stdout.strip()
        headers = {"Authorization": f"Bearer {key}"}
        _, started = await a.call("POST", "/v1/runs", {"input": "Do it."}, **headers)
        assert (await run_hermes(["tenants", "suspend", "ann"], home)).rc == 0
        done = await run_hermes(["worker", "--queues", "turns", "--until-idle"], home)
        assert done.rc == 0, done.stderr
        assert (await run_hermes(["tenants", "resume", "ann"], home)).rc == 0
        _, run = await a.call("GET", f"/v1/runs/{started['run_id']}", **headers)
        assert run["status"] == "failed" and "its tenant is suspended" in run["error"], run
        assert not provider.requests


async def test_what_waited_before_there_was_a_worker_is_answered(tmp_path: Path, url: str) -> None:
    """Sessions with a copy of one run each, made as the measurements of the queue make them."""
    count = 40
    async with (
        Provider(then=lambda request: say("Worked.")) as provider,
        run_nodes(tmp_path, provider, url, "a", roles=["api"]) as (a,),
    ):
        run = await start_run(a, "text")
        await asyncio.to_thread(copy_queued, url, run, count, wakes=True)
        home = make_home(tmp_path / "w", provider, url)
        home.env["API_SERVER_KEY"] = SECRET
        done = await run_hermes(["worker", "--queues", "turns", "--until-idle"], home)
        assert done.rc == 0, done.stderr
        for id in (run, *(f"run_{number:032x}" for number in range(count))):
            status, state = await a.call("GET", f"/v1/runs/{id}")
            assert (status, state["status"], state["output"]) == (200, "completed", "Worked.")
        with psycopg.connect(url) as db:
            assert db.execute("SELECT count(*) FROM session_inbox").fetchone() == (0,)
    assert len(provider.requests) == count + 1


async def test_no_statement_that_writes_notifies(tmp_path: Path, url: str) -> None:
    """A notice inside a transaction that writes holds a lock of the whole server over its fsync;
    the engine's own insert is the only one that may."""
    async with (
        Provider(then=lambda request: say("Hello.")) as provider,
        run_nodes(tmp_path, provider, url, "a", "b") as (a, b),
    ):
        run = await start_run(a, "Hi")
        assert (await read_run(b, run))[-1][0] == "run.completed"
        with psycopg.connect(url) as db:
            triggers = db.execute(
                "SELECT c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
                " JOIN pg_proc p ON p.oid = t.tgfoid WHERE NOT t.tgisinternal"
                " AND p.prosrc ILIKE '%notify%'"
            ).fetchall()
            functions = db.execute(
                "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
                " WHERE n.nspname IN ('public', 'hermes') AND p.prosrc ILIKE '%notify%'"
            ).fetchall()
        assert {name for (name,) in triggers} == {"procrastinate_jobs"}
        assert all(name.startswith("procrastinate_") for (name,) in functions)

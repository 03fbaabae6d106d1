"""Approvals that wait on one node: they outlive it, and so does what a person has answered."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit import call, say
from tests.kit.postgres import create_database
from tests.kit.server import Provider, Received
from tests.server.serve_process import ServeProcess
from tests.server.test_cluster import LEASE, find_runner, read_run, run_nodes, start_run

pytestmark = pytest.mark.e2e


@pytest.fixture
def url(postgres_server: str) -> Any:
    with create_database(postgres_server, tables=False) as made:
        yield made


def answer(request: Received) -> Any:
    """The prompt names a file outside the working folder, for which the user is asked."""
    *_, last = request.json["messages"]
    if last["role"] == "tool":
        return say("Written.")
    return call(("c1", "write_file", {"path": last["content"], "content": "agreed"}))


@asynccontextmanager
async def wait_for_approval(
    tmp_path: Path, url: str, file: Path, **cluster: Any
) -> AsyncIterator[tuple[ServeProcess, ServeProcess, str]]:
    """The node whose run waits, the other one, and the run."""
    (tmp_path / "nodes").mkdir()
    async with (
        Provider(then=answer) as provider,
        run_nodes(tmp_path / "nodes", provider, url, "a", "b", **cluster) as nodes,
    ):
        run = await start_run(nodes[0], str(file))
        async with asyncio.timeout(90):
            while (await read_state(nodes[0], run))["status"] != "waiting_for_approval":
                await asyncio.sleep(0.05)
        owner, other = await find_runner(url, nodes, "ab")
        yield owner, other, run


async def read_state(node: ServeProcess, run: str) -> Any:
    return (await node.call("GET", f"/v1/runs/{run}"))[1]


async def approve(node: ServeProcess, run: str, **body: str) -> int:
    asked = {"choice": "once", **body}
    status, _ = await node.call("POST", f"/v1/runs/{run}/approval", asked)
    return int(status)


async def approve_when_asked(node: ServeProcess, run: str) -> None:
    async with asyncio.timeout(90):
        while await approve(node, run) != 200:
            await asyncio.sleep(0.05)


async def test_an_approval_that_waits_is_handed_over_at_once(tmp_path: Path, url: str) -> None:
    """A node that drains does not wait for people, and what they have said goes along."""
    file = tmp_path / "outside.txt"
    async with wait_for_approval(tmp_path, url, file, drain_seconds=600) as (owner, other, run):
        status, steered = await other.call("POST", f"/v1/runs/{run}/steer", {"text": "Be brief."})
        assert status == 200, steered
        owner.process.send_signal(signal.SIGTERM)
        assert await owner.wait() == 0
        await approve_when_asked(other, run)
        events = await read_run(other, run)
        state = await read_state(other, run)
        assert "skipped" not in json.dumps(events)
        assert "run.resumed" not in [name for name, _ in events]
        assert events[-1][0] == "run.completed" and file.read_text() == "agreed"
        stored = (await other.call("GET", f"/api/sessions/{state['session_id']}/messages"))[1]
        assert "Be brief." in json.dumps(stored)


async def test_an_approval_is_answered_although_its_node_has_just_died(
    tmp_path: Path, url: str
) -> None:
    file = tmp_path / "outside.txt"
    async with wait_for_approval(tmp_path, url, file, lease_seconds=LEASE) as (owner, other, run):
        owner.process.kill()
        await owner.process.wait()
        assert await approve(other, run, approval_id="unknown") == 409
        assert await approve(other, run) == 200
        events = await read_run(other, run)
        assert [data["unknown"] for name, data in events if name == "run.resumed"] == [[]]
        assert events[-1][0] == "run.completed" and file.read_text() == "agreed"


async def test_an_answer_counts_for_what_was_shown(tmp_path: Path, url: str) -> None:
    """A file that agents obey is changed by somebody else before the other node asks again."""
    file = tmp_path / "nodes" / "work" / "AGENTS.md"
    async with wait_for_approval(tmp_path, url, file, lease_seconds=LEASE) as (owner, other, run):
        file.write_text("mine")
        owner.process.kill()
        await owner.process.wait()
        assert await approve(other, run) == 200
        async with asyncio.timeout(90):
            while (await read_state(other, run))["status"] != "completed":
                await approve(other, run)
                await asyncio.sleep(0.05)
        events = await read_run(other, run)
        shown = [data["command"] for name, data in events if name == "approval.request"]
        assert len(shown) == 2 and "mine" not in shown[0] and "mine" in shown[1]
        names = [name for name, _ in events if name.startswith("approval.")]
        assert names == ["approval.request", "approval.request", "approval.responded"]
        assert events[-1][0] == "run.completed" and file.read_text() == "agreed"

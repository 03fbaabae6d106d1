"""kill -9 of nodes under load: every run ends, no effect happens twice, no frame is missing."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kit import Home, call, run_hermes, say
from tests.kit.postgres import create_database
from tests.kit.server import Provider, Received
from tests.server.serve_process import ServeProcess, serve
from tests.server.test_cluster import make_home, read_frames

pytestmark = pytest.mark.e2e
KILLS = int(os.environ.get("HERMES_KILL_ROUNDS", "2"))
RUNS_A_ROUND = 6
STEPS = 2


def answer(request: Received) -> Any:
    """Two steps with an effect each, then the end."""
    messages = request.json["messages"]
    prompt = next(m["content"] for m in reversed(messages) if m["role"] == "user")
    step = sum(m["role"] == "tool" for m in messages)
    if step == STEPS:
        return say(f"{prompt} ended.")
    command = f"echo {prompt}-{step} >> effects.log; sleep 1"
    return call((f"{prompt}-{step}", "terminal", {"command": command}))


class KilledNodes:
    """Nodes that are killed and started again."""

    def __init__(self, homes: list[Home]) -> None:
        self.homes = homes
        self.processes: list[ServeProcess] = []
        self._stacks = [AsyncExitStack() for _ in homes]

    async def start_all(self) -> None:
        for stack, home in zip(self._stacks, self.homes, strict=True):
            self.processes.append(await stack.enter_async_context(serve(home)))

    async def kill(self, index: int) -> None:
        self.processes[index].process.kill()
        await self._stacks[index].aclose()

    async def restart(self, index: int) -> None:
        self.processes[index] = await self._stacks[index].enter_async_context(
            serve(self.homes[index])
        )

    async def close(self) -> None:
        for stack in self._stacks:
            await stack.aclose()


async def start_runs(node: ServeProcess, prefix: str) -> list[str]:
    found = []
    for number in range(RUNS_A_ROUND):
        status, started = await node.call("POST", "/v1/runs", {"input": f"{prefix}x{number}"})
        assert status == 202, started
        found.append(started["run_id"])
    return found


async def check_run(node: ServeProcess, run: str) -> None:
    async with asyncio.timeout(200):
        frames = await node.read(f"/v1/runs/{run}/events")
    events = read_frames(frames)
    assert events[-1][0] == "run.completed", events[-1]
    assert events[-1][1]["output"].endswith(" ended.")
    numbers = [line for line in frames.decode().splitlines() if line.startswith("id: ")]
    assert numbers == [f"id: {n}" for n in range(1, len(numbers) + 1)]


async def test_runs_survive_the_nodes_they_run_on(tmp_path: Path, postgres_server: str) -> None:
    choose = random.Random(7)
    shared = f"shared:{tmp_path / 'work'}"
    with create_database(postgres_server, tables=False) as url:
        async with Provider(then=answer) as provider:
            homes = [
                make_home(tmp_path / name, provider, url, lease_seconds=3, workspaces=shared)
                for name in ("a", "b", "c")
            ]
            assert (await run_hermes(["cluster", "init"], homes[0])).rc == 0
            nodes = KilledNodes(homes)
            try:
                await nodes.start_all()
                runs: list[str] = []
                for number in range(KILLS):
                    victim = choose.randrange(len(homes))
                    runs += await start_runs(nodes.processes[victim], f"r{number}")
                    await nodes.kill(victim)
                    survivor = nodes.processes[(victim + 1) % len(homes)]
                    await asyncio.gather(*(check_run(survivor, r) for r in runs[-RUNS_A_ROUND:]))
                    await nodes.restart(victim)
                for node in nodes.processes:
                    await asyncio.gather(*(check_run(node, run) for run in runs))
            finally:
                await nodes.close()
        effects = Counter((tmp_path / "work" / "effects.log").read_text().split())
        assert effects and max(effects.values()) == 1, effects.most_common(3)
        with psycopg.connect(url) as db:
            row = db.execute("SELECT count(*) FROM sessions WHERE state = 'running'").fetchone()
            assert row == (0,)
            told = db.execute(
                "SELECT session, count(*) FROM messages WHERE role = 'user' GROUP BY session"
            ).fetchall()
        assert [count for _, count in told] == [1] * len(runs)

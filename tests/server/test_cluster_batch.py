"""`hermes batch run --cluster`: the nodes answer the items, each once, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kit import Home, Provider, Received, Reply, call, run_hermes, say, start_hermes
from tests.kit.answers import Tokens
from tests.kit.bodies import messages
from tests.kit.postgres import create_database
from tests.server.test_cluster import make_home

pytestmark = pytest.mark.e2e
ITEMS = int(os.environ.get("HERMES_BATCH_ITEMS", "200"))
KILLS = int(os.environ.get("HERMES_BATCH_KILLS", "3"))
SEED = int(os.environ.get("HERMES_KILL_SEED", "1"))
NODES = 3
LEASE = 3


def answer(request: Received) -> Reply:
    seen = messages(request)
    if seen[-1].results:
        prompt = next(m.text for m in seen if m.role == "user")
        return say(f"answer to {prompt}").usage(Tokens(20, 7))
    return call(("c1", "read_file", {"path": "a.txt"})).usage(Tokens(10, 5))


def write_items(home: Home, count: int) -> Path:
    file = home.work / "data.jsonl"
    rows = [{"prompt": f"p{n}", "files": {"a.txt": f"t{n}"}} for n in range(count)]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


class Workers:
    """Nodes that are killed and started again."""

    def __init__(self, homes: list[Home]) -> None:
        self._homes = homes
        self._processes: list[asyncio.subprocess.Process] = []

    async def start_all(self) -> None:
        self._processes = [await self._start(home) for home in self._homes]

    async def _start(self, home: Home) -> asyncio.subprocess.Process:
        process = await start_hermes(["worker", "--queues", "batch"], home)
        assert process.stderr is not None
        async with asyncio.timeout(90):
            while b"working as" not in (line := await process.stderr.readline()):
                assert line, "the node ended"
        return process

    async def replace(self, index: int) -> None:
        """Kill a node, and start it again."""
        await _kill(self._processes[index])
        self._processes[index] = await self._start(self._homes[index])

    async def close(self) -> None:
        for process in self._processes:
            await _kill(process)


async def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.communicate()


async def prepare(stack: AsyncExitStack, root: Path, provider: Provider, server: str) -> list[Home]:
    """The home of the person, and those of the nodes."""
    url = stack.enter_context(create_database(server))
    names = ("user", *(f"n{number}" for number in range(NODES)))
    return [make_home(root / name, provider, url, lease_seconds=LEASE) for name in names]


def read_results(home: Home) -> tuple[list[Any], Any]:
    folder = home.path / "batch" / "data"
    lines = [json.loads(line) for line in (folder / "trajectories.jsonl").read_text().splitlines()]
    return lines, json.loads((folder / "statistics.json").read_text())


def check_results(home: Home, items: int) -> Any:
    """Every item once and in order; the totals are those of the ledger."""
    lines, found = read_results(home)
    assert [line["prompt_index"] for line in lines] == list(range(items))
    assert all(
        line["conversations"][1]["value"] == f"p{n}"
        and line["conversations"][-1]["value"].endswith(f"answer to p{n}")
        for n, line in enumerate(lines)
    )
    assert found["states"] == {"done": items}
    with psycopg.connect(home.env["HERMES_DATABASE_URL"]) as db:
        row = db.execute("SELECT sum(input), sum(output) FROM ledger WHERE job = 'data'").fetchone()
        left = db.execute("SELECT count(*) FROM objects WHERE kind LIKE 'batch_s%'").fetchone()
        sessions = db.execute("SELECT count(*) FROM sessions WHERE source = 'batch'").fetchone()
    assert row == (found["tokens"]["input"], found["tokens"]["output"])
    assert left == (0,) and sessions == (items + found["abandoned"],)
    return found


async def test_every_item_is_there_once_whatever_node_is_killed(
    tmp_path: Path, postgres_server: str
) -> None:
    rng = random.Random(SEED)
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(Provider([], then=answer))
        user, *nodes = await prepare(stack, tmp_path, provider, postgres_server)
        workers = Workers(nodes)
        stack.push_async_callback(workers.close)
        await workers.start_all()
        args = ["batch", "run", str(write_items(user, ITEMS)), "--cluster", "--toolsets", "file"]
        running = asyncio.create_task(
            run_hermes([*args, "--concurrency", "8"], user, timeout=90 + ITEMS)
        )
        step = max(1, 2 * ITEMS // (KILLS + 1))
        for _ in range(KILLS):
            goal = len(provider.requests) + rng.randint(1, step)
            while not running.done() and len(provider.requests) < goal:
                await asyncio.sleep(0.002)
            await workers.replace(rng.randrange(NODES))
        ran = await running
        assert ran.rc == 0, ran
        found = check_results(user, ITEMS)
        counted = Counter(m.text for r in provider.requests for m in messages(r)[:2])
        print(found["abandoned"], "abandoned", found["tokens"], len(counted))

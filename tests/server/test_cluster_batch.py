"""`hermes batch run --cluster`: the nodes answer the items, each once, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kit import Gate, Home, Provider, Received, Reply, call, run_hermes, say, start_hermes
from tests.kit.answers import Tokens
from tests.kit.bodies import messages
from tests.kit.postgres import create_database
from tests.server.test_cluster import make_home

ITEMS = int(os.environ.get("HERMES_BATCH_ITEMS", "200"))
KILLS = int(os.environ.get("HERMES_BATCH_KILLS", "3"))
SEED = int(os.environ.get("HERMES_KILL_SEED", "1"))
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240 + ITEMS)]
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
        row = db.execute(
            "SELECT sum(input), sum(output), coalesce(round(sum(cost)::numeric, 6), 0),"
            " count(*) FILTER (WHERE outcome = 'killed') FROM ledger WHERE job = 'data'"
        ).fetchone()
        left = db.execute("SELECT count(*) FROM objects WHERE kind LIKE 'batch_s%'").fetchone()
        sessions = db.execute("SELECT count(*) FROM sessions WHERE source = 'batch'").fetchone()
    assert row is not None
    assert row[:2] == (found["tokens"]["input"], found["tokens"]["output"])
    assert float(row[2]) == found["cost_usd"] and row[3] == found["calls"]["estimated"]
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
        assert KILLS == 0 or found["calls"]["made"] >= 2 * ITEMS


async def test_limits_hold_over_all_nodes_and_a_resume_goes_on(
    tmp_path: Path, postgres_server: str
) -> None:
    """$0.03 an item: at $0.60 about twenty are answered, never more."""
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(Provider([], then=answer_at_a_price))
        user, *nodes = await prepare(stack, tmp_path, provider, postgres_server)
        for home in (user, *nodes):
            price = {"input": 10.0, "output": 100.0}
            models = {"kit-model": {"price": price, "max_tokens": 200}}
            home.configure(providers={"custom": {"models": models}})
        workers = Workers(nodes)
        stack.push_async_callback(workers.close)
        await workers.start_all()
        file = str(write_items(user, 160))
        args = ["batch", "run", file, "--cluster", "--toolsets", "none", "--concurrency", "2"]
        ran = await run_hermes([*args, "--max-usd", "0.6"], user, timeout=90)
        assert ran.rc == 3 and "--max-usd X" in ran.stderr, ran
        _, found = read_results(user)
        assert 0.1 < found["cost_usd"] <= 0.6
        assert found["states"]["todo"] > 100
        began = time.monotonic()
        before = len(provider.requests)
        ran = await run_hermes(
            ["batch", "resume", "data", "--max-usd", "50", "--rpm", "900"], user, timeout=200
        )
        assert ran.rc == 0, ran
        made, seconds = len(provider.requests) - before, time.monotonic() - began
        assert made >= 100 and made <= 1 + seconds * 900 / 60, "the nodes together"
        found = check_results(user, 160)
        assert found["cost_usd"] == pytest.approx(160 * 0.03)


async def test_a_run_is_stopped_by_name_and_goes_on(tmp_path: Path, postgres_server: str) -> None:
    gate = Gate()

    def wait(request: Received) -> Reply:
        return say(f"answer to {messages(request)[-1].text}").hold(gate)

    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(Provider([], then=wait))
        user, *nodes = await prepare(stack, tmp_path, provider, postgres_server)
        workers = Workers(nodes[:1])
        stack.push_async_callback(workers.close)
        await workers.start_all()
        file = str(write_items(user, 120))
        args = ["batch", "run", file, "--cluster", "--toolsets", "none", "--concurrency", "4"]
        running = asyncio.create_task(run_hermes(args, user, timeout=90))
        async with asyncio.timeout(90):
            await gate.reached()
        stopped = await run_hermes(["batch", "stop", "data"], user)
        assert stopped.rc == 0, stopped
        url = user.env["HERMES_DATABASE_URL"]
        async with asyncio.timeout(90):
            while not read_rows(
                url,
                'SELECT 1 FROM objects WHERE position(\'"state":"stopped"\' IN '
                "convert_from(body, 'UTF8')) > 0 AND kind = 'batch_run'",
            ):
                await asyncio.sleep(0.05)
        gate.open()
        ran = await running
        assert ran.rc == 3 and "hermes batch resume data" in ran.stderr, ran
        ran = await run_hermes(["batch", "resume", "data"], user, timeout=90)
        assert ran.rc == 0, ran
        check_results(user, 120)


async def test_characters_that_the_database_does_not_take(
    tmp_path: Path, postgres_server: str
) -> None:
    """NUL and half characters, in everything that a dataset may have."""
    odd = "x\0y \x01 \U0001f600 \u2028 '; DROP TABLE objects; -- %s"
    rows: list[dict[str, Any]] = [
        {"id": odd.replace("\0", ""), "prompt": odd},
        {"prompt": "p", "system": odd, "metadata": {odd: [odd]}},
        {"prompt": "p", "files": {"a.txt": odd}},
        {"messages": [{"role": "system", "content": odd}, {"role": "user", "content": odd}]},
    ]
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(Provider([], then=say(odd)))
        user, *nodes = await prepare(stack, tmp_path, provider, postgres_server)
        workers = Workers(nodes[:1])
        stack.push_async_callback(workers.close)
        await workers.start_all()
        (user.work / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
        args = ["batch", "run", "data.jsonl", "--cluster", "--toolsets", "none"]
        ran = await run_hermes([*args, "--format", "hermes,openai,raw"], user, timeout=90)
        assert ran.rc == 0, ran
        lines, found = read_results(user)
        assert found["states"] == {"done": 4} and len(lines) == 4


async def test_what_cannot_be_is_said_before_anything_starts(
    tmp_path: Path, postgres_server: str
) -> None:
    async with Provider([]) as provider:
        alone = Home.of(tmp_path, provider)
        args = ["batch", "run", str(write_items(alone, 3)), "--cluster"]
        ran = await run_hermes(args, alone)
        assert ran.rc == 2 and "There is no cluster" in ran.stderr
        with create_database(postgres_server) as url:
            alone.env["HERMES_DATABASE_URL"] = url
            ran = await run_hermes([*args, "--processes", "2"], alone)
            assert ran.rc == 2 and "start more nodes instead" in ran.stderr
        assert not provider.requests


def answer_at_a_price(request: Received) -> Reply:
    return say(f"answer to {messages(request)[-1].text}").usage(Tokens(1000, 200))


def read_rows(url: str, sql: str) -> list[Any]:
    with psycopg.connect(url) as db:
        return db.execute(sql).fetchall()  # type: ignore[call-overload,no-any-return]

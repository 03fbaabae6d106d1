"""kill -9 of a batch run at random moments: every item once, totals to the token."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from pathlib import Path

import pytest

from hermes.store.sqlite import SqliteStore
from tests.kit import Home, Provider, Received, Reply, call, run_hermes, say, start_hermes
from tests.kit.answers import Tokens
from tests.kit.bodies import messages

ITEMS = int(os.environ.get("HERMES_BATCH_ITEMS", "300"))
KILLS = int(os.environ.get("HERMES_BATCH_KILLS", "10"))
SEED = int(os.environ.get("HERMES_KILL_SEED", "1"))
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240 + ITEMS)]


def answer(request: Received) -> Reply:
    seen = messages(request)
    if seen[-1].results:
        prompt = next(m.text for m in seen if m.role == "user")
        return say(f"answer to {prompt}").usage(Tokens(20, 7))
    return call(("c1", "read_file", {"path": "a.txt"})).usage(Tokens(10, 5))


async def test_every_item_is_there_once_whatever_is_killed(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    async with Provider([], then=answer) as provider:
        home = Home.of(tmp_path, provider)
        price = {"input": 10.0, "output": 100.0}
        models = {"kit-model": {"price": price, "max_tokens": 1000}}
        home.configure(providers={"custom": {"models": models}})
        file = home.work / "data.jsonl"
        rows = [{"prompt": f"p{n}", "files": {"a.txt": f"t{n}"}} for n in range(ITEMS)]
        file.write_text("\n".join(map(json.dumps, rows)))
        args = ["batch", "run", str(file), "--toolsets", "file", "--concurrency", "8"]
        step = max(1, 2 * ITEMS // (KILLS + 1))
        for number in range(KILLS):
            processes = ["--processes", "2"] if number % 2 else []
            process = await start_hermes([*args, *processes], home)
            goal = len(provider.requests) + rng.randint(1, step)
            while process.returncode is None and len(provider.requests) < goal:
                await asyncio.wait(
                    {asyncio.ensure_future(process.wait()), asyncio.ensure_future(tick())},
                    return_when=asyncio.FIRST_COMPLETED,
                )
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()
        ran = await run_hermes(args, home)
        assert ran.rc == 0, ran
    folder = home.path / "batch" / "data"
    lines = [json.loads(line) for line in (folder / "trajectories.jsonl").read_text().splitlines()]
    assert [line["prompt_index"] for line in lines] == list(range(ITEMS))
    assert all(
        line["conversations"][1]["value"] == f"p{n}"
        and line["conversations"][-1]["value"].endswith(f"answer to p{n}")
        for n, line in enumerate(lines)
    )
    found = json.loads((folder / "statistics.json").read_text())
    assert found["states"] == {"done": ITEMS}
    store = SqliteStore(folder / "run.db")
    ledger = store.ledger
    begun = await store.sessions.list_recent(limit=10 * ITEMS, source="batch")
    sessions = await ledger.sum_calls("session", 0.0)
    calls = [call for row in sessions for call in await ledger.list_calls(row.key, 0.0)]
    await store.close()
    assert len(begun) == ITEMS + found["abandoned"]
    for rows in (sessions, calls):
        assert sum(row.input for row in rows) == found["tokens"]["input"]
        assert sum(row.output for row in rows) == found["tokens"]["output"]
        assert round(sum(row.cost or 0.0 for row in rows), 6) == found["cost_usd"]
    killed = [call for call in calls if call.outcome == "killed"]
    assert found["calls"] == {"made": len(calls), "estimated": len(killed), "unpriced": 0}
    assert found["tokens"]["input"] >= ITEMS * 30


async def tick() -> None:
    await asyncio.sleep(0.002)

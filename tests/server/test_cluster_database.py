"""The database of a cluster crashes under load: nothing accepted is lost or repeated."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.kit.postgres import run_postgres
from tests.kit.server import Provider
from tests.server.serve_process import ServeProcess
from tests.server.test_cluster import run_nodes
from tests.server.test_cluster_faults import wait_for_readiness
from tests.server.test_cluster_kills import answer, check_run

pytestmark = pytest.mark.e2e
CRASHES = int(os.environ.get("HERMES_TEST_CRASHES", "2"))
RUNS = 4


async def start_runs(nodes: list[ServeProcess], prefix: str) -> list[str]:
    """Runs that were accepted; a request that fails is sent again under its key."""
    found = []
    for number in range(RUNS):
        word = f"{prefix}x{number}"
        async with asyncio.timeout(90):
            while True:
                status, told = await post_run(nodes[number % len(nodes)], word)
                if status == 202:
                    break
                assert status in (500, 503), told
                await asyncio.sleep(0.1)
        found.append(str(told["run_id"]))
    return found


async def post_run(node: ServeProcess, word: str) -> tuple[int, Any]:
    status, told = await node.call("POST", "/v1/runs", {"input": word}, **{"Idempotency-Key": word})
    return status, told


async def test_runs_survive_crashes_of_the_database(tmp_path: Path) -> None:
    with run_postgres() as server:
        async with (
            Provider(then=answer) as provider,
            run_nodes(tmp_path, provider, server.url(), "a", "b", lease_seconds=10) as nodes,
        ):
            runs: list[str] = []
            for number in range(CRASHES):
                runs += await start_runs(nodes, f"d{number}")
                await asyncio.to_thread(server.stop)
                await asyncio.to_thread(server.start)
            for node in nodes:
                await wait_for_readiness(node, 200)
                await asyncio.gather(*(check_run(node, run) for run in runs))
            effects = Counter((tmp_path / "work" / "effects.log").read_text().split())
            assert len(set(runs)) == len(runs) == CRASHES * RUNS
            assert max(effects.values()) == 1, effects.most_common(3)

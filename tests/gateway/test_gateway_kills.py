"""The long form of kills and replays: for minutes, in `make e2e`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.gateway.gateways import live_gateway
from tests.gateway.kill_points import POINTS, run_point_kills
from tests.gateway.kill_runs import SEED, run_kills
from tests.kit import say

KILLS = int(os.environ.get("HERMES_GATEWAY_KILLS", "20"))
POINT_KILLS = int(os.environ.get("HERMES_GATEWAY_POINT_KILLS", "2"))
"""At each named point."""
REPLAYS = 10_000

pytestmark = pytest.mark.e2e


@pytest.mark.timeout(120 + 4 * KILLS)
async def test_r1_many_kills_lose_nothing(tmp_path: Path) -> None:
    await run_kills(tmp_path, kills=KILLS, seed=SEED)


@pytest.mark.timeout(120 + 60 * POINT_KILLS)
@pytest.mark.parametrize("point", POINTS)
async def test_f60_kills_at_a_named_point(tmp_path: Path, point: str) -> None:
    await run_point_kills(tmp_path, point, POINT_KILLS)


@pytest.mark.timeout(600)
async def test_g8_ten_thousand_replays_are_one_turn_each(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, then=say("answer"), gateway={"busy_ack": False}) as g:
        replayed = [g.telegram.make_message(f"m{i}") for i in range(20)]
        for round in range(4):
            for i in range(REPLAYS // 4):
                await g.telegram.push({"message": replayed[i % len(replayed)]})
            await g.telegram.until(lambda: len(g.telegram.updates) < 100, timeout=300)
            if round < 3:
                await g.stop()
                await g.start()
        await g.telegram.until(lambda: len(g.telegram.texts()) == len(replayed))
        assert len(g.provider.requests) == len(replayed)

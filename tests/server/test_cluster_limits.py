"""Limits that all nodes of a cluster keep together, and requests that go to any of them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kit import Provider, Received, Tokens, say, status
from tests.kit.api import Api, api
from tests.kit.postgres import create_database

pytestmark = pytest.mark.e2e
KEY = "root-key-0123456789abcdef0123"
PRICE = {"custom": {"models": {"kit-model": {"price": {"input": 10, "output": 10}}}}}
COST = 0.0101
SESSIONS = int(os.environ.get("HERMES_TEST_SESSIONS", "30"))
"""That want to use up a cap at the same time."""


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    with create_database(postgres_server) as made:
        yield made


@asynccontextmanager
async def run_nodes(
    root: Path, provider: Provider, url: str, count: int, **options: Any
) -> AsyncIterator[list[Api]]:
    env = {"HERMES_DATABASE_URL": url, **options.pop("env", {})}
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                api(root / f"node{n}", provider, key=KEY, env=env, **options)
            )
            for n in range(count)
        ]


async def test_a_cap_holds_over_all_nodes(tmp_path: Path, url: str) -> None:
    config = {"providers": PRICE, "budget": {"daily_usd": 0.15}}
    answer = say("Yes.").usage(Tokens(1000, 10))
    async with (
        Provider(then=answer) as provider,
        run_nodes(tmp_path, provider, url, 3, config=config) as nodes,
    ):
        asked = [
            node.chat(f"question {n}") for n, node in zip(range(18), cycle(nodes), strict=False)
        ]
        answers = await asyncio.gather(*asked)
        statuses = [found.status for found in answers]
        assert set(statuses) == {200, 429}, statuses
        made = statuses.count(200)
        assert len(provider.requests) == made
        assert made * COST <= 0.15
        served = {n % 3 for n, code in enumerate(statuses) if code == 200}
        assert served == {0, 1, 2}
        rows = await nodes[0].server.runtime.store.ledger.sum_calls("day", 0)
        assert sum(row.cost for row in rows) == pytest.approx(made * COST)
        with psycopg.connect(url) as db:
            held = db.execute("SELECT count(*) FROM public.slices").fetchone()
            reserved = db.execute("SELECT sum(reserved_usd) FROM public.spent").fetchone()
        assert held == (0,) and reserved is not None and reserved[0] == pytest.approx(0)


async def test_calls_that_cost_more_than_estimated_exceed_a_cap_by_one_of_them(
    tmp_path: Path, url: str
) -> None:
    config = {"providers": PRICE, "budget": {"daily_usd": 1.0}}
    cost = 0.1201
    answer = say("Yes.").usage(Tokens(12_000, 10))
    async with (
        Provider(then=answer) as provider,
        run_nodes(tmp_path, provider, url, 3, config=config) as nodes,
    ):
        asked = [
            node.chat(f"question {n}")
            for n, node in zip(range(SESSIONS), cycle(nodes), strict=False)
        ]
        statuses = [found.status for found in await asyncio.gather(*asked)]
        assert set(statuses) == {200, 429}, statuses
        assert statuses.count(200) == len(provider.requests)
        assert 1.0 - 2 * cost <= statuses.count(200) * cost <= 1.0 + cost
        with psycopg.connect(url) as db:
            reserved = db.execute("SELECT sum(reserved_usd) FROM public.spent").fetchone()
        assert reserved is not None and reserved[0] == pytest.approx(0)


async def wait_for_cooling(url: str, kind: str) -> None:
    sql = "SELECT 1 FROM public.cooling WHERE kind = %s"
    async with asyncio.timeout(90):
        while True:
            with psycopg.connect(url) as db:
                if db.execute(sql, (kind,)).fetchone():
                    return
            await asyncio.sleep(0.01)


async def test_a_key_that_one_node_set_aside_is_not_used_by_the_others(
    tmp_path: Path, url: str
) -> None:
    keys = {"SPARE_KEY": "second-key-000"}
    pool = {"custom": {"api_key_envs": ["KIT_KEY", "SPARE_KEY"]}}

    def answer(request: Received) -> Any:
        if "second" not in request.headers.get("authorization", ""):
            return status(401, "invalid key")
        return say("Yes.")

    async with (
        Provider(then=answer) as provider,
        run_nodes(tmp_path, provider, url, 2, config={"providers": pool}, env=keys) as (a, b),
    ):
        assert (await a.chat()).status == 200
        await wait_for_cooling(url, "cooldown")
        made = len(provider.requests)
        assert (await b.chat()).status == 200
        used = [request.headers.get("authorization", "") for request in provider.requests[made:]]
        assert used and all("second" in key for key in used), used


async def test_a_pause_of_one_node_is_one_of_all(tmp_path: Path, url: str) -> None:
    refused: list[float] = []
    arrived: dict[str, float] = {}

    def answer(request: Received) -> Any:
        text = str(request.json["messages"][-1]["content"])
        if "first" in text and not refused:
            refused.append(time.monotonic())
            return status(429, "slow down", headers={"Retry-After": "2"})
        arrived.setdefault("b" if "second" in text else "a", time.monotonic())
        return say("Yes.")

    async with (
        Provider(then=answer) as provider,
        run_nodes(tmp_path, provider, url, 2) as (a, b),
    ):
        asked = asyncio.create_task(a.chat("first"))
        await wait_for_cooling(url, "pause")
        assert (await b.chat("second")).status == 200
        assert (await asked).status == 200
        assert arrived["b"] - refused[0] >= 1.9, "never before the provider allows it"


async def test_a_rate_is_counted_over_all_nodes(tmp_path: Path, url: str) -> None:
    async with (
        Provider(then=say("Yes.")) as provider,
        run_nodes(tmp_path, provider, url, 3, settings={"requests_per_minute": 3}) as nodes,
    ):
        statuses = [(await node.get("/v1/models")).status for node in nodes]
        assert statuses[0] == 200 and 429 in statuses, statuses


async def test_a_conversation_spread_over_three_nodes(tmp_path: Path, url: str) -> None:
    def answer(request: Received) -> Any:
        return say(f"{sum(m['role'] == 'user' for m in request.json['messages'])}.")

    async with (
        Provider(then=answer) as provider,
        run_nodes(tmp_path, provider, url, 3) as nodes,
    ):
        headers = {"X-Hermes-Session-Id": "spread"}
        places = cycle(nodes)
        for turn in range(1, 7):
            said = (await next(places).chat(f"turn {turn}", headers=headers)).json
            assert said["choices"][0]["message"]["content"] == f"{turn}."
        previous: dict[str, Any] = {}
        for turn in range(1, 4):
            got = (await next(places).ask(f"turn {turn}", **previous)).json
            assert got["output"][-1]["content"][0]["text"] == f"{turn}."
            previous = {"previous_response_id": got["id"]}
        stored = await next(places).get("/api/sessions/spread/messages")
        assert len(stored.json["data"]) == 12
        repeat = {"Idempotency-Key": "once-1"}
        made = len(provider.requests)
        twice = [await next(places).chat("once", headers=repeat) for _ in range(3)]
        assert len(provider.requests) == made + 1
        assert len({found.json["id"] for found in twice}) == 1
        assert (await next(places).call("DELETE", "/api/sessions/spread")).status == 200
        assert (await next(places).get("/api/sessions/spread")).status == 404

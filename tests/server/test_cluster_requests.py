"""Requests of one client that reach different nodes: each is carried out once, in its place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hermes.store.postgres.database import TenantDatabase
from hermes.store.postgres.shared.turn_locks import TurnLocks
from hermes.store.postgres.store import open_postgres
from tests.kit import Gate, Provider, Received, call, say, status
from tests.kit.postgres import create_database
from tests.server.test_cluster_limits import run_nodes

pytestmark = pytest.mark.e2e
ROUNDS = 8


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    with create_database(postgres_server) as made:
        yield made


def last_text(request: Received) -> str:
    return str(request.json["messages"][-1]["content"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_key_that_reaches_all_nodes_at_once_runs_once(
    tmp_path: Path, url: str, stream: bool
) -> None:
    gate = Gate()
    async with (
        Provider(then=lambda request: say("Once", " only.").hold(gate, n=1)) as provider,
        run_nodes(tmp_path, provider, url, 3) as nodes,
    ):
        asked = [
            asyncio.create_task(
                nodes[n % 3].chat("do it", stream=stream, headers={"Idempotency-Key": "k-1"})
            )
            for n in range(6)
        ]
        await gate.reached()
        sql = "SELECT count(*) FROM objects WHERE kind = 'replay'"
        with psycopg.connect(url) as db:
            assert db.execute(sql).fetchone() == (1,)
        gate.open()
        answers = await asyncio.gather(*asked)
        assert [answer.status for answer in answers] == [200] * 6
        assert len({answer.body for answer in answers}) == 1
        assert b"Once" in answers[0].body and len(provider.requests) == 1


async def test_the_next_turn_of_a_conversation_finds_its_session_on_any_node(
    tmp_path: Path, url: str
) -> None:
    async with (
        Provider(then=lambda request: say(f"Answer to {last_text(request)}.")) as provider,
        run_nodes(tmp_path, provider, url, 3) as nodes,
    ):
        for number, streams in enumerate((False, True) * ROUNDS):
            said: list[dict[str, str]] = []
            found = set()
            for turn, node in zip(range(3), cycle(nodes[number % 3 :] + nodes), strict=False):
                said.append({"role": "user", "content": f"{number}-{turn}"})
                body = {"messages": said, "stream": streams}
                got = await node.post("/v1/chat/completions", body)
                found.add(got.headers["X-Hermes-Session-Id"])
                said.append({"role": "assistant", "content": f"Answer to {number}-{turn}."})
            assert len(found) == 1, (number, streams)


async def test_turns_of_a_conversation_run_one_after_the_other_on_all_nodes(
    tmp_path: Path, url: str
) -> None:
    async with (
        Provider(then=say("Yes.")) as provider,
        run_nodes(tmp_path, provider, url, 3) as nodes,
    ):
        named = [
            nodes[n % 3].ask(f"n{n}", conversation="talk")
            if n % 2
            else nodes[n % 3].chat(f"n{n}", headers={"X-Hermes-Session-Id": "chat"})
            for n in range(12)
        ]
        answers = await asyncio.gather(*named)
        assert [answer.status for answer in answers] == [200] * 12
        for last in (
            nodes[0].ask("last", conversation="talk"),
            nodes[1].chat("last", headers={"X-Hermes-Session-Id": "chat"}),
        ):
            assert (await last).status == 200
            texts = [m["content"] for m in provider.last.json["messages"] if m["role"] == "user"]
            assert len(texts) == 7 and texts[-1] == "last", texts
        async with asyncio.timeout(90):
            while True:
                with psycopg.connect(url) as db:
                    row = db.execute("SELECT count(*) FROM objects WHERE kind = 'turn_lock'")
                    if row.fetchone() == (0,):
                        break
                await asyncio.sleep(0.02)


async def test_a_failure_with_effects_is_not_repeated_at_another_node(
    tmp_path: Path, url: str
) -> None:
    def answer(request: Received) -> Any:
        if request.json["messages"][-1]["role"] == "tool":
            return status(401, "invalid key")
        return call(("c1", "terminal", {"command": "echo x >> effects.log"}))

    async with (
        Provider(then=answer) as provider,
        run_nodes(tmp_path, provider, url, 2, config={"approvals": {"mode": "off"}}) as (a, b),
    ):
        first = await a.chat("change it")
        assert first.status == 424, first.body
        made = len(provider.requests)
        again = await b.chat("change it")
        assert (again.status, again.error["message"]) == (424, first.error["message"])
        assert len(provider.requests) == made


async def test_a_session_that_runs_elsewhere_is_not_deleted(tmp_path: Path, url: str) -> None:
    gate = Gate()
    headers = {"X-Hermes-Session-Id": "busy"}
    async with (
        Provider(then=lambda request: say("So", " long.").hold(gate, n=1)) as provider,
        run_nodes(tmp_path, provider, url, 2) as (a, b),
    ):
        asked = asyncio.create_task(a.chat("hi", headers=headers))
        await gate.reached()
        refused = await b.call("DELETE", "/api/sessions/busy")
        assert (refused.status, refused.error["code"]) == (409, "busy"), refused.body
        gate.open()
        assert (await asked).status == 200
        assert (await b.call("DELETE", "/api/sessions/busy")).status == 200
        assert json.loads((await a.get("/api/sessions")).body)["data"] == []


async def test_a_lock_that_nobody_waits_for_any_more_is_given_back(url: str) -> None:
    stores = [open_postgres(url, node=name) for name in "ab"]
    first, second = (TurnLocks(TenantDatabase(store.database, 0)) for store in stores)
    try:
        for store in stores:
            await store.wait_until_open()
        taking = asyncio.create_task(enter_lock(second))
        await asyncio.sleep(0)  # the statement is on its way, and its answer is not awaited
        taking.cancel()
        await asyncio.wait({taking})
        await stores[1].wait_until_open()  # after it
        async with asyncio.timeout(60), first.hold_lock("talk"):
            pass
    finally:
        for store in stores:
            await store.close()


async def enter_lock(locks: TurnLocks) -> None:
    async with locks.hold_lock("talk"):
        await asyncio.sleep(600)

"""Tenants of a cluster: each sees what is its own and nothing else, within its limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.kit import Gate, Home, Tokens, run_hermes, say
from tests.kit.api import Api, api
from tests.kit.postgres import create_database
from tests.kit.server import Received
from tests.server.test_route_access import TABLE

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
OPERATOR = "root-key-0123456789abcdef0123"


@pytest.fixture(scope="module")
def url(postgres_server: str) -> Iterator[str]:
    with create_database(postgres_server) as made:
        yield made


class Operator:
    """The commands of the operator."""

    def __init__(self, home: Home, url: str) -> None:
        self.home = home
        self.home.env["HERMES_DATABASE_URL"] = url

    async def run(self, *words: str, status: int = 0) -> str:
        done = await run_hermes([*words], self.home)
        assert done.rc == status, done.stdout + done.stderr
        return done.stdout if not status else done.stderr

    async def add_tenant(self, name: str, *limits: str) -> str:
        """A key of a new tenant."""
        await self.run("tenants", "add", name, *limits)
        return (await self.run("keys", "add", name)).strip()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(folder: Path, url: str) -> AsyncIterator[Api]:
    env = {"HERMES_DATABASE_URL": url}
    async with api(folder / "node", then=answer, key=OPERATOR, env=env, config=PRICES) as a:
        yield a


PRICES: dict[str, Any] = {
    "providers": {"custom": {"models": {"kit-model": {"price": {"input": 10, "output": 10}}}}}
}
"""A turn costs $0.0601."""
held = Gate()


def answer(request: Received) -> Any:
    text = json.dumps(request.json["messages"][-1])
    if "wait for it" in text:
        return say("So", " long.").hold(held, n=1)
    return say("Yes.").usage(Tokens(6000, 10))


@pytest.fixture
def operator(node: Api, url: str) -> Operator:
    return Operator(Home(node.home.path), url)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keys(node: Api, url: str) -> dict[str, str]:
    operator = Operator(Home(node.home.path), url)
    return {name: await operator.add_tenant(name) for name in ("ann-co", "bob-co")}


async def create_objects(a: Api, key: str) -> dict[str, str]:
    response = (await a.ask(key=key)).json["id"]
    run = (await a.post("/v1/runs", {"input": "x"}, key=key)).json["run_id"]
    await a.get(f"/v1/runs/{run}/events", key=key)
    session = (await a.post("/api/sessions", {"title": "mine"}, key=key)).json["id"]
    return {"response": response, "run": run, "session": session}


@pytest.mark.parametrize("entry", TABLE, ids=str)
async def test_every_route_of_another_tenant(node: Api, keys: dict[str, str], entry: str) -> None:
    method, path = entry.split(" ")
    given, (*_, foreign, _, right) = TABLE[entry]
    if entry == "GET /metrics":
        foreign = right = 403
    own = await create_objects(node, keys["ann-co"])
    path = path.replace("{run_id}", own["run"])
    path = path.replace("models/{id}", "models/hermes-agent")
    path = path.replace("{id}", own["response" if "responses" in path else "session"])
    body = given
    if isinstance(given, str):
        path, body = path + given, None
    if isinstance(given, dict):
        body = {k: v.format(**own) if isinstance(v, str) else v for k, v in given.items()}
    for owner, expected in (("bob-co", foreign), ("", foreign), ("ann-co", right)):
        key = keys[owner] if owner else OPERATOR
        made = len(node.provider.requests)
        got = await node.call(method, path, body, key=key)
        assert got.status == (200 if entry == "GET /metrics" and not owner else expected), owner
        if expected == 404:
            assert len(node.provider.requests) == made


async def test_figures_of_the_cluster(node: Api, operator: Operator) -> None:
    text = (await node.get("/metrics", key=OPERATOR)).body.decode()
    for name in (
        *("queue_depth", "oldest_wait_seconds", "takeovers", "fenced_writes", "group_size"),
        "database_seconds",
    ):
        assert f"\nhermes_cluster_{name} " in text, name
    shown = json.loads(await operator.run("cluster", "status", "--json"))
    assert shown["queue_depth"] >= 0 and shown["oldest_wait"] >= 0 and shown["stalled"] == 0
    assert shown["database_ms"] > 0


async def test_a_tenant_sees_its_own_alone(node: Api, operator: Operator) -> None:
    ann, bob = [await operator.add_tenant(name) for name in ("see-a", "see-b")]
    same = {"X-Hermes-Session-Id": "same-name"}
    assert (await node.chat("the word is quince", key=ann, headers=same)).status == 200
    assert (await node.chat("hi", key=bob, headers=same)).status == 404
    assert (await node.chat("hi", key=OPERATOR, headers=same)).status == 404
    await node.chat("the word is quince", key=bob)
    for key in (ann, bob):
        listed = (await node.get("/api/sessions", key=key)).json["data"]
        found = (await node.get("/api/sessions/search?q=quince", key=key)).json["data"]
        assert len(listed) == 1 and {hit["session"]["id"] for hit in found} == {listed[0]["id"]}
    shown = json.loads(await operator.run("tenants", "list", "--json"))["tenants"]
    counts = {tenant["name"]: (tenant["sessions"], tenant["keys"]) for tenant in shown}
    assert counts["see-a"] == counts["see-b"] == (1, 1)


async def test_keys_are_shown_once_expire_and_are_revoked(node: Api, operator: Operator) -> None:
    key = await operator.add_tenant("keyed")
    small = (
        await operator.run("keys", "add", "keyed", "--scopes", "chat", "--expires", "3")
    ).strip()
    listed = json.loads(await operator.run("keys", "list", "--json"))["keys"]
    mine = [row for row in listed if row["tenant"] == "keyed"]
    assert [row["scopes"] for row in mine] == [["chat", "sessions", "runs", "approve"], ["chat"]]
    assert mine[0]["expires"] is None and mine[1]["expires"] > mine[1]["created"]
    assert key not in json.dumps(listed) and small not in json.dumps(listed)
    assert (await node.chat(key=small)).status == 200
    assert (await node.get("/api/sessions", key=small)).status == 403
    assert "Revoked" in await operator.run("keys", "revoke", mine[0]["id"])
    refused = await node.chat(key=key)
    assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
    assert "no key" in await operator.run("keys", "revoke", mine[0]["id"], status=2)
    assert "no tenant" in await operator.run("keys", "add", "nobody", status=2)


async def test_a_suspended_tenant_is_told_and_a_removed_one_is_gone(
    node: Api, operator: Operator
) -> None:
    key = await operator.add_tenant("late")
    assert (await node.chat(key=key)).status == 200
    await operator.run("tenants", "suspend", "late")
    refused = await node.chat(key=key)
    assert (refused.status, refused.error["code"]) == (403, "tenant_suspended")
    assert "late is suspended" in refused.error["message"]
    await operator.run("tenants", "resume", "late")
    assert len((await node.get("/api/sessions", key=key)).json["data"]) == 1
    await operator.run("tenants", "remove", "late")
    assert (await node.chat(key=key)).status == 401
    again = await operator.add_tenant("late")
    assert (await node.get("/api/sessions", key=again)).json["data"] == []
    for words in (
        ("set", "late", "color=red"),
        ("set", "late", "daily_usd=much"),
        ("set", "late", "daily_usd=inf"),
        ("set", "late", "requests_per_minute=1e30"),
        ("add", "late"),
    ):
        assert "Nothing was changed" in await operator.run("tenants", *words, status=2)


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("requests_per_minute=2", "rate_limit_exceeded"),
        ("tokens_per_minute=60", "rate_limit_exceeded"),
        ("daily_usd=0.09", "insufficient_quota"),
        ("monthly_usd=0.09", "insufficient_quota"),
        ("storage_mb=0.0002", "storage_full"),
    ],
)
async def test_a_limit_that_is_reached_is_a_429(
    node: Api, operator: Operator, limit: str, code: str
) -> None:
    name = limit.partition("=")[0]
    key = await operator.add_tenant(name, limit)
    got = await node.chat("x" * 400, key=key)
    assert got.status == 200, got.body
    async with asyncio.timeout(90):
        while got.status == 200:
            got = await node.chat("x" * 400, key=key)
    assert (got.status, got.error["code"]) == (429, code), got.body
    assert (await node.chat(key=OPERATOR)).status == 200
    await operator.run("tenants", "set", name, f"{name}=")
    assert (await node.chat(key=key)).status == 200


async def test_only_so_many_turns_run_at_a_time(node: Api, operator: Operator) -> None:
    key = await operator.add_tenant("busy", "concurrent_turns=1")
    run = (await node.post("/v1/runs", {"input": "wait for it"}, key=key)).json["run_id"]
    await held.reached()
    refused = await node.chat(key=key)
    assert (refused.status, refused.error["code"]) == (429, "too_many_runs")
    assert refused.headers["Retry-After"]
    held.open()
    await node.get(f"/v1/runs/{run}/events", key=key)
    assert (await node.get(f"/v1/runs/{run}", key=key)).json["output"] == "So long."
    assert (await node.chat(key=key)).status == 200


async def test_runs_beyond_the_limit_wait_and_are_all_answered(
    node: Api, operator: Operator
) -> None:
    key = await operator.add_tenant("patient", "concurrent_turns=2")
    started = [await node.post("/v1/runs", {"input": f"n {n}"}, key=key) for n in range(8)]
    assert {answer.status for answer in started} == {202}
    for answer in started:
        run = answer.json["run_id"]
        await node.get(f"/v1/runs/{run}/events", key=key)
        assert (await node.get(f"/v1/runs/{run}", key=key)).json["output"] == "Yes."


async def test_models_and_toolsets_of_a_tenant(node: Api, operator: Operator) -> None:
    key = await operator.add_tenant("narrow", "toolsets=todo")
    made = len(node.provider.requests)
    assert (await node.chat(key=key)).status == 200
    names = [tool["function"]["name"] for tool in node.provider.requests[made].json["tools"]]
    assert names == ["todo"]
    await operator.run("tenants", "set", "narrow", "models=another")
    refused = await node.chat(key=key)
    assert (refused.status, refused.error["code"]) == (403, "model_not_allowed")
    await operator.run("tenants", "set", "narrow", "models=another,kit-model")
    assert (await node.chat(key=key)).status == 200

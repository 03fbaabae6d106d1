"""What a tenant does is shown to nobody else, and nothing of it is left when it is removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest

from hermes.store.postgres.tenants import list_tenant_tables
from tests.kit import Gate, Home, run_hermes, say
from tests.kit.memory_service import MemoryService
from tests.kit.postgres import create_database
from tests.kit.server import Provider
from tests.server.serve_process import SECRET, ServeProcess, serve
from tests.server.test_cluster import make_home, run_nodes

pytestmark = pytest.mark.e2e


@pytest.fixture
def url(postgres_server: str) -> Any:
    with create_database(postgres_server, tables=False) as made:
        yield made


async def run_command(home: Home, *words: str) -> str:
    done = await run_hermes([*words], home)
    assert done.rc == 0, done.stderr
    return done.stdout.strip()


def count_rows(url: str) -> dict[str, int]:
    """Those of all tenants, by table."""
    with psycopg.connect(url) as db:
        found = {}
        for table in list_tenant_tables(db):
            statement: Any = f'SELECT count(*) FROM public."{table}" WHERE tenant <> 0'
            if row := db.execute(statement).fetchone():
                found[table] = row[0]
    return {table: count for table, count in found.items() if count}


async def test_nothing_is_left_of_a_removed_tenant(tmp_path: Path, url: str) -> None:
    gate = Gate()
    async with (
        Provider(then=say("One", " two.").hold(gate, n=1)) as provider,
        run_nodes(tmp_path, provider, url, "a") as (a,),
    ):
        home = Home(tmp_path / "a")
        home.env["HERMES_DATABASE_URL"] = url
        await run_command(home, "tenants", "add", "ann")
        key = await run_command(home, "keys", "add", "ann")
        headers = {"Authorization": f"Bearer {key}"}
        status, started = await a.call("POST", "/v1/runs", {"input": "Count."}, **headers)
        assert status == 202, started
        await gate.reached()
        assert "sessions" in count_rows(url)
        await run_command(home, "tenants", "remove", "ann")
        gate.open()
        assert (await a.call("GET", f"/v1/runs/{started['run_id']}", **headers))[0] == 401
        assert await a.stop() == 0
        async with serve(make_home(tmp_path / "b", provider, url)), asyncio.timeout(90):
            while count_rows(url):
                await asyncio.sleep(0.05)


class FeedReader:
    """What the dashboard's feed tells one key."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.text = ""

    async def read_until(self, mark: str) -> None:
        async with asyncio.timeout(90):
            while mark not in self.text:
                self.text += (await self._answer.content.readany()).decode()


@asynccontextmanager
async def read_feed(node: ServeProcess, key: str) -> AsyncIterator[FeedReader]:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{node.url}/api/events", headers=headers) as answer,
    ):
        reader = FeedReader(answer)
        await reader.read_until("event: hello")
        yield reader


async def test_a_feed_tells_of_the_sessions_of_its_tenant(tmp_path: Path, url: str) -> None:
    async with Provider(then=say("Yes.")) as provider, AsyncExitStack() as stack:
        home = make_home(tmp_path / "a", provider, url)
        home.configure(dashboard={"enabled": True})
        await run_command(home, "cluster", "init")
        node = await stack.enter_async_context(serve(home))
        keys = {"operator": SECRET}
        for name in ("ann", "bob"):
            await run_command(home, "tenants", "add", name)
            keys[name] = await run_command(home, "keys", "add", name)
        feeds = {
            name: await stack.enter_async_context(read_feed(node, key))
            for name, key in keys.items()
        }
        for name, key in keys.items():
            body = {"messages": [{"role": "user", "content": f"word of {name}"}]}
            headers = {"Authorization": f"Bearer {key}"}
            status, told = await node.call("POST", "/v1/chat/completions", body, **headers)
            assert status == 200, told
        for name, feed in feeds.items():
            await feed.read_until(f"word of {name}")
            assert feed.text.count("word of") == feed.text.count(f"word of {name}"), feed.text


async def test_the_memory_provider_is_told_of_every_tenant(tmp_path: Path, url: str) -> None:
    """Also of what began to wait while the turns of another were to be delivered."""
    service = MemoryService()
    await service.start()
    async with Provider(then=say("Yes.")) as provider, AsyncExitStack() as stack:
        stack.push_async_callback(service.stop)
        home = make_home(tmp_path / "a", provider, url)
        http = {"url": service.url, "timeout_seconds": 1}
        home.configure(memory={"review": False, "provider": "http", "http": http})
        await run_command(home, "cluster", "init")
        node = await stack.enter_async_context(serve(home))
        service.mood = "broken"
        for name in ("ann", "bob"):
            await run_command(home, "tenants", "add", name)
            key = await run_command(home, "keys", "add", name)
            body = {"messages": [{"role": "user", "content": f"word of {name}"}]}
            headers = {"Authorization": f"Bearer {key}", "X-Hermes-Session-Key": "home"}
            status, told = await node.call("POST", "/v1/chat/completions", body, **headers)
            assert status == 200, told
        service.recover()
        records = await service.wait_for(2, "/record")
        assert len({record["scope"] for record in records}) == 2

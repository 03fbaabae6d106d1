"""A tenant is removed while a turn of it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hermes.store.postgres.tenants import list_tenant_tables
from tests.kit import Gate, Home, run_hermes, say
from tests.kit.postgres import create_database
from tests.kit.server import Provider
from tests.server.serve_process import serve
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

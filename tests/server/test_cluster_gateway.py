"""Messengers and the schedule of a cluster: one node serves them, another follows when it dies."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from tests.gateway.gateways import GatewayProcess
from tests.kit import Home, call, run_hermes, say
from tests.kit.postgres import create_database
from tests.kit.server import Provider, Received
from tests.kit.telegram import OWNER, TOKEN, Telegram, telegram
from tests.server.serve_process import serve
from tests.server.test_cluster import make_home, run_nodes

pytestmark = pytest.mark.e2e
CODE = r"\b[A-Z2-9]{8}\b"


@pytest.fixture
def url(postgres_server: str) -> Any:
    with create_database(postgres_server, tables=False) as made:
        yield made


def make_gateway_home(root: Path, provider: Provider, url: str, fake: Telegram) -> Home:
    home = make_home(root, provider, url, lease_seconds=3)
    home.configure(platforms={"telegram": {"base_url": fake.url, "allowed_users": [OWNER]}})
    home.env["TELEGRAM_BOT_TOKEN"] = TOKEN
    return home


@asynccontextmanager
async def run_gateways(
    root: Path, provider: Provider, url: str, fake: Telegram, *names: str
) -> AsyncIterator[list[GatewayProcess]]:
    homes = [make_gateway_home(root / name, provider, url, fake) for name in names]
    made = await run_hermes(["cluster", "init"], homes[0])
    assert made.rc == 0, made.stderr
    async with AsyncExitStack() as stack:
        started = []
        for home in homes:
            process = GatewayProcess(home, provider, fake)
            await process.start()
            stack.push_async_callback(process.kill)
            started.append(process)
        yield started


async def find_holder(url: str, *, but: str = "") -> str:
    """The node that serves the messengers."""
    async with asyncio.timeout(90):
        while True:
            with psycopg.connect(url) as db:
                row = db.execute(
                    "SELECT split_part(owner, '#', 1) FROM singletons WHERE name = 'gateway'"
                ).fetchone()
            if row is not None and row[0] != but:
                return str(row[0])
            await asyncio.sleep(0.05)


async def wait_for_row(url: str, sql: LiteralString) -> Any:
    async with asyncio.timeout(90):
        while True:
            with psycopg.connect(url) as db:
                if (row := db.execute(sql).fetchone()) is not None:
                    return row
            await asyncio.sleep(0.05)


async def test_another_node_answers_when_the_one_with_the_messengers_dies(
    tmp_path: Path, url: str
) -> None:
    seen: list[str] = []

    def answer(request: Received) -> Any:
        messages = request.json["messages"]
        said = str(next(m["content"] for m in reversed(messages) if m["role"] == "user"))
        seen.append(said)
        if messages[-1]["role"] == "tool":
            return say("Carried on.")
        if said == "first":
            return say("One.")
        if said == "second":
            command = "echo x >> effects.log; while [ ! -e go ]; do sleep 0.1; done"
            return call(("c1", "terminal", {"command": command}))
        return say("Three.")

    effects = tmp_path / "work" / "effects.log"
    async with (
        telegram() as fake,
        Provider(then=answer) as provider,
        run_gateways(tmp_path, provider, url, fake, "a", "b") as nodes,
    ):
        await fake.say("first")
        await fake.until_shown("One.")
        holder = await find_holder(url)
        killed = nodes["ab".index(holder)]
        await fake.say("second")
        async with asyncio.timeout(90):
            while not effects.exists():
                await asyncio.sleep(0.02)
        await killed.kill()
        await fake.say("third")
        await fake.until_shown("Carried on.")
        await fake.until_shown("Three.")
        assert await find_holder(url) != holder
        assert effects.read_text() == "x\n"
        assert "whether it took effect is not known. It was not repeated." in json.dumps(
            provider.last.json["messages"]
        )
        texts = [text for text in fake.texts() if text in ("One.", "Carried on.", "Three.")]
        assert texts == ["One.", "Carried on.", "Three."]


async def test_the_schedule_of_a_cluster_moves_with_the_node_that_is_drained(
    tmp_path: Path, url: str
) -> None:
    """Any node of the role runs jobs, one at a time, also where no messenger is on."""
    async with (
        Provider(then=lambda request: say("Reported.")) as provider,
        run_nodes(tmp_path, provider, url, "a", "b", lease_seconds=3) as nodes,
    ):
        first = await find_holder(url)
        home = Home(tmp_path / first)
        home.env["HERMES_DATABASE_URL"] = url
        shown = await run_hermes(["cron", "status"], home)
        assert shown.rc == 0 and f"scheduler: gateway on {first}" in shown.stdout, shown.stderr
        drained = await run_hermes(["cluster", "drain", first], home)
        assert drained.rc == 0, drained.stderr
        assert await nodes["ab".index(first)].wait() == 0
        await find_holder(url, but=first)
        added = await run_hermes(["cron", "add", "30m", "Report."], home)
        assert added.rc == 0 and "scheduler: none" not in added.stderr, added.stderr
        with psycopg.connect(url) as db:  # half an hour later
            (body,) = db.execute("SELECT body FROM jobs").fetchone() or (b"",)
            due = int(time.time()) - 1
            times = {"created": due - 1800, "anchor": due - 1800, "next": due, "wake": due}
            moved = json.dumps({**json.loads(body), **times}).encode()
            db.execute("UPDATE jobs SET body = %s, wake = %s", (moved, due))
        await wait_for_row(url, "SELECT 1 FROM runs WHERE state NOT IN ('claimed', 'running')")
        with psycopg.connect(url) as db:
            runs = db.execute("SELECT state, text, error FROM runs").fetchall()
        assert runs == [("ok", "Reported.", "")]
        assert len(provider.requests) == 1


async def test_people_are_let_in_through_the_database(tmp_path: Path, url: str) -> None:
    """A server and a gateway are nodes of one cluster: one of them serves the messenger."""
    async with (
        telegram() as fake,
        Provider(then=lambda request: say("Welcome.")) as provider,
    ):
        home = make_gateway_home(tmp_path / "a", provider, url, fake)
        home.configure(platforms={"telegram": {"allowed_users": []}})
        assert (await run_hermes(["cluster", "init"], home)).rc == 0
        async with serve(home):
            await fake.say("Hello", user=7)
            await fake.until(lambda: any(re.search(CODE, text) for text in fake.texts()))
            code = next(re.findall(CODE, text)[0] for text in fake.texts())
            approved = await run_hermes(["pairing", "approve", "telegram", code], home)
            assert approved.rc == 0, approved.stderr
            await fake.say("Hello again", user=7)
            await fake.until_shown("Welcome.")
            listed = await run_hermes(["pairing", "list", "--json"], home)
            assert [row["state"] for row in json.loads(listed.stdout)] == ["paired"]

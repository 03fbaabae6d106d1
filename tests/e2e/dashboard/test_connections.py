"""Nothing is lost or doubled when connections break, and many tabs share one stream."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hermes.app.live.sign_in_codes import create_code
from tests.e2e.dashboard.conftest import visit
from tests.kit import say

LONG = " ".join(f"word{n}" for n in range(400))


class Relay:
    """A TCP relay in front of a server, which can cut all its connections."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._target.hostname, self._target.port
        there, back = await asyncio.open_connection(host, port)
        self._writers |= {writer, back}
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        self._writers -= {writer, back}

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(4096):
                target.write(data)
                await target.drain()
        target.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def open_relay(target: str) -> AsyncIterator[Relay]:
    relay = Relay(target)
    server = await asyncio.start_server(relay.handle, "127.0.0.1", 0)
    relay.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        server.close()
        relay.cut()


@pytest.mark.skipif(
    not os.environ.get("HERMES_TEST_CUTS"),
    reason="by hand: HERMES_TEST_CUTS=1",  # how many answers there are depends on the machine
)
async def test_cut_connections_lose_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    async with visit(tmp_path, then=say(LONG)) as v, open_relay(v.api.url) as relay:
        page = await v.open_page()
        code = await create_code(v.api.server.runtime.store.objects)
        await page.goto(f"{relay.url}/#code={code}")
        await v.wait_until_live(page)
        v.page = page
        await v.send("question 0")
        await page.get_by_role("article", name="You").get_by_text("question 0").wait_for()
        cutting = True

        async def cut_at_random() -> None:
            while cutting:
                await asyncio.sleep(chance.uniform(0.05, 0.6))
                relay.cut()

        task = asyncio.create_task(cut_at_random())
        for n in range(1, 6):
            await page.get_by_role("textbox", name="Message").fill(f"question {n}")
            await page.keyboard.press("Enter")
            await asyncio.sleep(chance.uniform(0.2, 1.5))
        cutting = False
        await task
        await page.get_by_role("article", name="You").get_by_text("question 5").wait_for()
        await page.get_by_role("button", name="Send").wait_for()
        await v.wait_until_live(page)
        async with asyncio.timeout(90):
            while await page.get_by_role("article", name="Hermes").count() < 6:
                await asyncio.sleep(0.2)
        shown = await v.read_log()
        for n in range(6):
            assert shown.count(f"question {n}") == 1
        await page.reload()
        await page.get_by_role("article", name="You").get_by_text("question 5").wait_for()
        async with asyncio.timeout(90):
            while await v.read_log() != shown:
                await asyncio.sleep(0.2)


async def test_twelve_tabs_share_one_stream(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("An answer for all.")) as v:
        await v.send("hello")
        await v.wait_until_answered("An answer for all.")
        address = v.page.url
        pages = [v.page]
        for _ in range(11):
            page = await v.open_page()
            await page.goto(address)
            await page.get_by_text("An answer for all.").wait_for()
            pages.append(page)
        await v.wait_until_live(pages[-1])
        assert len(v.api.server.services.dashboard.feeds) == 1  # type: ignore[union-attr]
        await pages[0].close()
        await v.wait_until_live(pages[-1])
        v.page = pages[-1]
        await v.send("again")
        for page in pages[1:]:
            await page.get_by_role("article", name="You").get_by_text("again").wait_for()

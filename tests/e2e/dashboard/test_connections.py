"""Nothing is lost or doubled when connections break, and many tabs share one stream."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web
from multidict import CIMultiDict

from hermes.app.live.sign_in_codes import create_code
from tests.e2e.dashboard.conftest import visit
from tests.kit import say

LONG = " ".join(f"word{n}" for n in range(400))


CUTS = int(os.environ.get("HERMES_TEST_CUTS", "0"))
ROUNDS = 3
WAIT = 90_000
PREFIX = "/hermes/"


class PrefixProxy:
    """Passes requests below a path on, without it, as reverse proxies do."""

    def __init__(self) -> None:
        self.target = ""
        self.public_url = ""
        self.paths: list[str] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.paths.append(request.path)
        path = request.path_qs.removeprefix(PREFIX)
        dropped = ("Connection", "Content-Length", "Transfer-Encoding")
        headers = {k: v for k, v in request.headers.items() if k not in dropped}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as http,
            http.request(
                request.method,
                f"{self.target}/{path}",
                headers=headers,
                data=await request.read() or None,
                allow_redirects=False,
            ) as answer,
        ):
            kept = [(k, v) for k, v in answer.headers.items() if k not in dropped]
            response = web.StreamResponse(status=answer.status, headers=CIMultiDict(kept))
            await response.prepare(request)
            with suppress(ConnectionError, aiohttp.ClientError):
                async for data in answer.content.iter_any():
                    await response.write(data)
            return response


@asynccontextmanager
async def open_proxy() -> AsyncIterator[PrefixProxy]:
    proxy = PrefixProxy()
    runner = web.ServerRunner(
        web.Server(proxy.handle), handler_cancellation=True, shutdown_timeout=1
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    proxy.public_url = f"http://127.0.0.1:{runner.addresses[0][1]}{PREFIX.rstrip('/')}"
    try:
        yield proxy
    finally:
        await runner.cleanup()


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


@pytest.mark.skipif(not CUTS, reason="by hand: HERMES_TEST_CUTS=300")
async def test_cut_connections_lose_and_double_nothing(tmp_path: Path) -> None:
    """Whatever is cut while a message is on its way and its answer is written: the page shows it
    once, and there is one turn for it."""
    chance = random.Random(7)
    questions = [f"question-{n}." for n in range(ROUNDS + 1)]
    async with visit(tmp_path, then=say(LONG)) as v, open_relay(v.api.url) as relay:
        page = v.page = await v.open_page()
        code = await create_code(v.api.server.runtime.store.objects)
        await page.goto(f"{relay.url}/#code={code}")
        await v.wait_until_live(page)
        answers = page.get_by_role("article", name="Hermes")
        for n, question in enumerate(questions):
            await v.send(question)
            for _ in range(CUTS // ROUNDS if n else 0):
                relay.cut()
                await asyncio.sleep(chance.uniform(0, 0.2))
            own = page.get_by_role("article", name="You").get_by_text(question)
            await own.wait_for(timeout=WAIT)
            # Only a page that hears the server knows that the turn runs; another message would
            # steer it.
            await v.wait_until_live(page)
            await answers.nth(n).get_by_text("word399").wait_for(timeout=WAIT)
            await page.get_by_role("button", name="Send").wait_for(timeout=WAIT)
        assert len(v.api.provider.requests) == len(questions)
        shown = await v.read_log()
        assert [shown.count(question) for question in questions] == [1] * len(questions)
        await page.reload()
        async with asyncio.timeout(WAIT / 1000):
            while await v.read_log() != shown:
                await asyncio.sleep(0.1)


async def test_a_proxy_with_a_prefix(tmp_path: Path) -> None:
    """Signing in, a turn and its live answer through a proxy that puts the pages under a path."""
    async with open_proxy() as proxy:
        config = {"dashboard": {"enabled": True, "public_url": proxy.public_url}}
        async with visit(tmp_path, then=say("Through the proxy."), config=config) as v:
            proxy.target = v.api.url
            page = v.page = await v.open_page()
            code = await create_code(v.api.server.runtime.store.objects)
            await page.goto(f"{proxy.public_url}/#code={code}")
            await v.wait_until_live(page)
            await v.send("hello")
            await v.wait_until_answered("Through the proxy.")
            assert proxy.paths and all(path.startswith(PREFIX) for path in proxy.paths)
            foreign = {"Host": "evil.example"}
            assert (await v.api.get("/", headers=foreign)).status == 421


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

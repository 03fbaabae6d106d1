"""The real server on a loopback port, in this process, with a scripted provider behind it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from hermes.app.cluster.node import ClusterNode
from hermes.app.runtime import Runtime
from hermes.config.api_server import read_settings
from hermes.config.load import Setup, load_setup
from hermes.gateway.process.messenger_desk import MessengerDesk
from hermes.server.app import Server
from hermes.store.sqlite import SqliteStore
from tests.kit.home import Home
from tests.kit.postgres import STORE, provide_database
from tests.kit.server import Provider, Step

NODES = int(os.environ.get("HERMES_TEST_NODES", "1"))
"""Of a cluster, that share the requests of the tests."""
only_one_node = pytest.mark.skipif(NODES > 1, reason="looks at what one node knows or has")
API_KEY = "kit-server-key-0123456789abcdef"


class Answer:
    """A response that has been read to its end."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """The envelope; it must have all four fields."""
        error = self.json["error"]
        assert {"message", "type", "param", "code"} <= error.keys(), error
        return error

    @property
    def events(self) -> list[tuple[str, Any]]:
        """(name, data) of a stream; data that is no JSON stays text."""
        found = []
        for frame in self.body.decode().split("\n\n"):
            lines = [line.partition(": ")[::2] for line in frame.split("\n") if line]
            fields = {name: value for name, value in lines if name}
            if "data" in fields:
                data = fields["data"]
                found.append(
                    (fields.get("event", ""), data if data == "[DONE]" else json.loads(data))
                )
        return found


class Reading:
    """A response that is still coming."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._content = answer.content

    async def until(self, mark: bytes, timeout: float = 90) -> bytes:
        """What came, up to the frame with this in it."""
        got = b""
        async with asyncio.timeout(timeout):
            while mark not in got:
                line = await self._content.readuntil(b"\n\n")
                got += line
                assert line, f"{mark!r} did not come: {got!r}"
        return got

    async def rest(self, timeout: float = 90) -> bytes:
        async with asyncio.timeout(timeout):
            return await self._content.read()


class Api:
    """One server, and a client that has its key. Where there are more nodes, each request goes to
    the next of them."""

    def __init__(self, url: str, server: Server, provider: Provider, home: Home, key: str) -> None:
        self._urls = cycle([url])
        self.server = server
        self.provider = provider
        self.home = home
        self.key = key
        self.http: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return next(self._urls)

    def spread(self, urls: Sequence[str]) -> None:
        self._urls = cycle(urls)

    async def call(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Answer:
        sent = dict(headers or {})
        key = self.key if key is None else key
        if key and "Authorization" not in sent:
            sent["Authorization"] = f"Bearer {key}"
        if data is not None and "Content-Type" not in sent:
            sent["Content-Type"] = "application/json"
        body = io.BytesIO(data) if data is not None and len(data) > 1 << 20 else data
        async with self.http.request(
            method, self.url + path, json=json, data=body, headers=sent
        ) as answer:
            return Answer(answer.status, answer.headers.copy(), await answer.read())

    async def get(self, path: str, **rest: Any) -> Answer:
        return await self.call("GET", path, **rest)

    async def post(self, path: str, json: Any = None, **rest: Any) -> Answer:
        return await self.call("POST", path, json, **rest)

    async def raw(self, data: bytes, *, until: bytes = b"", timeout: float = 90) -> bytes:
        """These bytes on a connection of their own; what came back until it was closed, or until
        `until` was there."""
        url = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        got = b""
        try:
            async with asyncio.timeout(timeout):
                writer.write(data)
                while chunk := await reader.read(65536):
                    got += chunk
                    if until and until in got:
                        break
        except ConnectionError:
            pass
        finally:
            writer.close()
        return got

    @asynccontextmanager
    async def open_stream(
        self, method: str, path: str, json: Any = None, **headers: str
    ) -> AsyncIterator[Reading]:
        """A stream that is read piece by piece, and left when the block ends."""
        sent = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        async with (
            aiohttp.ClientSession() as http,
            http.request(method, self.url + path, json=json, headers={**sent, **headers}) as answer,
        ):
            yield Reading(answer)

    async def chat(self, text: str = "hi", **body: Any) -> Answer:
        messages = [{"role": "user", "content": text}]
        rest = {name: body.pop(name) for name in ("headers", "key") if name in body}
        return await self.post("/v1/chat/completions", {"messages": messages, **body}, **rest)

    async def ask(self, input: Any = "hi", **body: Any) -> Answer:
        """POST /v1/responses."""
        rest = {name: body.pop(name) for name in ("headers", "key") if name in body}
        return await self.post("/v1/responses", {"input": input, **body}, **rest)


@asynccontextmanager
async def join_cluster(setup: Setup) -> AsyncIterator[ClusterNode | None]:
    """The server as a node, where a database is configured."""
    if not setup.database_url:
        yield None
        return
    node = ClusterNode(setup)
    await node.join_cluster(lambda: None)
    try:
        yield node
    finally:
        await node.store.close()


@asynccontextmanager
async def api(
    root: Path,
    steps: Iterable[Step] | Provider = (),
    *,
    then: Step | None = None,
    key: str = API_KEY,
    settings: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
) -> AsyncIterator[Api]:
    """`key`: the server's one key, empty for none; `settings`: platforms.api_server. A Provider
    given as `steps` is open already, and stays it: for servers one after the other."""
    root.mkdir(exist_ok=True)
    own = nullcontext(steps) if isinstance(steps, Provider) else Provider(steps, then=then)
    async with own as provider:
        home = Home.of(root, provider)
        home.configure(terminal={"cwd": str(home.work)})
        home.configure(platforms={"api_server": {"port": 0, **(settings or {})}}, **(config or {}))
        home.env.update(env or {})
        if key:
            home.env["API_SERVER_KEY"] = key
        if os.environ.get(STORE) == "postgres":
            home.env["HERMES_DATABASE_URL"] = provide_database(str(root))
        async with AsyncExitStack() as stack:
            server, url = await stack.enter_async_context(serve_home(home.env))
            kit = Api(url, server, provider, home, key)
            kit.http = await stack.enter_async_context(aiohttp.ClientSession())
            if os.environ.get(STORE) == "postgres":
                urls = [url]
                for number in range(1, NODES):
                    other = shutil.copytree(home.path, root / f"home{number}", dirs_exist_ok=True)
                    env = {**home.env, "HERMES_HOME": str(other)}
                    urls.append((await stack.enter_async_context(serve_home(env)))[1])
                kit.spread(urls)
            yield kit


@asynccontextmanager
async def serve_home(env: dict[str, str]) -> AsyncIterator[tuple[Server, str]]:
    """The server of a home, and where it listens."""
    setup = load_setup("", env)
    async with (
        join_cluster(setup) as node,
        Runtime.open(setup, store=node and node.store) as runtime,
    ):
        store, open_messengers = runtime.store, None
        if isinstance(store, SqliteStore):
            desk = MessengerDesk(setup, store)
            open_messengers = lambda: desk  # noqa: E731
        settings = read_settings(setup.config, env)[0]
        server = Server(runtime, settings, open_messengers=open_messengers, node=node)
        async with server.listen() as url:
            yield server, url

"""The real server on a loopback port, in this process, with a scripted provider behind it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from hermes.app.runtime import Runtime
from hermes.config.api_server import read
from hermes.config.load import load
from hermes.server.app import Server
from tests.kit.home import Home
from tests.kit.server import Provider, Step

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


class Api:
    """One server, and a client that has its key."""

    def __init__(self, url: str, server: Server, provider: Provider, home: Home, key: str) -> None:
        self.url = url
        self.server = server
        self.provider = provider
        self.home = home
        self.key = key
        self.http: aiohttp.ClientSession

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
        async with self.http.request(
            method, self.url + path, json=json, data=data, headers=sent
        ) as answer:
            return Answer(answer.status, answer.headers.copy(), await answer.read())

    async def get(self, path: str, **rest: Any) -> Answer:
        return await self.call("GET", path, **rest)

    async def post(self, path: str, json: Any = None, **rest: Any) -> Answer:
        return await self.call("POST", path, json, **rest)

    async def chat(self, text: str = "hi", **body: Any) -> Answer:
        messages = [{"role": "user", "content": text}]
        headers = body.pop("headers", None)
        return await self.post(
            "/v1/chat/completions", {"messages": messages, **body}, headers=headers
        )


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
    """`key`: the server's one key, empty for none; `settings`: platforms.api_server."""
    provider = steps if isinstance(steps, Provider) else Provider(steps, then=then)
    async with provider:
        home = Home.of(root, provider)
        home.configure(terminal={"cwd": str(home.work)})
        home.configure(platforms={"api_server": {"port": 0, **(settings or {})}}, **(config or {}))
        home.env.update(env or {})
        if key:
            home.env["API_SERVER_KEY"] = key
        setup = load("", home.env)
        async with Runtime.open(setup) as runtime:
            server = Server(runtime, read(setup.config, home.env)[0])
            async with server.listening() as url, aiohttp.ClientSession() as http:
                kit = Api(url, server, provider, home, key)
                kit.http = http
                yield kit

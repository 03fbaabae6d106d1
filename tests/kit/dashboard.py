"""A server with the dashboard, and a browser's requests to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from hermes.app.live.sign_in_codes import create_code
from tests.kit.api import Answer, Api

ON = {"dashboard": {"enabled": True}}


class Browser:
    """Cookie and page token of one signed-in browser."""

    def __init__(self, a: Api, cookie: str, token: str) -> None:
        self.api = a
        self.cookie = cookie
        self.token = token

    @property
    def headers(self) -> dict[str, str]:
        return {
            "Cookie": self.cookie,
            "X-Hermes-Page": self.token,
            "Origin": self.api.url,
            "Sec-Fetch-Site": "same-origin",
        }

    async def call(self, method: str, path: str, body: Any = None, **more: str) -> Answer:
        return await self.api.call(method, path, body, key="", headers={**self.headers, **more})

    async def get(self, path: str) -> Answer:
        return await self.call("GET", path)

    async def post(self, path: str, body: Any = None) -> Answer:
        return await self.call("POST", path, body)

    async def create_session(self) -> str:
        answer = await self.post("/api/sessions", {})
        assert answer.status == 201, answer.body
        return str(answer.json["id"])

    async def send(self, session: str, text: str, client_id: str = "", **more: Any) -> Answer:
        body = {"client_id": client_id or f"client-{id(text)}", "content": text, **more}
        return await self.post(f"/api/sessions/{session}/turns", body)

    @asynccontextmanager
    async def watch(self, *watched: str, **more: str) -> AsyncIterator[Stream]:
        path = f"{self.api.url}/api/events?watch={','.join(watched)}"
        async with (
            aiohttp.ClientSession() as http,
            http.get(path, headers={**self.headers, **more}) as answer,
        ):
            assert answer.status == 200, await answer.read()
            yield Stream(answer)


class Stream:
    """The events of a feed, one at a time."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.seen: list[tuple[str, Any]] = []

    async def next(self) -> tuple[str, Any]:
        while True:
            frame = (await self._answer.content.readuntil(b"\n\n")).decode()
            assert frame, "the feed ended"
            fields = dict(line.split(": ", 1) for line in frame.strip().split("\n"))
            if "event" in fields:
                found = (fields["event"], json.loads(fields["data"]))
                self.seen.append(found)
                return found

    async def until(self, name: str, **wanted: Any) -> Any:
        """The data of the next event of this name with these fields."""
        async with asyncio.timeout(90):
            while True:
                found, data = await self.next()
                if found == name and all(data.get(k) == v for k, v in wanted.items()):
                    return data


async def sign_in(a: Api) -> Browser:
    """A browser that signed in with a code, as the operator."""
    code = await create_code(a.server.runtime.store.objects)
    answer = await a.post("/api/web/login", {"code": code}, key="", headers={"Origin": a.url})
    assert answer.status == 200, answer.body
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    return Browser(a, cookie, answer.json["page_token"])

"""kill -9 while a message of the dashboard is answered and another waits: nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.kit import Gate, Home, run_hermes, say
from tests.kit.server import Provider, Received
from tests.server.serve_process import ServeProcess, serve

pytestmark = pytest.mark.e2e


class Visitor:
    """A signed-in browser that outlives the servers it talks to."""

    def __init__(self) -> None:
        self.server: ServeProcess
        self.cookie = self.token = ""

    async def sign_in(self, home: Home) -> None:
        code = (await run_hermes(["dashboard", "--code"], home)).stdout.strip()
        answer, headers = await self._request("POST", "/api/web/login", {"code": code})
        self.token = answer["page_token"]
        self.cookie = headers["Set-Cookie"].partition(";")[0].partition("=")[2]

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return (await self._request(method, path, body))[0]

    async def _request(self, method: str, path: str, body: Any) -> tuple[Any, Any]:
        url = self.server.url
        headers = {"Origin": url, "Cookie": f"hermes-{url.rpartition(':')[2]}={self.cookie}"}
        if self.token:
            headers["X-Hermes-Page"] = self.token
        async with (
            aiohttp.ClientSession() as http,
            http.request(method, url + path, json=body, headers=headers) as answer,
        ):
            assert answer.status < 300, await answer.text()
            return await answer.json(), answer.headers

    async def send(self, session: str, text: str) -> Any:
        body = {"client_id": f"client-{text}", "content": text}
        return await self.call("POST", f"/api/sessions/{session}/turns", body)

    async def read_texts(self, session: str) -> list[str]:
        found = (await self.call("GET", f"/api/sessions/{session}/messages"))["data"]
        return [p["text"] for m in found for p in m["content"] if p["type"] == "text"]


async def test_a_kill_in_the_middle_loses_and_doubles_nothing(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def note_request(request: Received) -> None:
        asked.set()

    held = say("Never", " said").hold(Gate(), n=0)
    async with Provider([held], then=say("Answered."), observe=note_request) as provider:
        home = Home.of(tmp_path, provider)
        home.configure(dashboard={"enabled": True})
        visitor = Visitor()
        async with serve(home) as visitor.server:
            await visitor.sign_in(home)
            session = (await visitor.call("POST", "/api/sessions", {}))["id"]
            first = await visitor.send(session, "first")
            async with asyncio.timeout(90):
                await asked.wait()
            second = await visitor.send(session, "second")
            assert second["state"] == "queued"
            visitor.server.process.kill()
            await visitor.server.wait()
        async with serve(home) as visitor.server:
            async with asyncio.timeout(90):
                while (await visitor.read_texts(session))[-1] != "Answered.":
                    await asyncio.sleep(0.05)
            assert (await visitor.send(session, "first"))["id"] == first["id"]
            assert (await visitor.send(session, "second"))["id"] == second["id"]
            assert await visitor.read_texts(session) == ["first", "second", "Answered."]

"""Firefox by WebDriver BiDi: a few commands over its own socket, without a driver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

_STARTED = "WebDriver BiDi listening on "


class Firefox:
    """One window; `run` evaluates a script in it and returns its value."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._window = ""

    async def send(self, method: str, **params: Any) -> Any:
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(1200):  # the test has a limit of its own
            while True:
                answer = json.loads(await self._socket.receive_str())
                if answer.get("id") == number:
                    assert answer["type"] == "success", answer
                    return answer["result"]

    async def open(self, url: str) -> None:
        if not self._window:
            await self.send("session.new", capabilities={})
            tree = await self.send("browsingContext.getTree")
            self._window = tree["contexts"][0]["context"]
            size = {"width": 1200, "height": 900}
            await self.send("browsingContext.setViewport", context=self._window, viewport=size)
        await self.send("browsingContext.navigate", context=self._window, url=url, wait="complete")

    async def run(self, script: str) -> Any:
        answer = await self.send(
            "script.evaluate",
            expression=f"Promise.resolve({script}).then(value => JSON.stringify(value ?? null))",
            target={"context": self._window},
            awaitPromise=True,
        )
        assert answer["type"] == "success", answer
        return json.loads(answer["result"]["value"])

    async def wait_for(self, script: str) -> None:
        """Wait until the script's value is true."""
        async with asyncio.timeout(90):
            while not await self.run(script):
                await asyncio.sleep(0.05)


@asynccontextmanager
async def open_firefox(program: str, profile: Path) -> AsyncIterator[Firefox]:
    profile.mkdir(parents=True)
    options = ("--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port=0")
    process = await asyncio.create_subprocess_exec(
        program, *options, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(90):
            while _STARTED not in (line := (await process.stderr.readline()).decode()):
                assert line, "Firefox ended"
        address = line.partition(_STARTED)[2].strip()
        reader = asyncio.create_task(process.stderr.read())
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(f"{address}/session", max_msg_size=0) as socket,
        ):
            yield Firefox(socket)
        reader.cancel()
    finally:
        process.kill()
        await process.wait()

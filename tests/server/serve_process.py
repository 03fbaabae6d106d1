"""`hermes serve` as a process, for tests that stop or kill it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.kit import Home, start_hermes

SECRET = "serve-key-0123456789abcdef0123456789"


class ServeProcess:
    def __init__(self, process: asyncio.subprocess.Process, url: str, told: str) -> None:
        self.process = process
        self.url = url
        self.told = told

    async def call(self, method: str, path: str, json: Any = None, **headers: str) -> Any:
        sent = {"Authorization": f"Bearer {SECRET}", **headers}
        async with (
            aiohttp.ClientSession() as http,
            http.request(method, self.url + path, json=json, headers=sent) as answer,
        ):
            return answer.status, await answer.json()

    async def read(self, path: str) -> bytes:
        headers = {"Authorization": f"Bearer {SECRET}"}
        async with aiohttp.ClientSession() as http, http.get(self.url + path, headers=headers) as r:
            return await r.read()

    async def wait(self) -> int:
        async with asyncio.timeout(90):
            return await self.process.wait()

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.wait()

    async def wait_until_closed(self) -> None:
        """Wait until the port no longer accepts connections."""
        _, _, port = self.url.rpartition(":")
        async with asyncio.timeout(90):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", int(port))
                except ConnectionError:
                    return
                writer.close()
                await asyncio.sleep(0.02)


@asynccontextmanager
async def serve(
    home: Home, *args: str, key: str = SECRET, command: Sequence[str] = (), **env: str
) -> AsyncIterator[ServeProcess]:
    extra = {**({"API_SERVER_KEY": key} if key else {}), **env}
    words = ["serve", *(args or ("--port", "0"))]
    process = await start_hermes(words, home, env=extra, command=command)
    assert process.stderr is not None
    told = ""
    try:
        async with asyncio.timeout(90):
            while "listening on" not in told:
                line = (await process.stderr.readline()).decode()
                assert line, told
                told += line
        yield ServeProcess(process, told.rpartition("listening on ")[2].strip(), told)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()

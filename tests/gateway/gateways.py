"""`hermes gateway run` as a process, with a scripted model and a Telegram on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kit import Home, Provider, start_hermes
from tests.kit.server import Step
from tests.kit.telegram import OWNER, TOKEN, Telegram, telegram


class GatewayProcess:
    """One home whose gateway is started, stopped and killed."""

    def __init__(self, home: Home, provider: Provider, fake: Telegram) -> None:
        self.home = home
        self.provider = provider
        self.telegram = fake
        self.process: asyncio.subprocess.Process
        self.stderr = ""
        self._reader: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def start(self, **env: str) -> None:
        self.process = await start_hermes(["gateway", "run"], self.home, env=env)
        self.stderr = ""
        self._reader = asyncio.create_task(self._read())
        await self.until_said("gateway running")

    async def _read(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.stderr += line.decode()
            self._news.set()
        self._news.set()

    async def until_said(self, text: str, timeout: float = 90) -> None:
        async with asyncio.timeout(timeout):
            while text not in self.stderr:
                assert self._reader is not None and not self._reader.done(), self.stderr
                self._news.clear()
                await self._news.wait()

    async def wait(self) -> int:
        async with asyncio.timeout(90):
            code = await self.process.wait()
        if self._reader is not None:
            await self._reader
        return code

    async def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return await self.wait()

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.wait()


@asynccontextmanager
async def gateway(
    root: Path,
    steps: Iterable[Step] = (),
    *,
    then: Step | None = None,
    platform: dict[str, Any] | None = None,
    start: bool = True,
    **config: Any,
) -> AsyncIterator[GatewayProcess]:
    """A running gateway; the owner may talk to it unless `platform` says otherwise."""
    async with telegram() as fake, Provider(steps, then=then) as provider:
        settings = {"base_url": fake.url, "allowed_users": [OWNER], **(platform or {})}
        home = Home.of(root, provider, platforms={"telegram": settings}, **config)
        home.env["TELEGRAM_BOT_TOKEN"] = TOKEN
        process = GatewayProcess(home, provider, fake)
        if start:
            await process.start()
        try:
            yield process
        finally:
            if hasattr(process, "process") and process.process.returncode is None:
                await process.kill()
            assert not provider.errors, provider.errors
        for leak in home.path.rglob("*"):
            if leak.is_file() and ".db" not in leak.name:
                assert TOKEN.encode() not in leak.read_bytes(), f"the token is in {leak}"

"""The gateway with a scripted model and a Telegram on loopback: in this process, or as its own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import structs

from hermes.app.runtime import Runtime
from hermes.cli.gateway.process import open_platforms, open_registered_platforms
from hermes.config.load import load_setup
from hermes.config.paths import database_file
from hermes.gateway.service import Gateway
from hermes.store.sqlite import SqliteStore
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
        self.command: tuple[str, ...] = ()
        """What runs the program, if not itself."""
        self.stderr = ""
        self._reader: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def start(self, **env: str) -> None:
        self.process = await start_hermes(
            ["gateway", "run"], self.home, env=env, command=self.command
        )
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


class LiveGateway:
    """The gateway in this process: quicker to start, and it can be looked into."""

    def __init__(self, home: Home, provider: Provider, fake: Telegram) -> None:
        self.home = home
        self.provider = provider
        self.telegram = fake
        self.service: Gateway
        self._stack = AsyncExitStack()
        self._running: asyncio.Task[bool] | None = None

    async def start(self) -> None:
        setup = load_setup("", self.home.env)
        config = structs.replace(setup.config.terminal, cwd=str(self.home.work))
        setup = structs.replace(setup, config=structs.replace(setup.config, terminal=config))
        store = SqliteStore(database_file(setup.home))
        self._stack.push_async_callback(store.close)
        runtime = await self._stack.enter_async_context(Runtime.open(setup, store=store))
        registered = open_registered_platforms(setup, runtime.plugins)
        self.service = Gateway(runtime, store, (*open_platforms(setup), *registered))
        running = asyncio.Event()
        self._running = asyncio.create_task(self.service.run(running.set))
        async with asyncio.timeout(90):
            await running.wait()

    async def stop(self) -> int:
        if self._running is None:
            return 0
        self.service.request_stop()
        async with asyncio.timeout(90):
            await self._running
        self._running = None
        await self._stack.aclose()
        return 0


@asynccontextmanager
async def live_gateway(
    root: Path,
    steps: Iterable[Step] = (),
    *,
    then: Step | None = None,
    platform: dict[str, Any] | None = None,
    start: bool = True,
    **config: Any,
) -> AsyncIterator[LiveGateway]:
    """A gateway in this process; the owner may talk to it unless `platform` says otherwise."""
    async with telegram() as fake, Provider(steps, then=then) as provider:
        live = LiveGateway(_make_home(root, provider, fake, platform, config), provider, fake)
        if start:
            await live.start()
        try:
            yield live
        finally:
            await live.stop()
            assert not provider.errors, provider.errors


def _make_home(
    root: Path,
    provider: Provider,
    fake: Telegram,
    platform: dict[str, Any] | None,
    config: dict[str, Any],
) -> Home:
    settings = {"base_url": fake.url, "allowed_users": [OWNER], **(platform or {})}
    home = Home.of(root, provider, platforms={"telegram": settings}, **config)
    home.env["TELEGRAM_BOT_TOKEN"] = TOKEN
    return home


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
        home = _make_home(root, provider, fake, platform, config)
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

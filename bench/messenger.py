"""The gateways of both programs as processes, with the same Telegram on loopback."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from bench import peers
from bench.provider import WORD

TOKEN = "123456789:AAbench-telegram-token-0123456789abcd"
TICK = os.sysconf("SC_CLK_TCK")
BOT = 123456789  # nobody who writes: programs ignore themselves
EVICTION_SECONDS = 35
"""Conversations beyond the hundred that are kept go within half a minute."""
REST_SECONDS = 2
Add = Callable[..., None]


@dataclass(frozen=True)
class Size:
    """How much of each is asked of a program."""

    starts: int
    offline_starts: int
    messages: int
    conversations: int
    crowd: int


SIZES = {
    "original": Size(starts=3, offline_starts=1, messages=60, conversations=40, crowd=0),
    "ours": Size(starts=5, offline_starts=5, messages=300, conversations=200, crowd=1000),
}
KNOWN = range(2, 22)
# What the original needs in order to speak with this Telegram instead of the real one: the address
# in its configuration, and a home channel, which it asks for otherwise. Its search for other
# addresses of Telegram takes half a minute without a network: that is a row of its own.
ORIGINAL_CONFIG = "platforms:\n  telegram:\n    extra:\n      base_url: {url}/bot\n"
ORIGINAL_ENV = {"TELEGRAM_HOME_CHANNEL": "424242", "GATEWAY_ALLOW_ALL_USERS": "true"}
WITHOUT_SEARCH = {"HERMES_TELEGRAM_DISABLE_FALLBACK_IPS": "true"}


class Telegram:
    """Answers polls at once when somebody has written, and counts the answers of the model."""

    def __init__(self) -> None:
        self.url = ""
        self.polled = asyncio.Event()
        self.sent = 0
        self._updates: list[dict[str, Any]] = []
        self._ids = itertools.count(1)
        self._news = asyncio.Condition()

    async def say(self, user: int) -> None:
        number = next(self._ids)
        person = {"id": user, "is_bot": False, "first_name": "A"}
        message = make_message(number, user) | {"from": person, "text": "hi"}
        async with self._news:
            self._updates.append({"update_id": number, "message": message})
            self._news.notify_all()

    async def until_sent(self, count: int) -> None:
        async with asyncio.timeout(120), self._news:
            await self._news.wait_for(lambda: self.sent >= count)

    async def handle(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        if method == "getUpdates":
            return _answer(await self._poll(await read_fields(request)))
        if method == "getMe":
            return _answer({"id": BOT, "is_bot": True, "first_name": "B", "username": "bench_bot"})
        if method == "sendMessage":
            fields = await read_fields(request)
            chat = int(fields["chat_id"])
            async with self._news:
                self.sent += str(fields["text"]).strip() == WORD
                self._news.notify_all()
            return _answer(make_message(next(self._ids), chat))
        return _answer(True)

    async def _poll(self, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        self.polled.set()
        offset = int(params.get("offset") or 0)
        async with self._news:
            self._updates = [u for u in self._updates if u["update_id"] >= offset]
            try:
                async with asyncio.timeout(float(params.get("timeout") or 0)):
                    await self._news.wait_for(lambda: self._updates)
            except TimeoutError:
                return []
            return list(self._updates)


def make_message(number: int, chat: int) -> dict[str, Any]:
    return {
        "message_id": number,
        "chat": {"id": chat, "type": "private"},
        "date": int(time.time()),
    }


async def read_fields(request: web.Request) -> Mapping[str, Any]:
    """What a method was called with: ours sends JSON, other clients send forms."""
    if request.content_type == "application/json":
        return dict(await request.json())
    return dict(await request.post())


def _answer(result: object) -> web.Response:
    return web.json_response({"ok": True, "result": result})


class Gateway:
    """The gateway of one program, as a process."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    @classmethod
    async def start(cls, home: peers.Home, env: Mapping[str, str]) -> "Gateway":
        program = str(home.bin / "hermes")
        with (home.path / "gateway.log").open("wb") as log:
            child = await asyncio.create_subprocess_exec(
                *(program, "gateway", "run"),
                env=home.env | env,
                cwd=home.cwd,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return cls(child)

    def cpu_ms(self) -> float:
        stat = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, stat[11:15])) * 1e3 / TICK

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self._child.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    async def stop(self) -> None:
        if self._child.returncode is None:
            self._child.terminate()
            try:
                async with asyncio.timeout(20):
                    await self._child.wait()
            except TimeoutError:
                self._child.kill()
                await self._child.wait()


@asynccontextmanager
async def running(
    fake: Telegram, home: peers.Home, env: Mapping[str, str]
) -> AsyncIterator[Gateway]:
    """A gateway that has polled for the first time."""
    fake.polled.clear()
    gateway = await Gateway.start(home, env)
    try:
        async with asyncio.timeout(90):
            await fake.polled.wait()
        yield gateway
    except TimeoutError:
        log = (home.path / "gateway.log").read_text()[-2000:]
        raise RuntimeError(f"it did not answer the Telegram on loopback: {log}") from None
    finally:
        await gateway.stop()


async def measure_starts(
    fake: Telegram, home: peers.Home, env: Mapping[str, str], count: int, add: Add
) -> None:
    for number in range(-1, count):
        begin = time.perf_counter()
        async with running(fake, home, env):
            took = (time.perf_counter() - begin) * 1e3
            if number >= 0:  # the first one writes byte code
                add("gateway_start", took)
                begin = time.perf_counter()
            await ask(fake, [1])
            if number >= 0:
                add("gateway_first", (time.perf_counter() - begin) * 1e3)


async def measure_offline_starts(
    fake: Telegram, home: peers.Home, env: Mapping[str, str], count: int, add: Add
) -> None:
    for _ in range(count):
        begin = time.perf_counter()
        async with running(fake, home, env):
            add("gateway_offline", (time.perf_counter() - begin) * 1e3)


async def measure_messages(
    fake: Telegram, home: peers.Home, env: Mapping[str, str], size: Size, add: Add
) -> None:
    async with running(fake, home, env) as gateway:
        await asyncio.sleep(REST_SECONDS)
        idle = gateway.rss_mb()
        add("gateway_memory", idle)
        await ask(fake, KNOWN)
        before = gateway.cpu_ms()
        await ask(fake, list(KNOWN) * (size.messages // len(KNOWN)))
        add("gateway_cpu", (gateway.cpu_ms() - before) / size.messages)
        before, memory = gateway.cpu_ms(), gateway.rss_mb()
        await ask(fake, range(1000, 1000 + size.conversations))
        add("gateway_new", (gateway.cpu_ms() - before) / size.conversations)
        add("gateway_growth", (gateway.rss_mb() - memory) * 40 / size.conversations)
        if size.crowd:
            await ask(fake, range(10_000, 10_000 + size.crowd))
            await asyncio.sleep(EVICTION_SECONDS)
            add("gateway_evicted", gateway.rss_mb() - idle)


async def ask(fake: Telegram, people: Iterable[int]) -> None:
    """One message after the other, each when the one before is answered."""
    for user in people:
        count = fake.sent
        await fake.say(user)
        await fake.until_sent(count + 1)


@asynccontextmanager
async def telegram() -> AsyncIterator[Telegram]:
    fake = Telegram()
    app = web.Application()
    app.router.add_post("/bot{token}/{method}", fake.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()


async def _measure_peer(peer: str, url: str, add: Add) -> None:
    home = peers.original_home(url) if peer == "original" else peers.our_home(url)
    size = SIZES[peer]
    try:
        async with telegram() as fake:
            env = {"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_ALLOW_ALL_USERS": "true"}
            usual = env = env | {"TELEGRAM_BASE_URL": fake.url}
            if peer == "original":
                with (home.path / ".hermes" / "config.yaml").open("a") as config:
                    config.write(ORIGINAL_CONFIG.format(url=fake.url))
                env = env | ORIGINAL_ENV
                usual = env | WITHOUT_SEARCH
            await measure_starts(fake, home, usual, size.starts, add)
            await measure_messages(fake, home, usual, size, add)
            if os.environ.get(peers.ISOLATED) == "1":
                await measure_offline_starts(fake, home, env, size.offline_starts, add)
    finally:
        home.remove()


def measure(
    names: Iterable[str],
    url: str,
    add: Add,
    attempt: Callable[[str, Callable[[], None]], None],
) -> None:
    """Measure one after the other; `url` is the provider's."""
    for name in names:
        if name in SIZES:
            work = partial(_measure_peer, name, url, partial(add, name))
            attempt(f"{name} gateway", lambda work=work: asyncio.run(work()))  # type: ignore[misc]

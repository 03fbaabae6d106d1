"""The gateway with a Telegram on loopback: python -m bench.messenger URL GROUP..."""

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from bench.measure import emit

TOKEN = "123456789:AAbench-telegram-token-0123456789abcd"
TICK = os.sysconf("SC_CLK_TCK")
STARTS = 5
MESSAGES = 300
CONVERSATIONS = 200
CROWD = 1000
EVICTION_SECONDS = 35
"""Conversations beyond the hundred that are kept go within half a minute."""


class Telegram:
    """Answers polls at once when somebody has written, and counts what the bot sends."""

    def __init__(self) -> None:
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
            return _answer({"id": 1, "is_bot": True, "first_name": "B", "username": "bench_bot"})
        if method == "sendMessage":
            chat = int((await read_fields(request))["chat_id"])
            async with self._news:
                self.sent += 1
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


class Running:
    """A gateway as a process."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    @classmethod
    async def start(cls, base_url: str) -> "Running":
        env = os.environ | {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "TELEGRAM_BASE_URL": base_url,
            "TELEGRAM_ALLOW_ALL_USERS": "true",
        }
        program = str(Path(sys.executable).parent / "hermes")
        quiet = asyncio.subprocess.DEVNULL
        return cls(
            await asyncio.create_subprocess_exec(
                program, "gateway", "run", env=env, stdin=quiet, stdout=quiet, stderr=quiet
            )
        )

    def cpu_ms(self) -> float:
        stat = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, stat[11:15])) * 1e3 / TICK

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self._child.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    async def stop(self) -> None:
        if self._child.returncode is None:
            self._child.terminate()
            await self._child.wait()


async def measure_starts(fake: Telegram, base_url: str) -> None:
    for number in range(-1, STARTS):
        fake.polled.clear()
        begin = time.perf_counter()
        gateway = await Running.start(base_url)
        async with asyncio.timeout(60):
            await fake.polled.wait()
        took = (time.perf_counter() - begin) * 1e3
        if number >= 0:  # the first one writes byte code
            emit("gateway_start", took)
            begin, count = time.perf_counter(), fake.sent
            await fake.say(1)
            await fake.until_sent(count + 1)
            emit("gateway_first", (time.perf_counter() - begin) * 1e3)
        await gateway.stop()


async def measure_messages(fake: Telegram, base_url: str) -> None:
    fake.polled.clear()
    gateway = await Running.start(base_url)
    await fake.polled.wait()
    await asyncio.sleep(2)
    idle = gateway.rss_mb()
    emit("gateway_memory", idle)
    known = list(range(2, 22))
    await ask(fake, known)
    before = gateway.cpu_ms()
    await ask(fake, known * (MESSAGES // len(known)))
    emit("gateway_cpu", (gateway.cpu_ms() - before) / MESSAGES)
    before, memory = gateway.cpu_ms(), gateway.rss_mb()
    people = range(1000, 1000 + CONVERSATIONS)
    await ask(fake, list(people))
    emit("gateway_new", (gateway.cpu_ms() - before) / CONVERSATIONS)
    emit("gateway_growth", (gateway.rss_mb() - memory) * 40 / CONVERSATIONS)
    await ask(fake, list(range(10_000, 10_000 + CROWD)))
    await asyncio.sleep(EVICTION_SECONDS)
    emit("gateway_evicted", gateway.rss_mb() - idle)
    await gateway.stop()


async def ask(fake: Telegram, people: list[int]) -> None:
    """One message after the other, each when the one before is answered."""
    for user in people:
        count = fake.sent
        await fake.say(user)
        await fake.until_sent(count + 1)


async def main() -> None:
    fake = Telegram()
    app = web.Application()
    app.router.add_post("/bot{token}/{method}", fake.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        await measure_starts(fake, base_url)
        await measure_messages(fake, base_url)
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())

"""What fakes of messengers share: what the bot has sent, and waiting for it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from aiohttp import web


@dataclass
class Sent:
    """A message of the bot as clients show it now, and all it has shown."""

    id: str
    chat: str
    text: str
    params: dict[str, Any]
    thread: str = ""
    versions: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    buttons: list[dict[str, str]] = field(default_factory=list)
    deleted: bool = False
    file: bytes = b""


@dataclass
class Fault:
    """What happens instead of an answer. `after`: the call takes effect first."""

    status: int = 500
    body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    hang_up: bool = False
    after: bool = False
    raw: bytes | None = None


FaultRule = Callable[[str, dict[str, Any]], Fault | None]


def once(method: str, fault: Fault, when: Callable[[dict[str, Any]], bool] = bool) -> FaultRule:
    """The first such call fails."""
    left = [fault]

    def rule(name: str, params: dict[str, Any]) -> Fault | None:
        return left.pop() if left and name == method and when(params) else None

    return rule


class FakeMessenger:
    """`sent` is what the bot wrote, in order; `calls` is every call of its interface."""

    name: str
    owner: str
    variables: ClassVar[dict[str, str]]

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.fault: FaultRule = lambda method, params: None
        self.files: dict[str, bytes] = {}
        self.url = ""
        self.changed = asyncio.Condition()

    def texts(self, chat: str = "") -> list[str]:
        return [s.text for s in self.sent if not s.deleted and not s.file and chat in ("", s.chat)]

    def count_calls(self, method: str) -> int:
        return sum(name == method for name, _ in self.calls)

    async def until(self, test: Callable[[], Any], timeout: float = 90) -> None:
        try:
            async with asyncio.timeout(timeout), self.changed:
                await self.changed.wait_for(test)
        except TimeoutError:
            shown = [(s.chat, s.text) for s in self.sent]
            raise AssertionError(f"it did not happen; shown: {shown}") from None

    async def until_shown(self, text: str, *, count: int = 1, timeout: float = 90) -> Sent:
        """The message that shows exactly this."""

        def find() -> list[Sent]:
            return [s for s in self.sent if s.text == text and not s.deleted]

        await self.until(lambda: len(find()) >= count, timeout)
        return find()[-1]

    async def note(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def add_sent(self, sent: Sent) -> None:
        sent.versions.append(sent.text)
        sent.times.append(time.monotonic())
        self.sent.append(sent)
        await self.note()

    async def change_sent(self, sent: Sent, text: str, params: dict[str, Any]) -> None:
        sent.text, sent.params = text, params
        sent.versions.append(text)
        sent.times.append(time.monotonic())
        await self.note()

    async def answer_call(
        self,
        request: web.Request,
        method: str,
        params: dict[str, Any],
        answer: Callable[[], Any],
    ) -> web.StreamResponse:
        """The answer to a call, unless `fault` says otherwise."""
        self.calls.append((method, params))
        await self.note()
        fault = self.fault(method, params)
        if fault is None:
            response: web.StreamResponse = await answer()
            return response
        if fault.after:
            await answer()
        if fault.hang_up:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if fault.raw is not None:
            return web.Response(body=fault.raw, status=fault.status, headers=fault.headers)
        return answer_json(fault.body, status=fault.status, headers=fault.headers)


def answer_json(
    value: Any, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """JSON without a charset, as the vendors send it."""
    kind = {"Content-Type": "application/json"}
    body = json.dumps(value).encode()
    return web.Response(body=body, status=status, headers={**kind, **(headers or {})})


@asynccontextmanager
async def serve_app(app: web.Application) -> AsyncIterator[str]:
    """The address of an application on loopback."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()

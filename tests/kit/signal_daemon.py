"""A signal-cli daemon on loopback: it streams events, repeats kept ones, and takes calls."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

ACCOUNT = "+4915112345678"
OWN = "11111111-1111-4111-8111-111111111111"
OWNER = "22222222-2222-4222-8222-222222222222"
NUMBER = "+4915199999999"
STRANGER = "33333333-3333-4333-8333-333333333333"
GROUP = "Pmpi+EfPWmsxiomLe9Nx2XF9HOE483p6iKiFj65iMwI="


@dataclass
class SignalSent:
    chat: str
    text: str
    params: dict[str, Any]
    file: bytes = b""


@dataclass
class Answer:
    """What a call gets instead: an error, a body, or a hang-up (`after`: it took effect)."""

    error: dict[str, Any] | None = None
    result: Any = None
    status: int = 200
    body: bytes | None = None
    hang_up: bool = False
    after: bool = False


@dataclass
class SignalFake:
    sent: list[SignalSent] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    keeps: bool = True
    """Whether it repeats events, as newer versions do."""
    beats: bool = True
    fault: Callable[[str, dict[str, Any]], Answer | None] = lambda method, params: None
    url: str = ""
    streams: int = 0

    def __post_init__(self) -> None:
        self._changed = asyncio.Condition()
        self._times = itertools.count(int(time.time() * 1000))

    # -- people ------------------------------------------------------------------------------

    async def say(self, text: str, *, user: str = OWNER, group: str = "", **more: Any) -> int:
        sent = next(self._times)
        message: dict[str, Any] = {"timestamp": sent, "message": text, **more}
        if group:
            message["groupInfo"] = {"groupId": group, "type": "DELIVER"}
        await self.push({"dataMessage": message}, user=user)
        return sent

    async def push(self, content: dict[str, Any], *, user: str = OWNER) -> None:
        envelope = {
            "source": user,
            "sourceNumber": NUMBER if user == OWNER else None,
            "sourceUuid": user,
            "sourceName": "Olga" if user == OWNER else "Some One",
            "timestamp": next(self._times),
            **content,
        }
        async with self._changed:
            self.events.append({"envelope": envelope, "account": ACCOUNT})
            self._changed.notify_all()

    def mention(self, start: int, uuid: str = OWN) -> dict[str, Any]:
        return {"name": "x", "number": None, "uuid": uuid, "start": start, "length": 1}

    # -- looking -----------------------------------------------------------------------------

    def texts(self, chat: str = "") -> list[str]:
        return [s.text for s in self.sent if not chat or s.chat == chat]

    async def until(self, test: Callable[[], Any], timeout: float = 90) -> None:
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(test)
        except TimeoutError:
            raise AssertionError(f"it did not happen; sent: {self.texts()}") from None

    async def until_sent(self, text: str, *, count: int = 1) -> SignalSent:
        await self.until(lambda: self.texts().count(text) >= count)
        return next(s for s in reversed(self.sent) if s.text == text)

    # -- the daemon --------------------------------------------------------------------------

    async def check(self, request: web.Request) -> web.Response:
        return web.Response()

    async def stream(self, request: web.Request) -> web.StreamResponse:
        assert request.query["account"] == ACCOUNT
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        at = 0 if self.keeps and "Last-Event-ID" in request.headers else len(self.events)
        async with self._changed:
            self.streams += 1
            number = self.streams
            self._changed.notify_all()
        while self.beats:
            async with self._changed:
                while len(self.events) <= at:
                    await self._changed.wait()
                new, at = self.events[at:], len(self.events)
            for event in new:
                if event.get("hang_up") == number:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                if "envelope" in event:
                    data = json.dumps(event).encode()
                    await response.write(b"event:receive\nid:7\ndata:" + data + b"\n\n:\n\n")
        await asyncio.Event().wait()
        return response

    async def hang_up(self) -> None:
        """End the stream that is open."""
        async with self._changed:
            self.events.append({"hang_up": self.streams})
            self._changed.notify_all()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        method, params = body["method"], dict(body["params"])
        async with self._changed:
            self.calls.append((method, params))
            self._changed.notify_all()
        if params.pop("account") != ACCOUNT:
            error = {"code": -32602, "message": "Specified account does not exist"}
            return web.json_response({"jsonrpc": "2.0", "error": error, "id": body["id"]})
        fault = self.fault(method, params)
        result = await self._answer(method, params) if fault is None or fault.after else None
        if fault is not None:
            if fault.hang_up:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            if fault.body is not None:
                return web.Response(body=fault.body, status=fault.status)
            if fault.error is not None:
                return web.json_response({"jsonrpc": "2.0", "error": fault.error, "id": "1"})
            result = fault.result
        return web.json_response({"jsonrpc": "2.0", "result": result, "id": body["id"]})

    async def _answer(self, method: str, params: dict[str, Any]) -> Any:
        match method:
            case "getUserStatus":
                (number,) = params["recipient"]
                return [{"recipient": number, "number": number, "uuid": OWN, "isRegistered": True}]
            case "send":
                return await self._take_message(params)
            case "getAttachment":
                return {"data": base64.b64encode(self.files[params["id"]]).decode()}
            case _:
                return {}

    async def _take_message(self, params: dict[str, Any]) -> Any:
        (chat,) = params.get("recipient") or [params["groupId"]]
        text = params.get("message", "")
        units = len(text.encode("utf-16-le")) // 2
        for style in params.get("textStyle", []):
            start, size, _ = style.split(":")
            assert int(size) > 0 and int(start) + int(size) <= units, style
        content = b""
        for file in params.get("attachments", []):
            head, _, data = file.partition(";base64,")
            assert head.startswith("data:") and ";filename=" in head
            content = base64.b64decode(data)
        async with self._changed:
            self.sent.append(SignalSent(chat, text, params, content))
            self._changed.notify_all()
        return {"timestamp": next(self._times), "results": [{"type": "SUCCESS"}]}


@asynccontextmanager
async def signal_daemon(**options: Any) -> AsyncIterator[SignalFake]:
    fake = SignalFake(**options)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_get("/api/v1/check", fake.check)
    app.router.add_get("/api/v1/events", fake.stream)
    app.router.add_post("/api/v1/rpc", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()

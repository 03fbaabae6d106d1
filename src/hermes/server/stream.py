"""Server-sent events to one client: kept alive while silent, given up when it does not read."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from aiohttp import web

from hermes.server.guard import dress
from hermes.server.route import Call

KEEPALIVE_SECONDS = 30.0
STALLED_SECONDS = 30.0
_FULL = 1024 * 1024
"""Bytes the client has not taken yet; below that nobody waits for it."""
DONE = b"data: [DONE]\n\n"


class ClientGone(Exception):
    """It hung up, or stopped reading (`slow`)."""

    def __init__(self, *, slow: bool = False) -> None:
        super().__init__()
        self.slow = slow


class Stream:
    def __init__(self, response: web.StreamResponse, request: web.BaseRequest) -> None:
        self._response = response
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._sent = self._loop.time()
        self._beat: asyncio.TimerHandle | None = None
        self._beats: set[asyncio.Task[Any]] = set()
        self._schedule(KEEPALIVE_SECONDS)

    @classmethod
    async def open(cls, call: Call, headers: dict[str, str] | None = None) -> Stream:
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",
                **(headers or {}),
            }
        )
        dress(call.server, call.request, response)
        await response.prepare(call.request)
        return cls(response, call.request)

    async def send(self, data: bytes) -> None:
        """Raises ClientGone."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ClientGone
        self._sent = self._loop.time()
        try:
            if transport.get_write_buffer_size() < _FULL:
                await self._response.write(data)
                return
            async with asyncio.timeout(STALLED_SECONDS):
                await self._response.write(data)
        except TimeoutError:
            transport.abort()
            raise ClientGone(slow=True) from None
        except ConnectionError:
            raise ClientGone from None

    async def close(self) -> web.StreamResponse:
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        with suppress(ConnectionError):
            await self._response.write_eof()
        return self._response

    def _schedule(self, seconds: float) -> None:
        self._beat = self._loop.call_later(seconds, self._keep_alive)

    def _keep_alive(self) -> None:
        idle = self._loop.time() - self._sent
        if idle < KEEPALIVE_SECONDS:
            self._schedule(KEEPALIVE_SECONDS - idle)
            return
        task = self._loop.create_task(self._ping())
        self._beats.add(task)
        task.add_done_callback(self._beats.discard)
        self._schedule(KEEPALIVE_SECONDS)

    async def _ping(self) -> None:
        try:
            await self.send(b": keepalive\n\n")
        except ClientGone:
            return


def event(name: str, data: bytes, identity: str = "") -> bytes:
    head = f"id: {identity}\n" if identity else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"

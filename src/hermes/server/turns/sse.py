"""Server-sent events to one client: kept alive while silent, given up when it does not read."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hermes.server.http import web
from hermes.server.http.middleware import STARTED, dress
from hermes.server.http.route import Call

KEEPALIVE_SECONDS = 30.0
STALLED_SECONDS = 30.0
FULL = 1024 * 1024
"""Bytes the client has not taken yet; below that nobody waits for it."""
DONE = b"data: [DONE]\n\n"
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class ClientGone(Exception):
    """It hung up, or stopped reading (`slow`)."""

    def __init__(self, *, slow: bool = False) -> None:
        super().__init__()
        self.slow = slow


class Stream:
    def __init__(self, call: Call, headers: dict[str, str] | None = None) -> None:
        self._response = web.StreamResponse(headers={**_HEADERS, **(headers or {})})
        dress(call.server, call.request, self._response)
        self._request = call.request
        self._loop = asyncio.get_running_loop()
        self._sent = self._loop.time()
        self._beat = self._loop.call_later(KEEPALIVE_SECONDS, self._keep_alive)
        self._ping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        transport = self._request.transport
        if transport is not None:  # else whoever writes waits from 64 KB on, without a limit
            transport.set_write_buffer_limits(high=FULL)
        self._request[STARTED] = True
        await self._response.prepare(self._request)

    async def send(self, data: bytes) -> None:
        """Raises ClientGone."""
        if not data:
            return
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ClientGone
        self._sent = self._loop.time()
        try:
            if transport.get_write_buffer_size() + len(data) < FULL:
                await self._response.write(data)
                return
            async with asyncio.timeout(STALLED_SECONDS):
                await self._response.write(data)
                await self._request.writer.drain()  # the response itself looks now and then
        except TimeoutError:
            raise self._dropped(transport) from None
        except ConnectionError:
            raise ClientGone from None

    def quiet(self) -> None:
        """It says nothing by itself any more."""
        self._beat.cancel()

    async def close(self) -> web.StreamResponse:
        """The end of the answer, for as long as the client takes it."""
        self.quiet()
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return self._response
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                await self._response.write_eof()
        except TimeoutError:
            self._dropped(transport)
        except ConnectionError:
            pass
        return self._response

    def _dropped(self, transport: asyncio.WriteTransport) -> ClientGone:
        self._beat.cancel()
        transport.abort()
        return ClientGone(slow=True)

    def _keep_alive(self) -> None:
        idle = self._loop.time() - self._sent
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return
        if idle < KEEPALIVE_SECONDS:
            self._beat = self._loop.call_later(KEEPALIVE_SECONDS - idle, self._keep_alive)
            return
        self._beat = self._loop.call_later(KEEPALIVE_SECONDS, self._keep_alive)
        if not transport.get_write_buffer_size():  # else it has things to read
            self._ping = self._loop.create_task(self._say_so())

    async def _say_so(self) -> None:
        with suppress(ClientGone):
            await self.send(b": keepalive\n\n")


def event(name: str, data: bytes, identity: str = "") -> bytes:
    head = f"id: {identity}\n" if identity else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"

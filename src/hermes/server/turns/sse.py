"""Server-sent events to one client, with keep-alives, and a limit for clients that do not read."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from typing import Any

from hermes.server.http import web
from hermes.server.http.call import RESPONSE_STARTED
from hermes.server.http.headers import add_common_headers
from hermes.server.http.json_body import encode_json

KEEPALIVE_SECONDS = 15.0
STALLED_SECONDS = 30.0
MAX_UNREAD_BYTES = 1024 * 1024
"""Sending waits for the client only above this."""
KEEPALIVE_COMMENT = b": keepalive\n\n"
DONE_FRAME = b"data: [DONE]\n\n"
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class ClientGone(Exception):
    """The client disconnected, or stopped reading (`is_slow`)."""

    def __init__(self, *, is_slow: bool = False) -> None:
        super().__init__()
        self.is_slow = is_slow


class EventStream:
    """A response of server-sent events; silence is filled with what `keepalive` gives."""

    def __init__(
        self,
        request: web.BaseRequest,
        allowed_origins: Collection[str],
        headers: dict[str, str] | None = None,
        keepalive: Callable[[], bytes] = lambda: KEEPALIVE_COMMENT,
    ) -> None:
        self._response = web.StreamResponse(headers={**_HEADERS, **(headers or {})})
        add_common_headers(request, self._response, allowed_origins)
        self._request = request
        self._encode_keepalive = keepalive
        self._loop = asyncio.get_running_loop()
        self._sent = self._loop.time()
        self._timer = self._loop.call_later(KEEPALIVE_SECONDS, self._keep_alive)
        self._ping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        transport = self._request.transport
        if transport is not None:  # by default, writing waits above 64 KB without a time limit
            transport.set_write_buffer_limits(high=MAX_UNREAD_BYTES)
        self._request[RESPONSE_STARTED] = True
        await self._response.prepare(self._request)

    async def send(self, data: bytes) -> None:
        """Send data; raises ClientGone when the client has disconnected or does not read."""
        if not data:
            return
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ClientGone
        self._sent = self._loop.time()
        try:
            if transport.get_write_buffer_size() + len(data) < MAX_UNREAD_BYTES:
                await self._response.write(data)
                return
            async with asyncio.timeout(STALLED_SECONDS):
                await self._response.write(data)
                await self._request.writer.drain()  # write() drains only now and then
        except TimeoutError:
            raise self._drop_client(transport) from None
        except ConnectionError:
            raise ClientGone from None

    def stop_keepalive(self) -> None:
        self._timer.cancel()

    async def close(self) -> web.StreamResponse:
        """End the response; a client that does not read in time is disconnected."""
        self.stop_keepalive()
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return self._response
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                await self._response.write_eof()
        except TimeoutError:
            self._drop_client(transport)
        except ConnectionError:
            pass
        return self._response

    def _drop_client(self, transport: asyncio.WriteTransport) -> ClientGone:
        self.stop_keepalive()
        transport.abort()
        return ClientGone(is_slow=True)

    def _keep_alive(self) -> None:
        silent = self._loop.time() - self._sent
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return
        if silent < KEEPALIVE_SECONDS:
            self._timer = self._loop.call_later(KEEPALIVE_SECONDS - silent, self._keep_alive)
            return
        self._timer = self._loop.call_later(KEEPALIVE_SECONDS, self._keep_alive)
        if not transport.get_write_buffer_size():  # otherwise the client still has data to read
            self._ping = self._loop.create_task(self._send_ping())

    async def _send_ping(self) -> None:
        with suppress(ClientGone):
            await self.send(self._encode_keepalive())


async def send_frames(
    request: web.BaseRequest,
    allowed_origins: Collection[str],
    frames: AsyncIterator[bytes],
    headers: dict[str, str] | None = None,
    keepalive: Callable[[], bytes] = lambda: KEEPALIVE_COMMENT,
) -> web.StreamResponse:
    """Send frames until there are no more or the client disconnects."""
    stream = EventStream(request, allowed_origins, headers, keepalive)
    await stream.open()
    try:
        async for data in frames:
            await stream.send(data)
    except ClientGone:
        pass
    finally:
        stream.stop_keepalive()
    return await stream.close()


def encode_frame(name: str, data: Any, event_id: str = "") -> bytes:
    """One event; `data` is encoded unless it is bytes."""
    head = f"id: {event_id}\n" if event_id else ""
    body = data if isinstance(data, bytes) else encode_json(data)
    return f"{head}event: {name}\ndata: ".encode() + body + b"\n\n"

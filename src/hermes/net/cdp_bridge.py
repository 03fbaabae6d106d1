"""Offers a browser's pipe as a WebSocket on loopback, to the one client that knows its path."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web


@asynccontextmanager
async def open_bridge(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[str]:
    """Yields the WebSocket's URL. Messages on the pipe end in NUL. Other users of this machine can
    reach the port, so the path is a password, works once, and is refused to web pages."""
    from aiohttp import web

    server = _BridgeServer(reader, writer)
    runner = web.ServerRunner(
        web.Server(server.handle_request, access_log=None), shutdown_timeout=0.1
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"ws://{host}:{port}{server.path}"
    finally:
        await runner.cleanup()


class _BridgeServer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.path = "/" + secrets.token_urlsafe(32)
        self._reader = reader
        self._writer = writer
        self._in_use = False

    async def handle_request(self, request: web.BaseRequest) -> web.StreamResponse:
        from aiohttp import web

        is_known = secrets.compare_digest(request.path.encode(), self.path.encode())
        if not is_known or self._in_use or "Origin" in request.headers:
            return web.Response(status=404)
        self._in_use = True
        socket = web.WebSocketResponse(max_msg_size=0, compress=False, autoping=True)
        await socket.prepare(request)
        forwarding = asyncio.ensure_future(self._forward_from_browser(socket))
        try:
            async for message in socket:
                if isinstance(message.data, str):
                    self._writer.write(message.data.encode() + b"\0")
                    await self._writer.drain()
        except ConnectionError:
            pass  # the browser has ended
        finally:
            forwarding.cancel()
            await asyncio.wait([forwarding])
        return socket

    async def _forward_from_browser(self, socket: web.WebSocketResponse) -> None:
        with suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            while True:
                data = await self._reader.readuntil(b"\0")
                await socket.send_str(data[:-1].decode("utf-8", "replace"))
        await socket.close()

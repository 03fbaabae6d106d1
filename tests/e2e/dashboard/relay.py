"""A TCP relay between browser and server, which breaks connections in several ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

_SENT = b"/turns HTTP/1.1"


class Relay:
    """`cut` breaks all connections, `freeze` makes those that are open silent, and as long as
    `lost_answers` is not 0, a message reaches the server and its answer does not reach the page."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._writers: set[asyncio.StreamWriter] = set()
        self._frozen: set[asyncio.StreamWriter] = set()
        self.lost_answers = 0
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._target.hostname, self._target.port
        there, back = await asyncio.open_connection(host, port)
        self._writers |= {writer, back}
        doomed = asyncio.Event()
        await asyncio.gather(
            self._copy(reader, back, doomed, sees_requests=True), self._copy(there, writer, doomed)
        )
        self._writers -= {writer, back}

    async def _copy(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        doomed: asyncio.Event,
        *,
        sees_requests: bool = False,
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(4096):
                if sees_requests and self.lost_answers and _SENT in data:
                    self.lost_answers -= 1
                    doomed.set()
                elif doomed.is_set() and not sees_requests:
                    target.transport.abort()
                    return
                if target in self._frozen:
                    continue
                target.write(data)
                await target.drain()
        target.close()

    def cut(self) -> int:
        """How many connections were cut, both sides counted."""
        found = {writer for writer in self._writers if not writer.transport.is_closing()}
        for writer in found:
            writer.transport.abort()
        return len(found)

    def freeze(self) -> None:
        self._frozen |= self._writers


@asynccontextmanager
async def open_relay(target: str) -> AsyncIterator[Relay]:
    relay = Relay(target)
    server = await asyncio.start_server(relay.handle, "127.0.0.1", 0)
    relay.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        server.close()
        relay.cut()

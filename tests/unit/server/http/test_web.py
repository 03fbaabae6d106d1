"""The private attributes of aiohttp that the server reads still mean what it takes them for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hermes.server.http import web

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Acceptor(web.ConnectionFactory):
    """Answers every request once `answer` is set, and keeps its connections for the test."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.answer = asyncio.Event()
        self.made: list[web.HttpConnection] = []
        super().__init__(self.respond, access_log=None, keepalive_timeout=123.0)

    def __call__(self) -> web.HttpConnection:
        self.made.append(self.make_connection(web.HttpConnection))
        return self.made[-1]

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self.called.set()
        await self.answer.wait()
        return web.Response(text="done")


@asynccontextmanager
async def connect(
    acceptor: Acceptor,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(acceptor, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()
        await acceptor.shutdown(1.0)


async def test_a_connection_knows_whether_a_request_is_being_answered() -> None:
    acceptor = Acceptor()
    async with asyncio.timeout(90), connect(acceptor) as (reader, writer):
        writer.write(REQUEST)
        await acceptor.called.wait()
        (connection,) = acceptor.made
        assert connection.has_request and not connection.is_closing
        acceptor.answer.set()
        assert b"done" in await reader.readuntil(b"done")
        while connection.has_request:
            await asyncio.sleep(0)
        assert not connection.is_closing
        connection.force_close()
        assert connection.is_closing and await reader.read() == b""


async def test_a_request_counts_from_its_last_header_line_on() -> None:
    acceptor = Acceptor()
    async with asyncio.timeout(90), connect(acceptor):
        while not acceptor.made:
            await asyncio.sleep(0)
        (connection,) = acceptor.made
        connection.data_received(REQUEST[:-2])
        assert not connection.has_request
        connection.data_received(REQUEST[-2:])
        assert connection.has_request and not acceptor.called.is_set()
        acceptor.answer.set()


async def test_connections_get_the_options_of_the_factory() -> None:
    connection = Acceptor().make_connection(web.HttpConnection)
    assert connection.keepalive_timeout == 123.0 and connection.access_log is None

"""The port is open before the server is there: nobody can tell from what is answered."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import structs

from hermes.server.app import Server
from hermes.server.http.listener import open_listener
from tests.kit import say
from tests.kit.api import API_KEY, Api, api

HOST = "Host: localhost"
KEY = f"Authorization: Bearer {API_KEY}"
BODY = '{"messages": [{"role": "user", "content": "hi"}]}'


def request(line: str, *fields: str, body: str = "") -> bytes:
    return "\r\n".join((line, *fields, "", body)).encode()


HEALTH = "GET /health HTTP/1.1"
AT_ONCE = {
    "health": request(HEALTH, HOST),
    "under v1": request("GET /v1/health HTTP/1.1", "host:127.0.0.1:8642"),
    "as curl asks": request(HEALTH, "Host: [::1]:1", "User-Agent: curl/8.5.0", "Accept: */*"),
    "with a key": request(HEALTH, HOST, KEY),
}
LATER = {
    "another name": request(HEALTH, "Host: evil.example"),
    "no name": request(HEALTH),
    "two names": request(HEALTH, HOST, HOST),
    "a name that ends early": request(HEALTH, "Host : localhost"),
    "a name of no port": request(HEALTH, "Host: localhost:x"),
    "an old protocol": request("GET /health HTTP/1.0", HOST),
    "the last request": request(HEALTH, HOST, "Connection: close"),
    "a strange origin": request(HEALTH, HOST, "Origin: https://evil.example"),
    "a good origin": request(HEALTH, HOST, "Origin: https://ui.example"),
    "a query": request("GET /health?x=1 HTTP/1.1", HOST),
    "its head alone": request("HEAD /health HTTP/1.1", HOST),
    "a wrong method": request("POST /health HTTP/1.1", HOST, "Content-Length: 0"),
    "a folded line": request(HEALTH, HOST, "Accept: a", " b"),
    "a control character": request(HEALTH, HOST, "User-Agent: a\x00b"),
    "a bare line feed": request(HEALTH, HOST, "User-Agent: a\nX: b"),
    "more than ASCII": request(HEALTH, HOST, "User-Agent: é"),
    "no field": request(HEALTH, HOST, "Accept"),
    "a length": request(HEALTH, HOST, "Content-Length: 0"),
    "in pieces": request(HEALTH, HOST, "Transfer-Encoding: chunked", body="0\r\n\r\n"),
    "too much": request(HEALTH, HOST, "User-Agent: " + "x" * 20_000),
    "details": request("GET /health/detailed HTTP/1.1", "Host: evil.example"),
    "models": request("GET /v1/models HTTP/1.1", HOST, KEY),
    "no key": request("GET /v1/models HTTP/1.1", HOST),
    "nothing there": request("GET / HTTP/1.1", HOST),
    "no HTTP": request("\x16\x03\x01", "x"),
}
CHAT = request(
    "POST /v1/chat/completions HTTP/1.1",
    HOST,
    KEY,
    "Content-Type: application/json",
    f"Content-Length: {len(BODY)}",
    body=BODY,
)


class Guest:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def told(self, *, bodiless: bool = False) -> bytes:
        """One answer, but for its date."""
        async with asyncio.timeout(30):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            assert length, head
            body = b"" if bodiless else await self.reader.readexactly(int(length[1]))
        return re.sub(rb"Date: [^\r]+ GMT\r\n", b"Date\r\n", head) + body


@pytest.fixture
async def a(tmp_path: Path) -> AsyncIterator[Api]:
    settings = {"cors_origins": ["https://ui.example"]}
    async with api(tmp_path, then=say("Yes."), settings=settings) as a:
        yield a


Come = Callable[..., Awaitable[Guest]]


@pytest.fixture
async def come() -> AsyncIterator[Come]:
    """A connection to that address, and the first that is said there."""
    writers = []

    async def come(url: str, said: bytes = b"") -> Guest:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writers.append(writer)
        writer.write(said)
        return Guest(reader, writer)

    yield come
    for writer in writers:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_nobody_can_tell(a: Api, come: Come) -> None:
    async def direct(said: bytes) -> bytes:
        guest = await come(a.url, LATER["nothing there"])  # from then on all goes the usual way
        await guest.told()
        guest.writer.write(said)
        return await guest.told(bodiless=said[:4] == b"HEAD")

    wanted = {name: await direct(said) for name, said in (AT_ONCE | LATER).items()}
    async with open_listener(a.server.settings) as lobby:
        waiting = {name: await come(lobby.address, said) for name, said in LATER.items()}
        for name, said in AT_ONCE.items():
            waiting[name] = await come(lobby.address, said)
            assert (name, await waiting[name].told()) == (name, wanted[name])
        server = Server(a.server.runtime, a.server.settings)
        async with server.listen(lobby):
            for name in LATER:
                got = await waiting[name].told(bodiless=name == "its head alone")
                assert (name, got) == (name, wanted[name])
            for name, said in AT_ONCE.items():  # the connection is kept, as it would be
                waiting[name].writer.write(said)
                assert await waiting[name].told() == wanted[name]
            assert [one.path for one in lobby.health_checks] == [
                "/health",
                "/v1/health",
                *["/health"] * 2,
            ]
            counted = 'hermes_requests_total{route="health_v1",status="200"} 2'
            assert counted in server.metrics.render()


async def test_a_connection_that_asks_nothing_else_is_answered_at_once(a: Api, come: Come) -> None:
    """As by the route, to the byte, and counted; also while the loop has no round to spare."""
    wanted = {}
    for name, said in AT_ONCE.items():
        guest = await come(a.url, said[:9])
        await asyncio.sleep(0)
        guest.writer.write(said[9:])
        wanted[name] = await guest.told()
    for name, said in AT_ONCE.items():
        guest = await come(a.url, said)
        for _ in range(3):
            assert await guest.told() == wanted[name]
            guest.writer.write(said)
    assert 'hermes_requests_total{route="health_v1",status="200"}' in a.server.metrics.render()


async def test_a_body_that_looks_like_a_request_is_none(a: Api, come: Come) -> None:
    inner = AT_ONCE["health"]
    head = request("POST /v1/chat/completions HTTP/1.1", HOST, f"Content-Length: {len(inner)}")
    guest = await come(a.url, head)
    refused = guest.told()
    guest.writer.write(inner)
    assert b" 401 " in await refused
    guest.writer.write(AT_ONCE["health"])
    assert b" 200 " in await guest.told()
    guest.writer.write(LATER["nothing there"])
    assert b" 404 " in await guest.told()  # and not one answer more


async def test_what_was_begun_goes_on(a: Api, come: Come) -> None:
    """Bytes that came before, in whatever pieces, and those that come after are one request."""
    cuts = (1, 60, len(CHAT) - 5)
    async with open_listener(a.server.settings) as lobby:
        halves = [await come(lobby.address, CHAT[:cut]) for cut in cuts]
        whole = await come(lobby.address, CHAT + LATER["models"])
        gone = await come(lobby.address, CHAT)
        gone.writer.transport.abort()
        slow = await come(lobby.address, AT_ONCE["health"][:20])
        slow.writer.write(AT_ONCE["health"][20:])
        assert (await slow.told()).startswith(b"HTTP/1.1 200")
        assert not a.provider.requests
        async with Server(a.server.runtime, a.server.settings).listen(lobby):
            for guest, cut in zip(halves, cuts, strict=True):
                guest.writer.write(CHAT[cut:])
                assert b'"Yes."' in await guest.told()
            assert b'"Yes."' in await whole.told()
            assert b'"hermes-agent"' in await whole.told()


async def test_who_arrives_in_the_moment_of_the_handing_over(a: Api, come: Come) -> None:
    """Between the making of a protocol and its connection the loop does other things."""
    async with open_listener(a.server.settings) as lobby:
        early = lobby()
        async with Server(a.server.runtime, a.server.settings).listen(lobby):
            with socket.create_server(("127.0.0.1", 0)) as door:
                guest = await come(f"http://127.0.0.1:{door.getsockname()[1]}", LATER["models"])
                accepted, _ = door.accept()
            accepted.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: early, accepted)
            assert b'"hermes-agent"' in await guest.told()


async def test_no_more_than_the_server_would_take(a: Api, come: Come) -> None:
    settings = structs.replace(a.server.settings, max_connections=2)
    async with open_listener(settings) as lobby:
        there = [await come(lobby.address, AT_ONCE["health"]) for _ in range(2)]
        for guest in there:
            await guest.told()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await (await come(lobby.address, AT_ONCE["health"])).told()
        async with Server(a.server.runtime, settings).listen(lobby):
            for guest in there:
                guest.writer.write(AT_ONCE["health"])
                assert (await guest.told()).startswith(b"HTTP/1.1 200")


async def test_a_start_that_fails_leaves_nobody_waiting(a: Api, come: Come) -> None:
    async with open_listener(a.server.settings) as lobby:
        guest = await come(lobby.address, CHAT)
        await (await come(lobby.address, AT_ONCE["health"])).told()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await guest.told()
    with pytest.raises(OSError):
        await come(lobby.address)

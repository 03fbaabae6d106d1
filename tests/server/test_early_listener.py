"""The port that is open before the server is loaded: answers are the same as later."""

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


def build_request(line: str, *fields: str, body: str = "") -> bytes:
    return "\r\n".join((line, *fields, "", body)).encode()


HEALTH = "GET /health HTTP/1.1"
AT_ONCE = {
    "health": build_request(HEALTH, HOST),
    "under v1": build_request("GET /v1/health HTTP/1.1", "host:127.0.0.1:8642"),
    "as curl asks": build_request(HEALTH, "Host: [::1]:1", "User-Agent: curl/8.5.0", "Accept: */*"),
    "with a key": build_request(HEALTH, HOST, KEY),
}
LATER = {
    "another name": build_request(HEALTH, "Host: evil.example"),
    "no name": build_request(HEALTH),
    "two names": build_request(HEALTH, HOST, HOST),
    "a name that ends early": build_request(HEALTH, "Host : localhost"),
    "a name of no port": build_request(HEALTH, "Host: localhost:x"),
    "an old protocol": build_request("GET /health HTTP/1.0", HOST),
    "the last request": build_request(HEALTH, HOST, "Connection: close"),
    "a strange origin": build_request(HEALTH, HOST, "Origin: https://evil.example"),
    "a good origin": build_request(HEALTH, HOST, "Origin: https://ui.example"),
    "a query": build_request("GET /health?x=1 HTTP/1.1", HOST),
    "its head alone": build_request("HEAD /health HTTP/1.1", HOST),
    "a wrong method": build_request("POST /health HTTP/1.1", HOST, "Content-Length: 0"),
    "a folded line": build_request(HEALTH, HOST, "Accept: a", " b"),
    "a control character": build_request(HEALTH, HOST, "User-Agent: a\x00b"),
    "a bare line feed": build_request(HEALTH, HOST, "User-Agent: a\nX: b"),
    "more than ASCII": build_request(HEALTH, HOST, "User-Agent: é"),
    "no field": build_request(HEALTH, HOST, "Accept"),
    "a length": build_request(HEALTH, HOST, "Content-Length: 0"),
    "in pieces": build_request(HEALTH, HOST, "Transfer-Encoding: chunked", body="0\r\n\r\n"),
    "too much": build_request(HEALTH, HOST, "User-Agent: " + "x" * 20_000),
    "details": build_request("GET /health/detailed HTTP/1.1", "Host: evil.example"),
    "models": build_request("GET /v1/models HTTP/1.1", HOST, KEY),
    "no key": build_request("GET /v1/models HTTP/1.1", HOST),
    "nothing there": build_request("GET /nothing HTTP/1.1", HOST),
    "no HTTP": build_request("\x16\x03\x01", "x"),
}
CHAT = build_request(
    "POST /v1/chat/completions HTTP/1.1",
    HOST,
    KEY,
    "Content-Type: application/json",
    f"Content-Length: {len(BODY)}",
    body=BODY,
)


class EarlyClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read_response(self, *, bodiless: bool = False) -> bytes:
        """One response without its date and its id."""
        async with asyncio.timeout(90):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            assert length, head
            body = b"" if bodiless else await self.reader.readexactly(int(length[1]))
        head = re.sub(rb"X-Request-Id: req_[0-9a-f]{24}\r\n", b"X-Request-Id\r\n", head)
        return re.sub(rb"Date: [^\r]+ GMT\r\n", b"Date\r\n", head) + body


@pytest.fixture
async def a(tmp_path: Path) -> AsyncIterator[Api]:
    settings = {"cors_origins": ["https://ui.example"]}
    async with api(tmp_path, then=say("Yes."), settings=settings) as a:
        yield a


Connect = Callable[..., Awaitable[EarlyClient]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connects to an address and sends the first bytes."""
    writers = []

    async def connect(url: str, said: bytes = b"") -> EarlyClient:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writers.append(writer)
        writer.write(said)
        return EarlyClient(reader, writer)

    yield connect
    for writer in writers:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_early_requests_get_the_same_answers(a: Api, connect: Connect) -> None:
    async def direct(said: bytes) -> bytes:
        client = await connect(a.url, LATER["nothing there"])  # from then on all goes the usual way
        await client.read_response()
        client.writer.write(said)
        return await client.read_response(bodiless=said[:4] == b"HEAD")

    wanted = {name: await direct(said) for name, said in (AT_ONCE | LATER).items()}
    async with open_listener(a.server.settings) as listener:
        waiting = {name: await connect(listener.address, said) for name, said in LATER.items()}
        for name, said in AT_ONCE.items():
            waiting[name] = await connect(listener.address, said)
            assert (name, await waiting[name].read_response()) == (name, wanted[name])
        server = Server(a.server.runtime, a.server.settings)
        async with server.listen(listener):
            for name in LATER:
                got = await waiting[name].read_response(bodiless=name == "its head alone")
                assert (name, got) == (name, wanted[name])
            for name, said in AT_ONCE.items():  # the connection is kept, as it would be
                waiting[name].writer.write(said)
                assert await waiting[name].read_response() == wanted[name]
            assert [one.path for one in listener.health_checks] == [
                "/health",
                "/v1/health",
                *["/health"] * 2,
            ]
            counted = 'hermes_requests_total{route="health_v1",status="200"} 2'
            assert counted in server.metrics.render()


async def test_health_checks_are_answered_as_their_bytes_arrive(a: Api, connect: Connect) -> None:
    """The response equals that of the route and is counted; no round of the loop is needed."""
    wanted = {}
    for name, said in AT_ONCE.items():
        client = await connect(a.url, said[:9])
        await asyncio.sleep(0)
        client.writer.write(said[9:])
        wanted[name] = await client.read_response()
    for name, said in AT_ONCE.items():
        client = await connect(a.url, said)
        for _ in range(3):
            assert await client.read_response() == wanted[name]
            client.writer.write(said)
    assert 'hermes_requests_total{route="health_v1",status="200"}' in a.server.metrics.render()


async def test_a_body_that_looks_like_a_request_is_a_body(a: Api, connect: Connect) -> None:
    inner = AT_ONCE["health"]
    head = build_request(
        "POST /v1/chat/completions HTTP/1.1", HOST, f"Content-Length: {len(inner)}"
    )
    client = await connect(a.url, head)
    refused = client.read_response()
    client.writer.write(inner)
    assert b" 401 " in await refused
    client.writer.write(AT_ONCE["health"])
    assert b" 200 " in await client.read_response()
    client.writer.write(LATER["nothing there"])
    assert b" 404 " in await client.read_response()  # and not one answer more


async def test_a_request_may_arrive_before_and_after_the_handover(a: Api, connect: Connect) -> None:
    """Bytes from before and after the handover, in any pieces, are one request."""
    cuts = (1, 60, len(CHAT) - 5)
    async with open_listener(a.server.settings) as listener:
        halves = [await connect(listener.address, CHAT[:cut]) for cut in cuts]
        whole = await connect(listener.address, CHAT + LATER["models"])
        gone = await connect(listener.address, CHAT)
        gone.writer.transport.abort()
        slow = await connect(listener.address, AT_ONCE["health"][:20])
        slow.writer.write(AT_ONCE["health"][20:])
        assert (await slow.read_response()).startswith(b"HTTP/1.1 200")
        assert not a.provider.requests
        async with Server(a.server.runtime, a.server.settings).listen(listener):
            for client, cut in zip(halves, cuts, strict=True):
                client.writer.write(CHAT[cut:])
                assert b'"Yes."' in await client.read_response()
            assert b'"Yes."' in await whole.read_response()
            assert b'"hermes-agent"' in await whole.read_response()


async def test_a_connection_made_during_the_handover_is_served(a: Api, connect: Connect) -> None:
    """The loop does other things between creating a protocol and connecting it."""
    async with open_listener(a.server.settings) as listener:
        early = listener()
        async with Server(a.server.runtime, a.server.settings).listen(listener):
            with socket.create_server(("127.0.0.1", 0)) as door:
                client = await connect(f"http://127.0.0.1:{door.getsockname()[1]}", LATER["models"])
                accepted, _ = door.accept()
            accepted.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: early, accepted)
            assert b'"hermes-agent"' in await client.read_response()


async def test_early_connections_are_limited(a: Api, connect: Connect) -> None:
    settings = structs.replace(a.server.settings, max_connections=2)
    async with open_listener(settings) as listener:
        there = [await connect(listener.address, AT_ONCE["health"]) for _ in range(2)]
        for client in there:
            await client.read_response()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await (await connect(listener.address, AT_ONCE["health"])).read_response()
        async with Server(a.server.runtime, settings).listen(listener):
            for client in there:
                client.writer.write(AT_ONCE["health"])
                assert (await client.read_response()).startswith(b"HTTP/1.1 200")


async def test_a_failed_start_closes_early_connections(a: Api, connect: Connect) -> None:
    async with open_listener(a.server.settings) as listener:
        client = await connect(listener.address, CHAT)
        await (await connect(listener.address, AT_ONCE["health"])).read_response()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await client.read_response()
    with pytest.raises(OSError):
        await connect(listener.address)

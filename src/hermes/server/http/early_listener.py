"""Who comes before the server is all there: asked whether it lives it answers, others wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import orjson
from msgspec import Struct

from hermes.config.api_server import ApiServer
from hermes.server.http import listener as port

HEADERS = {
    "Server": "hermes",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-XSS-Protection": "0",
    "Referrer-Policy": "no-referrer",
}
"""Of every response."""
ALIVE = {"status": "ok", "platform": "hermes-agent"}
_PATHS = {b"GET /health HTTP/1.1": "/health", b"GET /v1/health HTTP/1.1": "/v1/health"}
_NO_MATTER = frozenset(
    {b"user-agent", b"accept", b"accept-encoding", b"accept-language", b"authorization"}
)
"""Headers that change nothing about the answer. A request with any other waits for the server."""
_LONGEST = 16 * 1024


class Answered(Struct, frozen=True):
    path: str
    seconds: float
    remote: str


class Lobby:
    """The open port. Until `hand_over` a connection is a guest; then all belong to the acceptor,
    the guests with every byte they have sent and not been answered."""

    def __init__(self, settings: ApiServer) -> None:
        self._sock = port.listen(settings.host, settings.port)
        self.names = port.names(settings)
        self.address = port.address(settings.host, self._sock.getsockname()[1])
        self.answered: list[Answered] = []
        """Before the server could count it."""
        self._most = settings.max_connections
        self._guests: dict[_Guest, asyncio.Transport] = {}
        self._acceptor: Callable[[], asyncio.Protocol] | None = None
        self._listener: asyncio.Server | None = None

    def __call__(self) -> asyncio.Protocol:
        return _Guest(self) if self._acceptor is None else self._acceptor()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self, sock=self._sock, backlog=port.BACKLOG)

    def close(self) -> None:
        """Nobody comes in any more; who is a guest still has to go."""
        if self._listener is not None:
            self._listener.close()
        self._sock.close()
        for transport in list(self._guests.values()):
            transport.abort()

    def enter(self, guest: _Guest, transport: asyncio.Transport) -> None:
        if self._acceptor is not None:  # handed over between its arrival and now
            _pass_on(guest, transport, self._acceptor)
        elif len(self._guests) >= self._most:
            transport.abort()
        else:
            self._guests[guest] = transport

    def leave(self, guest: _Guest) -> None:
        self._guests.pop(guest, None)

    def hand_over(self, acceptor: Callable[[], asyncio.Protocol]) -> None:
        self._acceptor = acceptor
        guests, self._guests = self._guests, {}
        for guest, transport in guests.items():
            if not transport.is_closing():
                _pass_on(guest, transport, acceptor)


@asynccontextmanager
async def opened(settings: ApiServer) -> AsyncIterator[Lobby]:
    lobby = Lobby(settings)
    try:
        await lobby.open()
        yield lobby
    finally:
        lobby.close()


def _pass_on(
    guest: _Guest, transport: asyncio.Transport, acceptor: Callable[[], asyncio.Protocol]
) -> None:
    protocol = acceptor()
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    transport.resume_reading()
    if guest.said:
        protocol.data_received(bytes(guest.said))


class _Guest(asyncio.Protocol):
    def __init__(self, lobby: Lobby) -> None:
        self._lobby = lobby
        self._transport: asyncio.Transport | None = None
        self.said = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._lobby.enter(self, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lobby.leave(self)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        began = time.monotonic()
        self.said += data
        if path := asked(bytes(self.said), self._lobby.names):
            transport.write(answer())
            self.said.clear()
            remote = str(transport.get_extra_info("peername")[0])
            self._lobby.answered.append(Answered(path, time.monotonic() - began, remote))
        elif len(self.said) > _LONGEST:
            transport.pause_reading()


def asked(said: bytes, names: frozenset[str]) -> str:
    """The path, when this is exactly one whole and plain request for it by a name we go by. In
    doubt it is not: then the server says what is to be said."""
    if len(said) > _LONGEST or not said.endswith(b"\r\n\r\n") or not said.isascii():
        return ""
    line, *fields = said[:-4].split(b"\r\n")
    hosts = []
    for field in fields:
        name, colon, value = field.partition(b":")
        if not colon or not value.decode().isprintable():
            return ""
        if name.lower() == b"host":
            hosts.append(value.decode().strip(" "))
        elif name.lower() not in _NO_MATTER:
            return ""
    plain = len(hosts) == 1 and port.goes_by(names, hosts[0])
    return _PATHS.get(line, "") if plain else ""


def answer() -> bytes:
    """What the route says, to the byte."""
    body = orjson.dumps(ALIVE)
    headers = {
        "Content-Type": "application/json",
        **HEADERS,
        "Content-Length": str(len(body)),
        "Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode() + body

"""The listening port, which answers health checks while the rest of the server is imported."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address

import orjson
from msgspec import Struct

from hermes.config.api_server import ApiServer
from hermes.core.errors import ConfigError
from hermes.server.http.headers import COMMON_HEADERS, create_request_id

HEALTH = {"status": "ok", "platform": "hermes-agent"}
_BACKLOG = 1024
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_ALL_INTERFACES = ("0.0.0.0", "::", "")
ANY_ADDRESS = " address"
"""Among the host names: every literal address is allowed. No Host header begins with a space."""
_HEALTH_PATHS = {b"GET /health HTTP/1.1": "/health", b"GET /v1/health HTTP/1.1": "/v1/health"}
_NEUTRAL_HEADERS = frozenset(
    {b"user-agent", b"accept", b"accept-encoding", b"accept-language", b"authorization"}
)
"""Headers that do not affect the answer; a request with any other waits for the server."""
_MAX_EARLY_BYTES = 16 * 1024


class HealthCheck(Struct, frozen=True):
    """A health check that was answered before it reached the router."""

    path: str
    seconds: float
    remote: str


class EarlyListener:
    """Accepts connections while the server is still importing; answers health checks, queues the
    rest. `hand_over` passes all connections to the acceptor, with their unanswered bytes."""

    def __init__(self, settings: ApiServer) -> None:
        self._socket = _open_socket(settings.host, settings.port)
        self.host_names = find_host_names(settings)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.address = f"http://{host}:{self._socket.getsockname()[1]}"
        self.health_checks: list[HealthCheck] = []
        """The health checks answered so far, for metrics and the access log."""
        self._max_connections = settings.max_connections
        self._connections: dict[_EarlyConnection, asyncio.Transport] = {}
        self._acceptor: Callable[[], asyncio.Protocol] | None = None
        self._listener: asyncio.Server | None = None

    def __call__(self) -> asyncio.Protocol:
        return _EarlyConnection(self) if self._acceptor is None else self._acceptor()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        # So many are accepted at once, also those that are closed right after.
        burst = min(_BACKLOG, max(8, self._max_connections // 2))
        self._listener = await loop.create_server(self, sock=self._socket, backlog=burst)

    def close(self) -> None:
        """Stop listening and drop the connections that were never handed over."""
        if self._listener is not None:
            self._listener.close()
        self._socket.close()
        for transport in list(self._connections.values()):
            transport.abort()

    def add_connection(self, connection: _EarlyConnection, transport: asyncio.Transport) -> None:
        if self._acceptor is not None:  # handed over since the connection was accepted
            _transfer_connection(connection, transport, self._acceptor)
        elif len(self._connections) >= self._max_connections:
            transport.abort()
        else:
            self._connections[connection] = transport

    def remove_connection(self, connection: _EarlyConnection) -> None:
        self._connections.pop(connection, None)

    def hand_over(self, acceptor: Callable[[], asyncio.Protocol]) -> None:
        self._acceptor = acceptor
        connections, self._connections = self._connections, {}
        for connection, transport in connections.items():
            if not transport.is_closing():
                _transfer_connection(connection, transport, acceptor)


@asynccontextmanager
async def open_listener(settings: ApiServer) -> AsyncIterator[EarlyListener]:
    listener = EarlyListener(settings)
    try:
        await listener.open()
        yield listener
    finally:
        listener.close()


def _transfer_connection(
    connection: _EarlyConnection,
    transport: asyncio.Transport,
    acceptor: Callable[[], asyncio.Protocol],
) -> None:
    protocol = acceptor()
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    transport.resume_reading()
    if connection.received:
        protocol.data_received(bytes(connection.received))


class _EarlyConnection(asyncio.Protocol):
    def __init__(self, listener: EarlyListener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self.received = bytearray()
        """The bytes that are not answered yet."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._listener.add_connection(self, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.remove_connection(self)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        began = time.monotonic()
        self.received += data
        if path := match_health_check(bytes(self.received), self._listener.host_names):
            transport.write(render_health_response())
            self.received.clear()
            remote = str(transport.get_extra_info("peername")[0])
            check = HealthCheck(path, time.monotonic() - began, remote)
            self._listener.health_checks.append(check)
        elif len(self.received) > _MAX_EARLY_BYTES:
            transport.pause_reading()


def match_health_check(
    received: bytes, host_names: frozenset[str], *, is_last: bool = False
) -> str:
    """The path, if the bytes are exactly one complete, plain health check for a known host name;
    otherwise empty, and the server decides. `is_last`: the connection is closed after it, whatever
    the request says about that."""
    is_complete = len(received) <= _MAX_EARLY_BYTES and received.endswith(b"\r\n\r\n")
    if not is_complete or not received.isascii():
        return ""
    line, *fields = received[:-4].split(b"\r\n")
    hosts = []
    for field in fields:
        name, colon, value = field.partition(b":")
        if not colon or not value.decode().isprintable():
            return ""
        if name.lower() == b"host":
            hosts.append(value.decode().strip(" "))
        elif name.lower() not in _NEUTRAL_HEADERS and not (
            is_last and name.lower() == b"connection"
        ):
            return ""
    has_known_host = len(hosts) == 1 and is_known_host(host_names, hosts[0])
    return _HEALTH_PATHS.get(line, "") if has_known_host else ""


def render_health_response() -> bytes:
    """The complete response, identical to that of the route."""
    body = orjson.dumps(HEALTH)
    headers = {
        "Content-Type": "application/json",
        **COMMON_HEADERS,
        "X-Request-Id": create_request_id(),
        "Content-Length": str(len(body)),
        "Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode() + body


def _open_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host.strip("[]"), port))
        sock.listen(_BACKLOG)  # of two servers started at once, one fails only here
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"The API server cannot listen on {host}:{port}: {error.strerror}. Choose another "
            "port with --port, or stop the program that uses this one."
        ) from None
    return sock


def find_host_names(settings: ApiServer) -> frozenset[str]:
    """The host names that requests may use in their Host header."""
    bound = [settings.host.lower()]
    if settings.host in _ALL_INTERFACES:
        bound = [socket.gethostname().lower(), ANY_ADDRESS]
    allowed = (_split_host(name)[0] for name in settings.allowed_hosts)
    return frozenset((*_LOOPBACK_NAMES, *bound, *allowed))


def is_known_host(host_names: frozenset[str], host: str) -> bool:
    """Whether the value of a Host header, with or without a port, is one of the names, or an
    address where any is allowed: a name can be made to point here, an address cannot."""
    name, port = _split_host(host)
    if port and not port.isdigit():
        return False
    return name in host_names or (ANY_ADDRESS in host_names and _is_address(name))


def _split_host(host: str) -> tuple[str, str]:
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name.lower(), port.removeprefix(":")
    name, _, port = host.partition(":")
    return name.lower().rstrip("."), port


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

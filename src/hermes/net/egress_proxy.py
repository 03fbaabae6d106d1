"""The egress proxy of started programs: HTTP, with a list of domains and the SSRF checks."""

import asyncio
import os
import secrets
import stat
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path

from msgspec import Struct, structs

from hermes.net.errors import EgressError, UnknownHostError
from hermes.net.ssrf import SsrfGuard, connect_route
from hermes.net.tls_hello import read_server_name
from hermes.net.url import ParsedUrl, parse_url, split_host_port

SOCKET_NAME = "egress.sock"
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_MAX_HEAD = 32 * 1024
_BLOCK_SIZE = 64 * 1024
_HELLO_SIZE = 16 * 1024
_CLOSE_TIMEOUT = 5.0
_LOGIN_HEADER = "proxy-authorization"
_WEB_PORTS = (80, 443)
_HOP_HEADERS = frozenset(
    "connection keep-alive proxy-connection proxy-authorization proxy-authenticate te trailer "
    "upgrade host".split()
)


class ProxyLimits(Struct, frozen=True):
    """Limits of one connection, except for the last, which counts connections."""

    up: int = 256 * 1024 * 1024
    down: int = 2 * 1024 * 1024 * 1024
    idle: float = 120.0
    total: float = 3600.0
    head: float = 15.0
    """Seconds for the head of the request, and for the first bytes of a tunnel."""
    connections: int = 64


class DomainList:
    """`name`, `*.suffix` (its subdomains, not itself) or `*`; each may end in `:port`. Without a
    port, the two web ports are meant."""

    def __init__(self, entries: Collection[str]) -> None:
        self._exact: set[tuple[str, int]] = set()
        self._below: set[tuple[str, int]] = set()
        self._any: set[int] = set()
        for entry in entries:
            self._add_entry(entry.strip().lower())

    def _add_entry(self, entry: str) -> None:
        if entry == "*" or entry.startswith("*:"):
            _, port = split_host_port("any" + entry[1:])
            self._any.update([port] if port else _WEB_PORTS)
            return
        wild = entry.startswith("*.")
        host, port = split_host_port(entry[2:] if wild else entry)
        found = self._below if wild else self._exact
        found.update((host, p) for p in ([port] if port else _WEB_PORTS))

    def __contains__(self, at: tuple[str, int]) -> bool:
        host, port = at
        if port in self._any or at in self._exact:
            return True
        labels = host.split(".")
        return any((".".join(labels[i:]), port) in self._below for i in range(1, len(labels)))


class Refusal(Struct, frozen=True):
    """Why something was not fetched; with the host and port when they are not among the domains."""

    reason: str
    host: str = ""
    port: int = 0


class LoopbackProxy(Struct, frozen=True):
    """A proxy on loopback, for a program that cannot use a unix socket. Other users of this machine
    can reach the port, so it requires a password."""

    url: str
    user: str
    password: str


class _ProxyRefusal(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@asynccontextmanager
async def serve_unix_proxy(
    folder: Path,
    domains: Collection[str] | None,
    guard: SsrfGuard,
    limits: ProxyLimits | None = None,
    on_refusal: Callable[[Refusal], None] | None = None,
) -> AsyncIterator[Path]:
    """Run a proxy and yield the path of its socket (0600, in `folder`, which is made 0700). Without
    `domains` the whole internet is allowed; `on_refusal` gets each refusal."""
    _make_private_folder(folder)
    path = folder / SOCKET_NAME
    path.unlink(missing_ok=True)
    proxy = _ProxyServer(domains, guard, limits, on_refusal=on_refusal)
    server = await asyncio.start_unix_server(proxy.serve_connection, path, limit=_MAX_HEAD)
    try:
        path.chmod(0o600)
        yield path
    finally:
        server.close()
        await proxy.close()
        path.unlink(missing_ok=True)


@asynccontextmanager
async def serve_loopback_proxy(
    guard: SsrfGuard,
    limits: ProxyLimits | None = None,
    domains: Collection[str] | None = None,
    on_refusal: Callable[[Refusal], None] | None = None,
) -> AsyncIterator[LoopbackProxy]:
    """Run a proxy on a free port of 127.0.0.1; without `domains` the whole internet is allowed."""
    local = LoopbackProxy("", "hermes", secrets.token_urlsafe(24))
    proxy = _ProxyServer(domains, guard, limits, local, on_refusal)
    server = await asyncio.start_server(proxy.serve_connection, "127.0.0.1", 0, limit=_MAX_HEAD)
    try:
        port = server.sockets[0].getsockname()[1]
        yield structs.replace(local, url=f"http://127.0.0.1:{port}")
    finally:
        server.close()
        await proxy.close()


def _make_private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise EgressError(f"{folder} is not a folder of this user; the proxy is not opened in it.")
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)


class _ProxyServer:
    """Serves connections and keeps track of them, so that none outlives the proxy."""

    def __init__(
        self,
        domains: Collection[str] | None,
        guard: SsrfGuard,
        limits: ProxyLimits | None,
        login: LoopbackProxy | None = None,
        on_refusal: Callable[[Refusal], None] | None = None,
    ) -> None:
        self._domains = None if domains is None else DomainList(domains)
        """None: all names and ports; the SSRF guard still applies."""
        self._guard = guard
        self._limits = limits or ProxyLimits()
        self._login = ""
        if login is not None:
            pair = f"{login.user}:{login.password}".encode()
            self._login = "Basic " + b64encode(pair).decode()
        self._on_refusal = on_refusal
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            async with asyncio.timeout(self._limits.total):
                await self._handle_request(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # closed, too slow, or the proxy is closing: there is nobody to answer
        finally:
            await _hang_up(writer, task)
            self._tasks.discard(task)

    async def _handle_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            if len(self._tasks) > self._limits.connections:
                raise _ProxyRefusal(403, "There are too many connections.")
            method, target, lines = await self._read_head(reader)
            self._check_login(lines)
            if method == "CONNECT":
                await self._handle_connect(reader, writer, target)
            else:
                await self._handle_plain_http(reader, writer, (method, target), lines)
        except _ProxyRefusal as refusal:
            await _send_refusal(writer, refusal.status, str(refusal))
        except EgressError as error:
            if self._on_refusal is not None:
                self._on_refusal(Refusal(str(error)))
            await _send_refusal(writer, 403, str(error))

    async def _read_head(self, reader: asyncio.StreamReader) -> tuple[str, str, list[str]]:
        try:
            async with asyncio.timeout(self._limits.head):
                raw = await reader.readuntil(b"\r\n\r\n")
            first, *lines = raw[:-4].decode("ascii").split("\r\n")
            method, target, version = first.split(" ")
        except (asyncio.LimitOverrunError, ValueError):
            raise _ProxyRefusal(400, "The request cannot be understood.") from None
        has_control = any("\n" in line or "\r" in line or "\0" in line for line in (first, *lines))
        if has_control or version not in ("HTTP/1.1", "HTTP/1.0") or not method.isalpha():
            raise _ProxyRefusal(400, "The request cannot be understood.")
        return method.upper(), target, lines

    def _check_login(self, lines: list[str]) -> None:
        if not self._login:
            return
        given = [
            v.strip() for n, _, v in (x.partition(":") for x in lines) if n.lower() == _LOGIN_HEADER
        ]
        if len(given) != 1 or not secrets.compare_digest(given[0], self._login):
            raise _ProxyRefusal(407, "This proxy is for one program only.")

    async def _open_upstream(self, url: ParsedUrl) -> _Streams:
        if self._domains is not None and (url.host, url.port) not in self._domains:
            text = f"{url.host}:{url.port} is not on this sandbox's list of allowed domains."
            if self._on_refusal is not None:
                self._on_refusal(Refusal(text, url.host, url.port))
            raise _ProxyRefusal(403, text)
        try:
            route = await self._guard.check_url(url)
        except UnknownHostError as error:
            raise _ProxyRefusal(502, str(error)) from None
        try:
            sock = await connect_route(route)
        except EgressError as error:
            raise _ProxyRefusal(502, str(error)) from None
        return await asyncio.open_connection(sock=sock)

    async def _handle_connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str
    ) -> None:
        url = parse_url(f"https://{target}/")
        if url.target != "/" or not target.rpartition(":")[2].isdecimal():
            raise _ProxyRefusal(400, "CONNECT needs host:port.")
        upstream = await self._open_upstream(url)
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            hello = b""
            if url.port in _WEB_PORTS:
                hello = await self._read_client_hello(reader, url)
                upstream[1].write(hello)
            await self._relay_both_ways((reader, writer), upstream, sent=len(hello))
        finally:
            await _hang_up(upstream[1], asyncio.current_task())

    async def _read_client_hello(self, reader: asyncio.StreamReader, url: ParsedUrl) -> bytes:
        """The start of a tunnel to a web port, which must be TLS for exactly the allowed name: on
        shared servers any other name would be another site."""
        data = b""
        name: str | None = None
        async with asyncio.timeout(self._limits.head):
            while name is None:
                received = await reader.read(_HELLO_SIZE)
                data += received
                name = read_server_name(data)
                if not received:
                    break
        wanted = "" if url.literal is not None else url.host
        if name is None or name.lower().removesuffix(".") != wanted:
            raise ConnectionError("not TLS for the allowed name")
        return data

    async def _handle_plain_http(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        request: tuple[str, str],
        lines: list[str],
    ) -> None:
        url = parse_url(request[1])
        if url.scheme != "http":
            raise _ProxyRefusal(400, "Use CONNECT for https.")
        kept, length = _filter_headers(lines)
        upstream = await self._open_upstream(url)
        try:
            head = [f"{request[0]} {url.target} HTTP/1.1", f"Host: {url.authority}", *kept]
            upstream[1].write(("\r\n".join(head) + "\r\nConnection: close\r\n\r\n").encode("ascii"))
            await self._relay_both_ways((reader, writer), upstream, sent=0, body_length=length)
        finally:
            await _hang_up(upstream[1], asyncio.current_task())

    async def _relay_both_ways(
        self, client: _Streams, upstream: _Streams, *, sent: int, body_length: int | None = None
    ) -> None:
        """Until the upstream side is done. `sent`: bytes already sent up; `body_length`: bytes that
        may still follow."""
        limit = self._limits.up
        room = limit - sent if body_length is None else min(body_length, limit)
        timer = _IdleTimer(self._limits.idle)
        try:
            async with asyncio.TaskGroup() as group:
                up = group.create_task(_relay_bytes(client[0], upstream[1], room, timer))
                await _relay_bytes(upstream[0], client[1], self._limits.down, timer)
                up.cancel()
        except* OSError:
            pass


class _IdleTimer:
    """One idle timer for both directions: a long download sends nothing up."""

    def __init__(self, idle: float) -> None:
        self.idle = idle
        self.last = time.monotonic()

    async def read(self, reader: asyncio.StreamReader, max_bytes: int) -> bytes:
        while True:
            left = self.last + self.idle - time.monotonic()
            if left <= 0:
                raise TimeoutError
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    data = await reader.read(max_bytes)
                    self.last = time.monotonic()
                    return data


async def _relay_bytes(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, room: int, timer: _IdleTimer
) -> None:
    while room > 0:
        data = await timer.read(reader, min(_BLOCK_SIZE, room))
        if not data:
            break
        room -= len(data)
        writer.write(data)
        await writer.drain()
    else:
        return  # the limit is reached: nothing more is passed on
    if writer.can_write_eof():
        writer.write_eof()


def _filter_headers(lines: list[str]) -> tuple[list[str], int]:
    """The headers to pass on, and the length of the body."""
    lengths: set[str] = set()
    kept: list[str] = []
    for line in lines:
        name, colon, value = line.partition(":")
        lower = name.lower()
        if not colon or not name or name != name.strip():
            raise _ProxyRefusal(400, "A header cannot be understood.")
        if lower == "transfer-encoding":
            raise _ProxyRefusal(411, "Send the length of the body instead of chunks.")
        if lower == "content-length":
            lengths.add(value.strip())
        if lower not in _HOP_HEADERS:
            kept.append(line)
    if len(lengths) > 1 or not all(text.isdecimal() for text in lengths):
        raise _ProxyRefusal(400, "The length of the body cannot be understood.")
    return kept, int(lengths.pop()) if lengths else 0


async def _hang_up(writer: asyncio.StreamWriter, task: asyncio.Task[None] | None) -> None:
    """Let the last bytes leave, but not for long, and not when the proxy is closing."""
    writer.close()
    try:
        if task is None or not task.cancelling():
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await writer.wait_closed()
    except OSError:
        pass  # closed by the other side
    finally:
        writer.transport.abort()


async def _send_refusal(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = (text + "\n").encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n"
    )
    if status == 407:
        head += 'Proxy-Authenticate: Basic realm="hermes"\r\n'
    writer.write(f"{head}\r\n".encode() + body)
    await writer.drain()

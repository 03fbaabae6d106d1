"""The way out for programs we start: an HTTP proxy with a list of domains and the door's checks."""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct, structs

from hermes.net.errors import EgressError
from hermes.net.ssrf import Gate, dial
from hermes.net.tls_hello import server_name
from hermes.net.url import Location, parse, split_port

SOCKET = "egress.sock"
_HEAD = 32 * 1024
_BLOCK = 64 * 1024
_HELLO = 16 * 1024
_LAST = 5.0
_LOGIN = "proxy-authorization"
_WEB_PORTS = (80, 443)
_REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    407: "Proxy Authentication Required",
    411: "Length Required",
    502: "Bad Gateway",
}
_HOP = frozenset(
    "connection keep-alive proxy-connection proxy-authorization proxy-authenticate te trailer "
    "upgrade host".split()
)


class Limits(Struct, frozen=True):
    """Of one connection, but for the last."""

    up: int = 256 * 1024 * 1024
    down: int = 2 * 1024 * 1024 * 1024
    idle: float = 120.0
    total: float = 3600.0
    head: float = 15.0
    """Seconds for the request's head, and for the first bytes of a tunnel."""
    connections: int = 64


class Domains:
    """`name`, `*.suffix` (everything below it, not itself) or `*`; each may end in `:port`.
    Without a port the two web ports are meant."""

    def __init__(self, entries: Collection[str]) -> None:
        self._exact: set[tuple[str, int]] = set()
        self._below: set[tuple[str, int]] = set()
        self._any: set[int] = set()
        for entry in entries:
            self._add(entry.strip().lower())

    def _add(self, entry: str) -> None:
        if entry == "*" or entry.startswith("*:"):
            _, port = split_port("any" + entry[1:])
            self._any.update([port] if port else _WEB_PORTS)
            return
        wild = entry.startswith("*.")
        host, port = split_port(entry[2:] if wild else entry)
        found = self._below if wild else self._exact
        found.update((host, p) for p in ([port] if port else _WEB_PORTS))

    def __contains__(self, at: tuple[str, int]) -> bool:
        host, port = at
        if port in self._any or at in self._exact:
            return True
        labels = host.split(".")
        return any((".".join(labels[i:]), port) in self._below for i in range(1, len(labels)))


class Everywhere:
    """All names and ports; what the gate refuses is still refused."""

    def __contains__(self, at: object) -> bool:
        return True


class Local(Struct, frozen=True):
    """A proxy on loopback, for a program that cannot use a unix socket. Others on this machine
    can reach the port, so it asks for a password."""

    url: str
    user: str
    password: str


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@asynccontextmanager
async def serve(
    folder: Path,
    domains: Collection[str] | None,
    gate: Gate,
    limits: Limits | None = None,
    refused: Callable[[str], None] | None = None,
) -> AsyncIterator[Path]:
    """A running proxy; gives the path of its socket (0600, in `folder`, which is made 0700).
    Without `domains` for the whole internet; `refused` hears what was refused, and why."""
    _private(folder)
    path = folder / SOCKET
    with suppress(FileNotFoundError):
        path.unlink()
    allowed = Everywhere() if domains is None else Domains(domains)
    desk = _Desk(allowed, gate, limits or Limits(), refused=refused)
    server = await asyncio.start_unix_server(desk.serve, path, limit=_HEAD)
    try:
        path.chmod(0o600)
        yield path
    finally:
        server.close()
        await desk.close()
        with suppress(FileNotFoundError):
            path.unlink()


@asynccontextmanager
async def serve_local(
    gate: Gate,
    limits: Limits | None = None,
    domains: Collection[str] | None = None,
    refused: Callable[[str], None] | None = None,
) -> AsyncIterator[Local]:
    """A running proxy on a free port of 127.0.0.1; without `domains` for the whole internet."""
    allowed = Everywhere() if domains is None else Domains(domains)
    local = Local("", "hermes", secrets.token_urlsafe(24))
    desk = _Desk(allowed, gate, limits or Limits(), local, refused)
    server = await asyncio.start_server(desk.serve, "127.0.0.1", 0, limit=_HEAD)
    try:
        port = server.sockets[0].getsockname()[1]
        yield structs.replace(local, url=f"http://127.0.0.1:{port}")
    finally:
        server.close()
        await desk.close()


def _private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise EgressError(f"{folder} is not a folder of ours; the proxy is not opened in it.")
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)


class _Desk:
    """Serves connections; keeps track of them so that none outlives the proxy."""

    def __init__(
        self,
        domains: Domains | Everywhere,
        gate: Gate,
        limits: Limits,
        login: Local | None = None,
        refused: Callable[[str], None] | None = None,
    ) -> None:
        self._domains = domains
        self._gate = gate
        self._limits = limits
        self._login = "" if login is None else _basic(login)
        self._refused = refused
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            async with asyncio.timeout(self._limits.total):
                await self._answer(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # gone, too slow, or the proxy is closing: nothing is owed to anybody
        finally:
            await _hang_up(writer, task)
            self._tasks.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._tasks) > self._limits.connections:
                raise _Refused(403, "Too many connections at once.")
            method, target, lines = await self._head(reader)
            self._check_login(lines)
            if method == "CONNECT":
                await self._connect(reader, writer, target)
            else:
                await self._forward(reader, writer, (method, target), lines)
        except _Refused as refusal:
            await _refuse(writer, refusal.status, str(refusal))
        except EgressError as error:
            if self._refused is not None:
                self._refused(str(error))
            await _refuse(writer, 403, str(error))

    async def _head(self, reader: asyncio.StreamReader) -> tuple[str, str, list[str]]:
        try:
            async with asyncio.timeout(self._limits.head):
                raw = await reader.readuntil(b"\r\n\r\n")
            first, *lines = raw[:-4].decode("ascii").split("\r\n")
            method, target, version = first.split(" ")
        except (asyncio.LimitOverrunError, ValueError):
            raise _Refused(400, "The request cannot be understood.") from None
        bad = any("\n" in line or "\r" in line or "\0" in line for line in (first, *lines))
        if bad or version not in ("HTTP/1.1", "HTTP/1.0") or not method.isalpha():
            raise _Refused(400, "The request cannot be understood.")
        return method.upper(), target, lines

    def _check_login(self, lines: list[str]) -> None:
        if not self._login:
            return
        given = [v.strip() for n, _, v in (x.partition(":") for x in lines) if n.lower() == _LOGIN]
        if len(given) != 1 or not secrets.compare_digest(given[0], self._login):
            raise _Refused(407, "This proxy is for one program only.")

    async def _route(self, location: Location) -> _Pair:
        if (location.host, location.port) not in self._domains:
            raise _Refused(
                403,
                f"{location.host}:{location.port} is not on this sandbox's list of allowed "
                "domains; only its operator can add it.",
            )
        route = await self._gate.route(location)
        try:
            sock = await dial(route)
        except EgressError as error:
            raise _Refused(502, str(error)) from None
        return await asyncio.open_connection(sock=sock)

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str
    ) -> None:
        location = parse(f"https://{target}/")
        if location.target != "/" or not target.rpartition(":")[2].isdecimal():
            raise _Refused(400, "CONNECT needs host:port.")
        there = await self._route(location)
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            hello = b""
            if location.port in _WEB_PORTS:
                hello = await self._hello(reader, location)
                there[1].write(hello)
            await self._both((reader, writer), there, sent=len(hello))
        finally:
            await _hang_up(there[1], asyncio.current_task())

    async def _hello(self, reader: asyncio.StreamReader, location: Location) -> bytes:
        """The start of a tunnel to a web port: TLS that asks for the very name that was allowed.
        On shared servers any other name would be another site."""
        data = b""
        name: str | None = None
        async with asyncio.timeout(self._limits.head):
            while name is None:
                more = await reader.read(_HELLO)
                data += more
                name = server_name(data)
                if not more:
                    break
        wanted = "" if location.literal is not None else location.host
        if name is None or name.lower().removesuffix(".") != wanted:
            raise ConnectionError("not TLS for the allowed name")
        return data

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ask: tuple[str, str],
        lines: list[str],
    ) -> None:
        location = parse(ask[1])
        if location.scheme != "http":
            raise _Refused(400, "Use CONNECT for https.")
        kept, length = _headers(lines)
        there = await self._route(location)
        try:
            head = [f"{ask[0]} {location.target} HTTP/1.1", f"Host: {location.authority}", *kept]
            there[1].write(("\r\n".join(head) + "\r\nConnection: close\r\n\r\n").encode("ascii"))
            await self._both((reader, writer), there, sent=0, only=length)
        finally:
            await _hang_up(there[1], asyncio.current_task())

    async def _both(self, here: _Pair, there: _Pair, *, sent: int, only: int | None = None) -> None:
        """Both directions until the far side is done. `only`: bytes that may still go up."""
        room = self._limits.up - sent if only is None else min(only, self._limits.up)
        watch = _Watch(self._limits.idle)
        try:
            async with asyncio.TaskGroup() as group:
                up = group.create_task(_pipe(here[0], there[1], room, watch))
                await _pipe(there[0], here[1], self._limits.down, watch)
                up.cancel()
        except* OSError:
            pass


_Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Watch:
    """One idle clock for both directions: a long download sends nothing up."""

    def __init__(self, idle: float) -> None:
        self.idle = idle
        self.last = time.monotonic()

    async def read(self, reader: asyncio.StreamReader, most: int) -> bytes:
        while True:
            left = self.last + self.idle - time.monotonic()
            if left <= 0:
                raise TimeoutError
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    data = await reader.read(most)
                    self.last = time.monotonic()
                    return data


async def _pipe(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, room: int, watch: _Watch
) -> None:
    while room > 0:
        data = await watch.read(reader, min(_BLOCK, room))
        if not data:
            break
        room -= len(data)
        writer.write(data)
        await writer.drain()
    else:
        return  # enough: what follows is not passed on
    if writer.can_write_eof():
        writer.write_eof()


def _headers(lines: list[str]) -> tuple[list[str], int]:
    """The headers to pass on, and the length of the body."""
    lengths: set[str] = set()
    kept: list[str] = []
    for line in lines:
        name, colon, value = line.partition(":")
        low = name.lower()
        if not colon or not name or name != name.strip():
            raise _Refused(400, "A header cannot be understood.")
        if low == "transfer-encoding":
            raise _Refused(411, "Send the length of the body instead of pieces.")
        if low == "content-length":
            lengths.add(value.strip())
        if low not in _HOP:
            kept.append(line)
    if len(lengths) > 1 or not all(text.isdecimal() for text in lengths):
        raise _Refused(400, "The length of the body cannot be understood.")
    return kept, int(lengths.pop()) if lengths else 0


def _basic(login: Local) -> str:
    return "Basic " + b64encode(f"{login.user}:{login.password}".encode()).decode()


async def _hang_up(writer: asyncio.StreamWriter, task: asyncio.Task[None] | None) -> None:
    """Lets the last bytes leave, but not for long and not when the proxy is closing."""
    writer.close()
    try:
        if task is None or not task.cancelling():
            async with asyncio.timeout(_LAST):
                await writer.wait_closed()
    except OSError:
        pass  # it is closed, if by the other side
    finally:
        writer.transport.abort()


async def _refuse(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = (text + "\n").encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n"
    )
    if status == 407:
        head += 'Proxy-Authenticate: Basic realm="hermes"\r\n'
    writer.write(f"{head}\r\n".encode() + body)
    await writer.drain()

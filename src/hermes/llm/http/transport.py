"""HTTP to model endpoints: one pooled aiohttp session per process, failures as Failures."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import urlsplit

from hermes.config.env import find_proxy
from hermes.core.errors import ConfigError, Failure, Kind, ProviderError
from hermes.llm.hosts import is_loopback, is_own_address, is_usual_server
from hermes.llm.http.failures import broken_response, connection_failure
from hermes.llm.http.large_body import wrap_body
from hermes.llm.http.lazy_tls import load_aiohttp
from hermes.llm.http.tape import TAPE, TapeExchange, TurnTape

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)

EMBEDDED = "local:"
"""Scheme of models that run in a process of their own on this machine."""
KEEP_IDLE = 75.0
"""Seconds an idle connection stays in the pool: long enough for a person to type."""
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
_LONGEST_HEADER = 64 * 1024
GATHER_SECONDS = 0.04
"""How long the pieces of a quick stream are gathered: text that grows 25 times a second flows."""
_MANY_PIECES = 8
_SMALL_PIECE = 2048


class EmbeddedEngines(Protocol):
    """The part of the embedded models' engines that the transport uses."""

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes
    ) -> Exchange: ...

    async def close(self) -> None: ...


class Transport:
    """One per process, shared by all clients. It opens nothing before the first request, and can
    be used from any event loop: sessions of a closed loop are dropped."""

    def __init__(self, open_engines: Callable[[], EmbeddedEngines] | None = None) -> None:
        """`open_engines` is called for the first request to an embedded model."""
        self._sessions: dict[tuple[asyncio.AbstractEventLoop, str, bool], Any] = {}
        self._proxies: dict[str, str] = {}
        self._warned: set[str] = set()
        self._open_engines = open_engines
        self._engines: EmbeddedEngines | None = None
        self.before_call: Callable[[int], Awaitable[None]] | None = None
        """Awaited with the size of the body before a model is called; may delay the call, whose
        time limits begin afterwards."""

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        fresh: bool = False,
    ) -> Exchange:
        """Send a request and wait for the headers of the response; the body is read from the
        Exchange."""
        if (tape := TAPE.get()) is None:
            return await self._open_exchange(method, url, headers, body, fresh=fresh)
        entry = tape.begin_exchange(method, url, body)
        try:
            opened = await self._open_exchange(method, url, headers, body, fresh=fresh)
        except ProviderError as error:
            entry.failure = error.failure
            raise
        except asyncio.CancelledError:
            entry.is_cut = True
            raise
        return RecordedExchange(opened, tape, entry)

    async def _open_exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, fresh: bool
    ) -> Exchange:
        if url.startswith(EMBEDDED):
            if self._engines is None:
                if self._open_engines is None:
                    text = "embedded models cannot be called here"
                    raise ProviderError(Failure(Kind.MODEL_NOT_FOUND, text))
                self._engines = self._open_engines()
            return await self._engines.send(method, url, headers=headers, body=body)
        aiohttp = load_aiohttp()
        from yarl import URL

        host = urlsplit(url).netloc.rpartition("@")[2]
        proxy = self.find_proxy(url)
        socks = proxy if proxy.startswith("socks") else ""
        session = await self._open_session(socks, fresh)
        try:
            response = await session.request(
                method,
                URL(url, encoded=True),
                data=wrap_body(body),
                headers=headers,
                proxy=None if socks else proxy or None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ProviderError(connection_failure(error, host)) from None
        return Exchange(response, host)

    def find_proxy(self, url: str) -> str:
        """The proxy that the environment names for this address; empty: none. The usual addresses
        of model servers on this machine never get one: no proxy reaches them. Raises ConfigError
        for a kind of proxy that cannot be used."""
        if url.startswith(EMBEDDED):
            return ""
        origin = "://".join(urlsplit(url)[:2])
        found = self._proxies.get(origin)
        if found is None:
            found = find_proxy(url) or ""
            if found and is_loopback(urlsplit(url).hostname or "") and is_usual_server(url):
                found = ""
            self._proxies[origin] = found
        if found.startswith("socks") and find_spec("aiohttp_socks") is None:
            raise ConfigError(
                "The environment sets a SOCKS proxy, which needs the package aiohttp-socks: "
                "install it, or set HTTPS_PROXY to an http:// proxy, or NO_PROXY for this host."
            )
        return found

    def warn_plain_http(self, base_url: str) -> None:
        """Warn in the log, once per host, that a key is sent unencrypted."""
        parts = urlsplit(base_url)
        host = parts.hostname or ""
        if parts.scheme != "http" or host in self._warned or is_own_address(base_url):
            return
        self._warned.add(host)
        text = "The key for %s is sent over plain http; use https if the host offers it."
        log.warning(text, host)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            await session.close()
        if self._engines is not None:
            await self._engines.close()

    async def _open_session(self, socks: str, fresh: bool) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        session: aiohttp.ClientSession | None = self._sessions.get((loop, socks, fresh))
        if session is not None and not session.closed:
            return session
        for key in [k for k in self._sessions if k[0].is_closed()]:
            await self._sessions.pop(key).close()
        session = self._sessions[loop, socks, fresh] = _new_session(socks, fresh)
        return session


class Exchange:
    """A response coming in. Closing it before its end closes the socket at once, so that the
    provider stops generating."""

    __slots__ = ("_content", "_quick", "_response", "content_type", "headers", "host", "status")

    def __init__(self, response: aiohttp.ClientResponse, host: str) -> None:
        self._response = response
        self._content = response.content
        self._quick = 0
        """How many small pieces came quickly one after the other."""
        self.host = host
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.content_type = response.content_type

    async def read(self) -> bytes:
        """What has arrived; b"" at the end."""
        if self._quick >= _MANY_PIECES and not self._content.is_eof():
            await self._gather_pieces()
        began = time.monotonic()
        try:
            data = await self._content.readany()
        except (load_aiohttp().ClientError, OSError, EOFError) as error:
            raise ProviderError(broken_response(error, self.host)) from None
        is_quick = len(data) < _SMALL_PIECE and time.monotonic() - began < GATHER_SECONDS
        self._quick = self._quick + 1 if is_quick else 0
        return data

    async def _gather_pieces(self) -> None:
        """Let some pieces of a quick stream arrive in the kernel: to wake up for each costs more
        than to decode it."""
        connection = self._response.connection
        transport = connection.transport if connection is not None else None
        if transport is None:
            return
        transport.pause_reading()
        try:
            await asyncio.sleep(GATHER_SECONDS)
        finally:
            transport.resume_reading()

    async def read_all(self, limit: int) -> bytes:
        """The rest of the body, at most about `limit` bytes of it."""
        pieces: list[bytes] = []
        room = limit
        while room > 0 and (data := await self.read()):
            pieces.append(data)
            room -= len(data)
        return b"".join(pieces)

    def close(self) -> None:
        response = self._response
        if self._content.at_eof():
            response.release()
            return
        connection = response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        response.close()


class RecordedExchange(Exchange):
    """A response whose bytes go to a tape as they are read."""

    __slots__ = ("_entry", "_inner", "_tape")

    def __init__(self, inner: Exchange, tape: TurnTape, entry: TapeExchange) -> None:
        self._inner, self._tape, self._entry = inner, tape, entry
        self.host, self.status = inner.host, inner.status
        self.headers, self.content_type = inner.headers, inner.content_type
        about = (inner.content_type, inner.host)
        tape.note_response(entry, inner.status, inner.headers, about)

    async def read(self) -> bytes:
        try:
            data = await self._inner.read()
        except ProviderError as error:
            self._entry.failure = error.failure
            raise
        except asyncio.CancelledError:
            self._entry.is_cut = True
            raise
        self._tape.note_read(self._entry, data)
        return data

    def close(self) -> None:
        self._inner.close()


def _new_session(socks: str, fresh: bool) -> aiohttp.ClientSession:
    import aiohttp

    connector: aiohttp.BaseConnector
    if socks:
        proxy_connector = import_module("aiohttp_socks").ProxyConnector
        connector = proxy_connector.from_url(socks, limit=0, force_close=fresh)
    else:
        connector = aiohttp.TCPConnector(
            limit=0,
            use_dns_cache=False,  # a host that moved must be found again by the next attempt
            force_close=fresh,
            keepalive_timeout=None if fresh else KEEP_IDLE,
            socket_factory=_open_socket,
        )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        auto_decompress=True,
        trust_env=False,
        max_line_size=_LONGEST_HEADER,
        max_field_size=_LONGEST_HEADER,
    )


def _open_socket(address: tuple[Any, ...]) -> socket.socket:
    opened = socket.socket(address[0], address[1], address[2])
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened

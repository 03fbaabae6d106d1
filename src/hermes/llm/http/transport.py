"""HTTP to model endpoints: one pooled aiohttp session per process, failures as Failures."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hermes.config.env import proxy_for
from hermes.core.errors import ConfigError, Failure, Kind, ProviderError
from hermes.llm.auth.cooldown import Cooling

if TYPE_CHECKING:
    import aiohttp

    from hermes.llm.local.engine import Engines

log = logging.getLogger(__name__)

KEEP_IDLE = 75.0
"""Seconds an idle connection stays in the pool: long enough for a person to type."""
_KEEP_ALIVE = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPALIVE", 30),
    ("TCP_KEEPINTVL", 15),
    ("TCP_KEEPCNT", 4),
)
EMBEDDED = "local:"
"""Scheme of models that run in a process of ours."""
_LARGE = 2**20
_LONGEST_HEADER = 64 * 1024


class Transport:
    """One per process, shared by all clients. It opens nothing before the first request, and can
    be used from any event loop: what belonged to a loop that is gone is let go."""

    def __init__(self, cooling: Cooling | None = None) -> None:
        self._sessions: dict[tuple[asyncio.AbstractEventLoop, str, bool], Any] = {}
        self._proxies: dict[str, str] = {}
        self._warned: set[str] = set()
        self.until: dict[tuple[str, str], tuple[float, object]] = {}
        """(base URL, key) -> when it may be called again, and who waits for that on its own."""
        self.cooling = cooling or Cooling()
        """When exhausted keys are worth a try again."""
        self._engines: Engines | None = None

    @property
    def _embedded(self) -> Engines:
        """Models in processes of ours, started when they are first called."""
        if self._engines is None:
            from hermes.llm.local.engine import Engines

            self._engines = Engines()
        return self._engines

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        fresh: bool = False,
    ) -> Exchange:
        """One request; the answer's headers are there, its body is read from the Exchange."""
        if url.startswith(EMBEDDED):
            return await self._embedded.send(method, url, headers=headers, body=body)
        aiohttp = load()
        from yarl import URL

        host = urlsplit(url).netloc.rpartition("@")[2]
        proxy = self.proxy(url)
        socks = proxy if proxy.startswith("socks") else ""
        session = await self._session(socks, fresh)
        data: Any = body if len(body) < _LARGE else _large_body(body)
        try:
            response = await session.request(
                method,
                URL(url, encoded=True),
                data=data or None,
                headers=headers,
                proxy=None if socks else proxy or None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ProviderError(unreachable(error, host)) from None
        return Exchange(response, host)

    def proxy(self, url: str) -> str:
        """The proxy the environment asks for, except to where model servers of this machine
        usually are, which no proxy reaches; ConfigError when it is of a kind we cannot speak."""
        if url.startswith(EMBEDDED):
            return ""
        origin = "://".join(urlsplit(url)[:2])
        found = self._proxies.get(origin)
        if found is None:
            found = self._proxies[origin] = _proxy(url)
        if found.startswith("socks"):
            from importlib.util import find_spec

            if find_spec("aiohttp_socks") is None:
                raise ConfigError(
                    "The environment sets a SOCKS proxy, which needs the package aiohttp-socks: "
                    "install it, or set HTTPS_PROXY to an http:// proxy, or NO_PROXY for this host."
                )
        return found

    def warn_plain(self, base_url: str) -> None:
        """A key over plain http can be read by anybody on the way: say so once per host."""
        parts = urlsplit(base_url)
        host = parts.hostname or ""
        if parts.scheme != "http" or host in self._warned:
            return
        from hermes.llm.endpoints.match import own

        if own(base_url):
            return
        self._warned.add(host)
        log.warning(
            "The key for %s travels over plain http; use https if the host offers it.", host
        )

    async def close(self) -> None:
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            await session.close()
        if self._engines is not None:
            await self._engines.close()

    async def _session(self, socks: str, fresh: bool) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        session: aiohttp.ClientSession | None = self._sessions.get((loop, socks, fresh))
        if session is not None and not session.closed:
            return session
        for key in [k for k in self._sessions if k[0].is_closed()]:
            await self._sessions.pop(key).close()
        session = self._sessions[loop, socks, fresh] = _open(socks, fresh)
        return session


def _proxy(url: str) -> str:
    found = proxy_for(url) or ""
    if found and loopback(urlsplit(url).hostname or ""):
        from hermes.llm.endpoints.local_servers import usual

        return "" if usual(url) else found
    return found


class Exchange:
    """A running answer. `read` gives what has arrived, b"" at the end; `close` before the end
    closes the socket at once, so that the provider stops generating."""

    __slots__ = ("_content", "_response", "content_type", "headers", "host", "status")

    def __init__(self, response: aiohttp.ClientResponse, host: str) -> None:
        self._response = response
        self._content = response.content
        self.host = host
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.content_type = response.content_type

    async def read(self) -> bytes:
        try:
            return await self._content.readany()
        except _errors() as error:
            raise ProviderError(broken(error, self.host)) from None

    async def all(self, limit: int) -> bytes:
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


# -- aiohttp, as late and as cheap as possible -----------------------------------------------------


def load() -> Any:
    """The module aiohttp, imported on first use."""
    import sys

    found = sys.modules.get("aiohttp")
    if found is not None:
        return found
    with _certificates_later():
        import aiohttp
    return aiohttp


@contextmanager
def _certificates_later() -> Iterator[None]:
    """aiohttp makes two TLS contexts when it is imported and reads the CA files into both: 45 ms,
    more than half of its import, for nothing when the endpoint is plain http. Contexts that ask
    for the default certificates meanwhile get them when they are first used; they are ordinary
    contexts from then on, so nobody else who uses aiohttp can tell the difference."""
    import ssl

    class Later(ssl.SSLContext):
        def _now(self) -> ssl.SSLContext:
            self.set_default_verify_paths()
            self.__class__ = ssl.SSLContext  # type: ignore[assignment]
            return self

        def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
            return self._now().wrap_bio(*args, **kwargs)

        def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
            return self._now().wrap_socket(*args, **kwargs)

        def get_ca_certs(self, *args: Any, **kwargs: Any) -> Any:
            return self._now().get_ca_certs(*args, **kwargs)

        def cert_store_stats(self) -> dict[str, int]:
            return self._now().cert_store_stats()

    def later(context: ssl.SSLContext) -> None:
        context.__class__ = Later

    # A method of the C base class: setting it here shadows that one, deleting it restores it.
    ssl.SSLContext.set_default_verify_paths = later  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        del ssl.SSLContext.set_default_verify_paths


def _open(socks: str, fresh: bool) -> aiohttp.ClientSession:
    import aiohttp

    connector: aiohttp.BaseConnector
    if socks:
        from importlib import import_module

        of = import_module("aiohttp_socks").ProxyConnector
        connector = of.from_url(socks, limit=0, force_close=fresh)
    else:
        connector = aiohttp.TCPConnector(
            limit=0,
            use_dns_cache=False,  # a host that moved must be found again by the next attempt
            force_close=fresh,
            keepalive_timeout=None if fresh else KEEP_IDLE,
            socket_factory=_socket,
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


def _socket(address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(address[0], address[1], address[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _large_body(body: bytes) -> Any:
    """aiohttp warns of raw bytes above 1 MB because writing them takes a moment; reading them in
    a thread instead, as it proposes, takes longer."""
    import aiohttp

    class Body(aiohttp.BytesPayload):
        def __init__(self, value: bytes) -> None:
            aiohttp.Payload.__init__(self, value, content_type="application/json")
            self._size = len(value)

    return Body(body)


def _errors() -> tuple[type[Exception], ...]:
    import aiohttp

    return (aiohttp.ClientError, OSError, EOFError)


def loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


# -- what went wrong -------------------------------------------------------------------------------


def unreachable(error: Exception, host: str) -> Failure:
    """No answer came: the connection was not made, or broke before the headers."""
    import ssl

    import aiohttp

    if (tls := _certificate(error)) is not None:
        return Failure(Kind.TLS, f"cannot trust {host}: {tls}")
    match error:
        case aiohttp.ClientHttpProxyError():
            return Failure(Kind.NETWORK, f"cannot reach {host}: the proxy refused ({error.status})")
        case aiohttp.ClientProxyConnectionError():
            reason = f"no connection to the proxy {error.host}:{error.port}"
        case aiohttp.ClientConnectorDNSError():
            reason = "its name cannot be resolved"
        case aiohttp.ClientConnectorError():
            reason = _plain(error.os_error)
        case aiohttp.ServerDisconnectedError():
            reason = "it closed the connection without an answer"
        case aiohttp.ClientResponseError():
            reason = "its answer is not HTTP"
        case aiohttp.InvalidURL() | ValueError():
            return Failure(Kind.NOT_API, f"{host or 'the base URL'} is not a valid address")
        case ssl.SSLError() | OSError():
            reason = _plain(error)
        case _:
            reason = type(error).__name__
    return Failure(Kind.NETWORK, f"cannot reach {host}: {reason}")


def broken(error: Exception, host: str) -> Failure:
    """The answer had begun."""
    reason = f" ({_plain(error)})" if isinstance(error, OSError) and error.errno else ""
    return Failure(Kind.NETWORK, f"the connection to {host} broke off mid-answer{reason}")


def _certificate(error: BaseException | None) -> str | None:
    """Why the certificate or the handshake was refused; None when that was not the matter."""
    import ssl

    seen = 0
    while error is not None and seen < 8:
        # aiohttp's own classes are ssl errors by inheritance and say nothing; what is inside does.
        inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
        inner = inner or error.__cause__ or error.__context__
        if isinstance(error, ssl.SSLCertVerificationError) and inner is None:
            return error.verify_message or "its certificate is not valid"
        if isinstance(error, ssl.SSLError) and inner is None:
            reason = str(error.reason or "the TLS handshake failed")
            return None if "EOF" in reason else reason.replace("_", " ").lower()
        error = inner
        seen += 1
    return None


def _plain(error: BaseException) -> str:
    """The reason in words; the number knows it better than the texts libraries put around it."""
    import os

    code = getattr(error, "errno", None)
    if isinstance(code, int) and code > 0 and not isinstance(error, socket.gaierror):
        return os.strerror(code).lower()
    return (str(error) or type(error).__name__).lower()

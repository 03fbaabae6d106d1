"""The one door through which everything that fetches goes out."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.config.env import find_proxy
from hermes.net.decompress import ACCEPTED_ENCODINGS, Decompressor
from hermes.net.errors import EgressError
from hermes.net.ip_ranges import IPAddress, is_reachable
from hermes.net.ssrf import CheckedRoute, Resolve, SsrfGuard, describe_os_error
from hermes.net.url import ParsedUrl, parse_url, resolve_redirect
from hermes.version import VERSION

if TYPE_CHECKING:
    import aiohttp

__all__ = ["EgressError", "FetchedPage", "WebFetcher"]

MAX_BYTES = 10 * 1024 * 1024
TIMEOUT = 30.0
DEFAULT_REDIRECTS = 3
MAX_REDIRECTS = 5
USER_AGENT = f"Mozilla/5.0 (compatible; Hermes/{VERSION})"
_METHODS = ("GET", "HEAD", "POST")
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_SAFE_HEADERS = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that follow a redirect to another origin: nothing that could be a credential."""


class FetchedPage(Struct, frozen=True):
    """An answer, whole and decompressed."""

    status: int
    url: str
    """Where it finally came from."""
    headers: Mapping[str, str]
    body: bytes
    content_type: str
    """Lower case, without parameters; empty when the server did not say."""
    charset: str = ""


class _FetchRequest(Struct, frozen=True):
    method: str
    headers: dict[str, str]
    body: bytes
    max_bytes: int
    accept: tuple[str, ...]


class WebFetcher:
    """Fetches over http and https from the public internet, and from hosts an operator allows.

    Every hop is parsed, resolved once, checked and pinned. No cookie is kept and no credential
    follows a redirect to another origin. The hooks replace parts of the world in tests.
    """

    def __init__(
        self,
        *,
        allow: Collection[str] = (),
        resolve: Resolve | None = None,
        public: Callable[[IPAddress], bool] = is_reachable,
        proxy: Callable[[str], str | None] = find_proxy,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.guard = SsrfGuard(allow, resolve=resolve, public=public, proxy=proxy)
        self._tls = tls
        self.max_redirects = DEFAULT_REDIRECTS

    async def check_url(self, url: str) -> CheckedRoute:
        """The guard alone: the route a fetch of this address would take, or EgressError."""
        return await self.guard.check_url(parse_url(url))

    @asynccontextmanager
    async def fetch(  # noqa: PLR0913 - one keyword per property of a request
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        max_bytes: int = MAX_BYTES,
        timeout: float = TIMEOUT,
        accept: Collection[str] = (),
    ) -> AsyncIterator[FetchedPage]:
        """`accept` lists content types (`text/` means the family, `+json` all in that notation,
        empty a missing one); without it any type is read. It applies to successful answers."""
        if method not in _METHODS:
            raise EgressError(f"The method {method} is not used for fetching.")
        ask = _FetchRequest(method, dict(headers or {}), body, max_bytes, tuple(accept))
        location = parse_url(url)
        try:
            async with asyncio.timeout(timeout):
                page = await self._follow_redirects(location, ask)
        except TimeoutError:
            raise EgressError(f"{location.host} took longer than {timeout:g} s.") from None
        yield page

    async def _follow_redirects(self, location: ParsedUrl, ask: _FetchRequest) -> FetchedPage:
        for _ in range(min(self.max_redirects, MAX_REDIRECTS) + 1):
            page = await self._fetch_once(location, ask)
            target = page.headers.get("Location", "") if page.status in _REDIRECT_STATUSES else ""
            if not target:
                return page
            following = resolve_redirect(location, target)
            ask = _redirect_request(ask, page.status, location, following)
            location = following
        raise EgressError(f"{location.host} redirects too often.")

    async def _fetch_once(self, location: ParsedUrl, ask: _FetchRequest) -> FetchedPage:
        route = await self.guard.check_url(location)
        import aiohttp
        from yarl import URL

        from hermes.net.connector import PinnedConnector

        headers = {"User-Agent": USER_AGENT, "Accept": "*/*", **ask.headers}
        headers["Accept-Encoding"] = ACCEPTED_ENCODINGS
        try:
            async with (
                aiohttp.ClientSession(
                    connector=PinnedConnector(route, self._tls),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    timeout=aiohttp.ClientTimeout(total=None),
                    auto_decompress=False,
                    trust_env=False,
                ) as session,
                session.request(
                    ask.method,
                    URL(location.url, encoded=True),
                    data=ask.body or None,
                    headers=headers,
                    allow_redirects=False,
                ) as response,
            ):
                return await _read_page(response, location, ask)
        except (aiohttp.ClientError, OSError, EOFError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise EgressError(
                f"{location.host} gave no valid answer ({_describe_error(error)})."
            ) from None


def _describe_error(error: BaseException) -> str:
    return (
        describe_os_error(error)
        if isinstance(error, OSError) and error.errno
        else type(error).__name__
    )


def _redirect_request(
    ask: _FetchRequest, status: int, old: ParsedUrl, new: ParsedUrl
) -> _FetchRequest:
    """The request after a redirect."""
    keeps = status in (307, 308) or ask.method in ("GET", "HEAD")
    method, body = (ask.method, ask.body) if keeps else ("GET", b"")
    if old.origin == new.origin:
        headers = ask.headers
    else:
        if body or method == "POST":
            raise EgressError(f"{old.host} wants the data sent to {new.host}; it is not passed on.")
        headers = {k: v for k, v in ask.headers.items() if k.lower() in _SAFE_HEADERS}
        if old.scheme == "https" and new.scheme == "http" and headers != ask.headers:
            raise EgressError(f"{old.host} redirects to plain http; that is not followed here.")
    if method != ask.method:
        headers = {k: v for k, v in headers.items() if not k.lower().startswith("content-")}
    return _FetchRequest(method, headers, body, ask.max_bytes, ask.accept)


async def _read_page(
    response: aiohttp.ClientResponse, location: ParsedUrl, ask: _FetchRequest
) -> FetchedPage:
    headers = response.headers
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    body = b""
    if response.status not in _REDIRECT_STATUSES and ask.method != "HEAD":
        if 200 <= response.status < 300 and not _is_accepted(kind, ask.accept):
            raise EgressError(
                f"{location.host} answers with {kind or 'no type'}, which is not read here."
            )
        body = await _read_body(response, location, ask.max_bytes)
    return FetchedPage(response.status, location.url, headers, body, kind, response.charset or "")


def _is_accepted(kind: str, accept: tuple[str, ...]) -> bool:
    if not accept:
        return True
    return any(
        kind == a or (a.endswith("/") and kind.startswith(a)) or (a[:1] == "+" and kind.endswith(a))
        for a in accept
    )


async def _read_body(response: aiohttp.ClientResponse, location: ParsedUrl, limit: int) -> bytes:
    """All of it, or EgressError as soon as it is too much, packed or unpacked."""
    packed = unpacked = 0
    length = response.content_length
    pieces: list[bytes] = []
    inflate = Decompressor(response.headers.get("Content-Encoding", ""))
    while length is None or length <= limit:
        data = await response.content.readany()
        if not data:
            inflate.finish()
            return b"".join(pieces)
        packed += len(data)
        for piece in inflate.feed(data):
            unpacked += len(piece)
            if unpacked > limit:
                break
            pieces.append(piece)
        if packed > limit or unpacked > limit:
            break
    raise EgressError(f"The answer of {location.host} is larger than {limit} bytes.")

"""Fetches web pages; everything that fetches goes through here."""

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

MAX_BYTES = 10 * 1024 * 1024
TIMEOUT = 30.0
DEFAULT_REDIRECTS = 3
MAX_REDIRECTS = 5
USER_AGENT = f"Mozilla/5.0 (compatible; Hermes/{VERSION})"
_METHODS = ("GET", "HEAD", "POST")
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_SAFE_HEADERS = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that follow a redirect to another origin; none of them can be a credential."""


class FetchedPage(Struct, frozen=True):
    """A complete, decompressed response."""

    status: int
    url: str
    """Where it came from, after redirects."""
    headers: Mapping[str, str]
    body: bytes
    content_type: str
    """Lower case, without parameters; empty when the server sent none."""
    charset: str = ""


class _FetchRequest(Struct, frozen=True):
    method: str
    headers: dict[str, str]
    body: bytes
    max_bytes: int
    accept: tuple[str, ...]


class WebFetcher:
    """Fetches over http and https from the public internet and from hosts the operator allows.

    Every hop is parsed, resolved once, checked and pinned. Cookies are not kept, and no credential
    follows a redirect to another origin. Tests replace parts of the world with the parameters.
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
        """Check without fetching: the route a fetch of this URL would take, or EgressError."""
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
        """`accept` limits the content types of successful responses: `text/` stands for the
        family, `+json` for all with that suffix, an empty text for a missing type."""
        if method not in _METHODS:
            raise EgressError(f"The method {method} cannot be used for fetching.")
        request = _FetchRequest(method, dict(headers or {}), body, max_bytes, tuple(accept))
        parsed = parse_url(url)
        try:
            async with asyncio.timeout(timeout):
                page = await self._follow_redirects(parsed, request)
        except TimeoutError:
            raise EgressError(f"{parsed.host} took longer than {timeout:g} s.") from None
        yield page

    async def _follow_redirects(self, url: ParsedUrl, request: _FetchRequest) -> FetchedPage:
        for _ in range(min(self.max_redirects, MAX_REDIRECTS) + 1):
            page = await self._fetch_once(url, request)
            target = page.headers.get("Location", "") if page.status in _REDIRECT_STATUSES else ""
            if not target:
                return page
            next_url = resolve_redirect(url, target)
            request = _redirect_request(request, page.status, url, next_url)
            url = next_url
        raise EgressError(f"{url.host} redirects too often.")

    async def _fetch_once(self, url: ParsedUrl, request: _FetchRequest) -> FetchedPage:
        route = await self.guard.check_url(url)
        import aiohttp
        from yarl import URL

        from hermes.net.connector import PinnedConnector

        headers = {"User-Agent": USER_AGENT, "Accept": "*/*", **request.headers}
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
                    request.method,
                    URL(url.text, encoded=True),
                    data=request.body or None,
                    headers=headers,
                    allow_redirects=False,
                ) as response,
            ):
                return await _read_page(response, url, request)
        except (aiohttp.ClientError, OSError, EOFError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            why = type(error).__name__
            if isinstance(error, OSError) and error.errno:
                why = describe_os_error(error)
            raise EgressError(f"{url.host} gave no valid response ({why}).") from None


def _redirect_request(
    request: _FetchRequest, status: int, old: ParsedUrl, new: ParsedUrl
) -> _FetchRequest:
    """The request to send after a redirect."""
    keeps_method = status in (307, 308) or request.method in ("GET", "HEAD")
    method, body = (request.method, request.body) if keeps_method else ("GET", b"")
    if old.origin == new.origin:
        headers = request.headers
    else:
        if body or method == "POST":
            raise EgressError(f"{old.host} wants the data sent to {new.host}; it is not passed on.")
        headers = {k: v for k, v in request.headers.items() if k.lower() in _SAFE_HEADERS}
        if old.scheme == "https" and new.scheme == "http" and headers != request.headers:
            raise EgressError(f"{old.host} redirects to plain http; that is not followed here.")
    if method != request.method:
        headers = {k: v for k, v in headers.items() if not k.lower().startswith("content-")}
    return _FetchRequest(method, headers, body, request.max_bytes, request.accept)


async def _read_page(
    response: "aiohttp.ClientResponse", url: ParsedUrl, request: _FetchRequest
) -> FetchedPage:
    headers = response.headers
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    body = b""
    if response.status not in _REDIRECT_STATUSES and request.method != "HEAD":
        if 200 <= response.status < 300 and not _accepts_type(kind, request.accept):
            sent = kind or "no content type"
            raise EgressError(f"{url.host} sent {sent}, which cannot be read here.")
        body = await _read_body(response, url, request.max_bytes)
    return FetchedPage(response.status, url.text, headers, body, kind, response.charset or "")


def _accepts_type(kind: str, accept: tuple[str, ...]) -> bool:
    return not accept or any(
        kind == a or (a.endswith("/") and kind.startswith(a)) or (a[:1] == "+" and kind.endswith(a))
        for a in accept
    )


async def _read_body(response: "aiohttp.ClientResponse", url: ParsedUrl, limit: int) -> bytes:
    """Raises EgressError as soon as it is too large, compressed or not."""
    received = decompressed = 0
    length = response.content_length
    chunks: list[bytes] = []
    decompressor = Decompressor(response.headers.get("Content-Encoding", ""))
    while length is None or length <= limit:
        data = await response.content.readany()
        if not data:
            decompressor.finish()
            return b"".join(chunks)
        received += len(data)
        for chunk in decompressor.feed(data):
            decompressed += len(chunk)
            if decompressed > limit:
                break
            chunks.append(chunk)
        if received > limit or decompressed > limit:
            break
    raise EgressError(f"The response of {url.host} is larger than {limit} bytes.")

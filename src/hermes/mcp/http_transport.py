"""Connects to servers over HTTP: to the configured host, and to nothing else that is internal."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from hermes.config.env import find_proxy
from hermes.mcp.failures import LoginNeeded
from hermes.mcp.server_config import ServerConfig
from hermes.mcp.stdio_transport import MAX_MESSAGE
from hermes.net.errors import EgressError
from hermes.net.ssrf import SsrfGuard
from hermes.net.url import parse_url

_READ_SECONDS = 300.0
_UNAUTHORIZED = 401
_BAD_REQUEST = 400
_NOT_FOUND = 404
_SESSION = "mcp-session-id"


class _GuardedTransport(httpx2.AsyncHTTPTransport):
    """Refuses hosts inside the own network, other than the configured one, and large answers."""

    def __init__(self, config: ServerConfig, *, has_auth: bool) -> None:
        self._proxy = find_proxy(config.settings.url)
        super().__init__(proxy=self._proxy)
        self._name = config.name
        self._host = httpx2.URL(config.settings.url).host
        self._has_auth = has_auth

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            url = parse_url(str(request.url))
            allowed = (f"{url.host}:{url.port}",) if request.url.host == self._host else ()
            route = await SsrfGuard(allowed).check_url(url)
        except EgressError as error:
            raise httpx2.ConnectError(str(error)) from None
        is_foreign = request.url.host != self._host and not self._proxy
        response = await self._send_request(request, route.addresses if is_foreign else ())
        if response.status_code == _UNAUTHORIZED and not self._has_auth:
            await response.aclose()
            raise LoginNeeded(self._name)
        if "text/event-stream" not in response.headers.get("content-type", ""):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedStream(response.stream)
            if await _is_session_unknown(request, response):
                await response.aclose()
                return httpx2.Response(_NOT_FOUND, request=request)
        return response

    async def _send_request(
        self, request: httpx2.Request, addresses: Sequence[str]
    ) -> httpx2.Response:
        """Send a request to the first of these addresses that can be reached: they were checked,
        and the name may have others by now. Without any, to wherever the name leads."""
        failure: Exception | None = None
        for address in addresses:
            pinned = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": request.url.host},
            )
            try:
                return await super().handle_async_request(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        if failure is not None:
            raise failure
        return await super().handle_async_request(request)


async def _is_session_unknown(request: httpx2.Request, response: httpx2.Response) -> bool:
    """Whether the server refused a request because it does not know the session, as after its
    restart. The protocol says 404; many servers say 400, in words of their own."""
    if _SESSION not in request.headers:
        return False
    if response.status_code == _BAD_REQUEST:
        return b"session" in (await response.aread()).lower()
    return response.status_code == _NOT_FOUND


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_MESSAGE:
                raise httpx2.ReadError("The answer is larger than 10 MB.")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def make_http_client(config: ServerConfig, auth: httpx2.Auth | None) -> httpx2.AsyncClient:
    """A client that speaks to the server, and through `auth` to whom it names for logins."""
    settings = config.settings
    return httpx2.AsyncClient(
        transport=_GuardedTransport(config, has_auth=auth is not None),
        headers=settings.headers,
        timeout=httpx2.Timeout(settings.connect_timeout, read=_READ_SECONDS),
        auth=auth,
        trust_env=False,
    )


@asynccontextmanager
async def open_http_streams(config: ServerConfig, auth: httpx2.Auth | None) -> AsyncIterator[Any]:
    """The streams of a connection to the address of the server."""
    url = config.settings.url
    if config.settings.transport == "sse":

        def make_client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return make_http_client(config, auth)

        async with sse_client(url, httpx_client_factory=make_client, auth=auth) as streams:
            yield streams
        return
    async with (
        make_http_client(config, auth) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        yield streams

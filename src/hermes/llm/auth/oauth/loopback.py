"""Login in the browser, which is redirected back to this machine (RFC 8252, PKCE)."""

import asyncio
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from msgspec import Struct

from hermes.core.errors import ConfigError, Failure, Kind, ProviderError
from hermes.llm.auth.oauth.token_http import (
    build_refusal,
    extract_token,
    post_fields,
    require_https,
)
from hermes.llm.auth.oauth.tokens import Token
from hermes.llm.http.transport import Transport
from hermes.llm.provider_spec import OAuthSpec

SECONDS = 600.0
"""How long to wait for the browser."""
_LONGEST_LINE = 16 * 1024
_PAGE = (
    "<!doctype html><meta charset=utf-8><title>Hermes</title>"
    "<body style='font:1.2em system-ui;margin:4em'><h1>{title}</h1><p>{text}"
)


class CallbackResult(Struct, frozen=True):
    """What the browser brought back in the address."""

    code: str = ""
    state: str = ""
    error: str = ""
    iss: str = ""
    """Who issued the code, where servers say so (RFC 9207)."""


class CallbackServer:
    """Accepts the one request that carries the right state; all others are rejected."""

    def __init__(self, path: str, state: str) -> None:
        self._path = path
        self._state = state
        self.result: asyncio.Future[CallbackResult] = asyncio.get_running_loop().create_future()

    async def serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(10):
                line = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                status, title, text = self._handle_request(line.decode("latin-1").split(" "))
                page = _PAGE.format(title=title, text=text).encode()
                head = (
                    f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
                    f"Content-Length: {len(page)}\r\nCache-Control: no-store\r\n"
                    "Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + page)
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def accept_result(self, result: CallbackResult) -> bool:
        """Take the result if it belongs to this login; False when it does not."""
        if not compare_digest(result.state.encode(), self._state.encode()):
            return False
        if not self.result.done():
            self.result.set_result(result)
        return True

    def _handle_request(self, words: list[str]) -> tuple[str, str, str]:
        parts = urlsplit(words[1]) if len(words) == 3 else None
        if parts is None or words[0] != "GET" or parts.path != self._path:
            return "404 Not Found", "Nothing here", "This address is only used for a login."
        result = parse_callback(parts.query)
        if self.result.done() or not self.accept_result(result):
            text = "This does not belong to the login that was started. Nothing was changed."
            return "400 Bad Request", "Not accepted", text
        if result.error or not result.code:
            text = "The login was refused or failed. You can close this page."
            return "200 OK", "Not logged in", text
        return "200 OK", "Logged in", "Hermes has what it needs. You can close this page."


def parse_callback(text: str) -> CallbackResult:
    """Read a query, the address a browser was sent to, or `code#state` as some pages show it."""
    text = text.strip()
    if "://" in text:
        text = urlsplit(text).query
    elif "=" not in text and "#" in text:
        code, _, state = text.partition("#")
        return CallbackResult(code, state)
    fields = parse_qs(text)
    names = CallbackResult.__struct_fields__
    return CallbackResult(*(fields.get(name, [""])[0] for name in names))


async def log_in(
    spec: OAuthSpec,
    transport: Transport,
    show: Callable[[str], None],
    paste: Callable[[], Awaitable[str]] | None = None,
) -> Token:
    """`show` gets the address to open in the browser. `paste` returns the address the browser was
    sent to, for a browser on another machine."""
    require_https(spec.authorize_url)
    verifier, state = secrets.token_urlsafe(64), secrets.token_urlsafe(32)
    server = CallbackServer(spec.redirect_path, state)
    async with AsyncExitStack() as stack:
        port = await _open_server(spec, server, stack)
        redirect = f"http://{spec.redirect_host}:{port}{spec.redirect_path}"
        show(_build_login_url(spec, redirect, verifier, state))
        try:
            async with asyncio.timeout(SECONDS):
                result = await wait_for_result(server, paste)
        except TimeoutError:
            minutes = f"{SECONDS / 60:.0f} minutes"
            text = f"the browser did not come back within {minutes}; nothing was changed"
            raise ProviderError(Failure(Kind.AUTH, text)) from None
    if result.error or not result.code:
        word = result.error if result.error.isidentifier() else "no code came back"
        text = f"the login was not completed ({word}); nothing was changed"
        raise ProviderError(Failure(Kind.AUTH, text))
    fields = {
        "grant_type": "authorization_code",
        "code": result.code,
        "redirect_uri": redirect,
        "client_id": spec.client_id,
        "code_verifier": verifier,
        **({"state": state} if spec.state_in_body else {}),
    }
    response = await post_fields(transport, spec.token_url, fields, json=spec.body == "json")
    token = extract_token(response, spec)
    if token is None:
        raise build_refusal(response, "the login failed", (result.code, verifier))
    return token


def _build_login_url(spec: OAuthSpec, redirect: str, verifier: str, state: str) -> str:
    challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    fields = {
        "response_type": "code",
        "client_id": spec.client_id,
        "redirect_uri": redirect,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "state": state,
        **({"scope": spec.scopes} if spec.scopes else {}),
        **spec.parameters,
    }
    return f"{spec.authorize_url}{'&' if '?' in spec.authorize_url else '?'}{urlencode(fields)}"


async def _open_server(spec: OAuthSpec, callback: CallbackServer, stack: AsyncExitStack) -> int:
    """Listen on this machine only; localhost may be IPv4 or IPv6 for the browser."""
    listen = partial(asyncio.start_server, callback.serve_request, limit=_LONGEST_LINE)
    for port in spec.redirect_ports or (0,):
        try:
            listener = await listen("127.0.0.1", port)
        except OSError:
            continue
        await stack.enter_async_context(listener)
        taken: int = listener.sockets[0].getsockname()[1]
        if spec.redirect_host == "localhost":
            with suppress(OSError):
                await stack.enter_async_context(await listen("::1", taken))
        return taken
    ports = ", ".join(map(str, spec.redirect_ports))
    raise ConfigError(
        f"The browser must be sent back to port {ports} of this machine, but another program uses "
        "it. Close that program and try again."
    )


async def wait_for_result(
    server: CallbackServer, paste: Callable[[], Awaitable[str]] | None
) -> CallbackResult:
    """What the browser brings back to this machine, or what the user pastes."""
    if paste is None:
        return await server.result
    while True:
        pasting = asyncio.ensure_future(paste())
        first: set[asyncio.Future[Any]] = {server.result, pasting}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if server.result.done():
            pasting.cancel()
            await asyncio.wait({pasting})
            return server.result.result()
        if not (text := pasting.result()):  # the end of input
            return await server.result
        server.accept_result(parse_callback(text))

"""Requests to authorisation servers: forms out, JSON in, failures without secrets."""

import asyncio
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from hermes.core.errors import ConfigError, Failure, Kind, ProviderError
from hermes.core.redaction.redactor import Redactor
from hermes.llm.auth.oauth.tokens import Token, decode_claims, read_claim
from hermes.llm.hosts import is_loopback
from hermes.llm.http.transport import Transport
from hermes.llm.provider_spec import OAuthSpec
from hermes.version import VERSION

SECONDS = 30.0
_LARGEST_RESPONSE = 1 << 20


class TokenResponse(Struct, frozen=True):
    """The JSON a server answered with."""

    status: int
    body: dict[str, Any]
    host: str

    @property
    def error_code(self) -> str:
        """The error code; empty: none. Some servers send one with status 200."""
        code = self.body.get("error")
        if isinstance(code, dict):  # not what the standard says, but some do it
            code = code.get("code") or code.get("type")
        return code if isinstance(code, str) else ""

    def get_text(self, name: str) -> str:
        value = self.body.get(name)
        return value if isinstance(value, str) else ""

    def get_number(self, name: str) -> float:
        value = self.body.get(name)
        return float(value) if isinstance(value, (int, float)) and value > 0 else 0.0


async def post_fields(
    transport: Transport, url: str, fields: Mapping[str, str], *, json: bool = False
) -> TokenResponse:
    if json:
        body, kind = msgspec.json.encode(fields), "application/json"
    else:
        body, kind = urlencode(fields).encode(), "application/x-www-form-urlencoded"
    return await _send_request(transport, "POST", url, body, {"Content-Type": kind})


async def _send_request(
    transport: Transport, method: str, url: str, body: bytes, headers: Mapping[str, str]
) -> TokenResponse:
    require_https(url)
    host = urlsplit(url).netloc
    head = {"Accept": "application/json", "User-Agent": f"hermes/{VERSION}", **headers}
    try:
        async with asyncio.timeout(SECONDS):
            exchange = await transport.send(method, url, headers=head, body=body)
            try:
                raw = await exchange.read_all(_LARGEST_RESPONSE)
            finally:
                exchange.close()
    except TimeoutError:
        text = f"{host} did not answer within {SECONDS:.0f} s"
        raise ProviderError(Failure(Kind.NETWORK, text)) from None
    decoded: Any = None
    with suppress(ValueError):
        decoded = msgspec.json.decode(raw)
    return TokenResponse(exchange.status, decoded if isinstance(decoded, dict) else {}, host)


def require_https(url: str) -> None:
    """Raise ConfigError for an address where a token would travel unencrypted."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (
        parts.scheme == "http" and is_loopback(parts.hostname or "")
    ):
        raise ConfigError(f"{url!r} cannot be used to log in: it must begin with https://.")


def build_refusal(
    response: TokenResponse, what: str, secrets: Collection[str] = ()
) -> ProviderError:
    """Why a server issued no token, in its own words with our secrets removed."""
    said = response.get_text("error_description") or response.error_code
    words = " ".join((said or f"status {response.status}").split())
    words = Redactor(secrets).redact(words)[:200]
    kind = Kind.SERVER if response.status >= 500 else Kind.AUTH
    if response.status == 429:
        kind = Kind.RATE_LIMITED
    return ProviderError(Failure(kind, f"{what}: {response.host} said: {words}", response.status))


def extract_token(
    response: TokenResponse, spec: OAuthSpec, before: Token | None = None
) -> Token | None:
    """The token in a response, completed from the one before it; None: there is none."""
    before = before or Token("")
    access = response.get_text("access_token")
    if response.status != 200 or response.error_code or not access:
        return None
    now = time.time()
    life = response.get_number("expires_in")
    end = now + life if life else decode_claims(access).get("exp")
    claim = spec.account_claim
    account = read_claim(response.get_text("id_token"), claim) or read_claim(access, claim)
    return Token(
        access,
        response.get_text("refresh_token") or before.refresh,
        float(end) if isinstance(end, (int, float)) else 0.0,
        now,
        account or before.account,
        spec.token_url,
        before.origin,
    )


async def exchange_token(transport: Transport, spec: OAuthSpec, login: Token) -> Token:
    """Exchange a login's token for the short-lived one that calls are made with. The login's token
    is kept to obtain the next one."""
    headers = {"Authorization": f"token {login.refresh}", **spec.headers}
    response = await _send_request(transport, "GET", spec.exchange_url, b"", headers)
    access = response.get_text("token")
    if response.status != 200 or not access:
        what = "the account has no access, or the login was revoked"
        raise build_refusal(response, what, (login.refresh,))
    expires, now = response.get_number("expires_at"), time.time()
    return Token(access, login.refresh, expires, now, login.account, spec.token_url, login.origin)

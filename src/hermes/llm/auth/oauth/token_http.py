"""Requests to authorisation servers: forms out, JSON in, failures as Failures without secrets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
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
    """What a server answered."""

    status: int
    body: dict[str, Any]
    host: str

    @property
    def error_code(self) -> str:
        """Its code; some answer 200 to what is an error."""
        code = self.body.get("error")
        if isinstance(code, dict):  # not as the standard has it, but some do
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


async def fetch_json(transport: Transport, url: str, headers: Mapping[str, str]) -> TokenResponse:
    return await _send_request(transport, "GET", url, b"", headers)


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
    try:
        decoded = msgspec.json.decode(raw)
    except ValueError:
        decoded = None
    return TokenResponse(exchange.status, decoded if isinstance(decoded, dict) else {}, host)


def require_https(url: str) -> None:
    """Tokens never travel in the clear."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (
        parts.scheme == "http" and is_loopback(parts.hostname or "")
    ):
        raise ConfigError(f"{url!r} is no address to log in at: it must begin with https://.")


def build_refusal(said: TokenResponse, what: str, secrets: Collection[str] = ()) -> ProviderError:
    """Why a server gave no token. Its words are kept, ours are not among them."""
    words = said.get_text("error_description") or said.error_code or f"status {said.status}"
    words = Redactor(secrets).clean(" ".join(words.split()))[:200]
    kind = Kind.SERVER if said.status >= 500 else Kind.AUTH
    if said.status == 429:
        kind = Kind.RATE_LIMITED
    return ProviderError(Failure(kind, f"{what}: {said.host} said: {words}", said.status))


def extract_token(said: TokenResponse, row: OAuthSpec, before: Token | None = None) -> Token | None:
    """The token in an answer; None: it has none. What it does not renew stays."""
    access = said.get_text("access_token")
    if said.status != 200 or said.error_code or not access:
        return None
    now = time.time()
    life = said.get_number("expires_in")
    claim = row.account_claim
    account = read_claim(said.get_text("id_token"), claim) or read_claim(access, claim)
    return Token(
        access,
        said.get_text("refresh_token") or (before.refresh if before is not None else ""),
        now + life if life else _read_expiry(access),
        now,
        account or (before.account if before is not None else ""),
        row.token_url,
        before.origin if before is not None else "",
    )


def _read_expiry(access: str) -> float:
    """As the token says when it is a JWT; 0: it does not say."""
    end = decode_claims(access).get("exp")
    return float(end) if isinstance(end, (int, float)) else 0.0


async def exchange_token(transport: Transport, row: OAuthSpec, login: Token) -> Token:
    """The short-lived token for a login whose own token calls are not made with. The login's is
    kept as what gets the next one."""
    headers = {"Authorization": f"token {login.refresh}", **row.headers}
    said = await fetch_json(transport, row.exchange_url, headers)
    access = said.get_text("token")
    if said.status != 200 or not access:
        what = "the account has no access, or the login was revoked"
        raise build_refusal(said, what, (login.refresh,))
    return Token(
        access,
        login.refresh,
        said.get_number("expires_at"),
        time.time(),
        login.account,
        row.token_url,
        login.origin,
    )

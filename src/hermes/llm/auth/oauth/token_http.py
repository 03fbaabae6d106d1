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
from hermes.llm.provider_spec import OAuth
from hermes.version import VERSION

SECONDS = 30.0
_MOST = 1 << 20


class Said(Struct, frozen=True):
    """What a server answered."""

    status: int
    body: dict[str, Any]
    host: str

    @property
    def error(self) -> str:
        """Its code; some answer 200 to what is an error."""
        code = self.body.get("error")
        if isinstance(code, dict):  # not as the standard has it, but some do
            code = code.get("code") or code.get("type")
        return code if isinstance(code, str) else ""

    def text(self, name: str) -> str:
        value = self.body.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> float:
        value = self.body.get(name)
        return float(value) if isinstance(value, (int, float)) and value > 0 else 0.0


async def post(
    transport: Transport, url: str, fields: Mapping[str, str], *, json: bool = False
) -> Said:
    if json:
        body, kind = msgspec.json.encode(fields), "application/json"
    else:
        body, kind = urlencode(fields).encode(), "application/x-www-form-urlencoded"
    return await _ask(transport, "POST", url, body, {"Content-Type": kind})


async def get(transport: Transport, url: str, headers: Mapping[str, str]) -> Said:
    return await _ask(transport, "GET", url, b"", headers)


async def _ask(
    transport: Transport, method: str, url: str, body: bytes, headers: Mapping[str, str]
) -> Said:
    guarded(url)
    host = urlsplit(url).netloc
    head = {"Accept": "application/json", "User-Agent": f"hermes/{VERSION}", **headers}
    try:
        async with asyncio.timeout(SECONDS):
            exchange = await transport.send(method, url, headers=head, body=body)
            try:
                raw = await exchange.read_all(_MOST)
            finally:
                exchange.close()
    except TimeoutError:
        text = f"{host} did not answer within {SECONDS:.0f} s"
        raise ProviderError(Failure(Kind.NETWORK, text)) from None
    try:
        decoded = msgspec.json.decode(raw)
    except ValueError:
        decoded = None
    return Said(exchange.status, decoded if isinstance(decoded, dict) else {}, host)


def guarded(url: str) -> None:
    """Tokens never travel in the clear."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (
        parts.scheme == "http" and is_loopback(parts.hostname or "")
    ):
        raise ConfigError(f"{url!r} is no address to log in at: it must begin with https://.")


def refused(said: Said, what: str, secrets: Collection[str] = ()) -> ProviderError:
    """Why a server gave no token. Its words are kept, ours are not among them."""
    words = said.text("error_description") or said.error or f"status {said.status}"
    words = Redactor(secrets).clean(" ".join(words.split()))[:200]
    kind = Kind.SERVER if said.status >= 500 else Kind.AUTH
    if said.status == 429:
        kind = Kind.RATE_LIMITED
    return ProviderError(Failure(kind, f"{what}: {said.host} said: {words}", said.status))


def token_of(said: Said, row: OAuth, before: Token | None = None) -> Token | None:
    """The token in an answer; None: it has none. What it does not renew stays."""
    access = said.text("access_token")
    if said.status != 200 or said.error or not access:
        return None
    now = time.time()
    life = said.number("expires_in")
    claim = row.account_claim
    account = read_claim(said.text("id_token"), claim) or read_claim(access, claim)
    return Token(
        access,
        said.text("refresh_token") or (before.refresh if before is not None else ""),
        now + life if life else _expiry(access),
        now,
        account or (before.account if before is not None else ""),
        row.token_url,
        before.origin if before is not None else "",
    )


def _expiry(access: str) -> float:
    """As the token says when it is a JWT; 0: it does not say."""
    end = decode_claims(access).get("exp")
    return float(end) if isinstance(end, (int, float)) else 0.0


async def exchanged(transport: Transport, row: OAuth, login: Token) -> Token:
    """The short-lived token for a login whose own token calls are not made with. The login's is
    kept as what gets the next one."""
    headers = {"Authorization": f"token {login.refresh}", **row.headers}
    said = await get(transport, row.exchange_url, headers)
    access = said.text("token")
    if said.status != 200 or not access:
        what = "the account has no access, or the login was revoked"
        raise refused(said, what, (login.refresh,))
    return Token(
        access,
        login.refresh,
        said.number("expires_at"),
        time.time(),
        login.account,
        row.token_url,
        login.origin,
    )

"""Logging in by a code that is typed in on another page (RFC 8628)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.llm.auth.oauth.token_http import (
    TokenResponse,
    build_refusal,
    extract_token,
    post_fields,
)
from hermes.llm.auth.oauth.tokens import Token
from hermes.llm.http.transport import Transport
from hermes.llm.provider_spec import OAuthSpec

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_INTERVAL = 5.0
_SLOW_DOWN = 5.0
_LIFETIME = 900.0
Sleep = Callable[[float], Awaitable[None]]


class DeviceCode(Struct, frozen=True):
    """What the user has to do."""

    code: str
    page: str
    complete: str
    """The page with the code filled in; empty: there is none."""
    minutes: int


async def log_in(
    row: OAuthSpec,
    transport: Transport,
    show: Callable[[DeviceCode], None],
    sleep: Sleep = asyncio.sleep,
) -> Token:
    """Waits until the user has typed in the code, or refused, or was too slow."""
    fields = {"client_id": row.client_id}
    if row.scopes:
        fields["scope"] = row.scopes
    said = await post_fields(transport, row.device_url, fields)
    code, device = said.get_text("user_code"), said.get_text("device_code")
    page = said.get_text("verification_uri") or said.get_text("verification_url")
    if said.status != 200 or not (code and device and page):
        raise build_refusal(said, "no code was given")
    life = said.get_number("expires_in") or _LIFETIME
    show(
        DeviceCode(code, page, said.get_text("verification_uri_complete"), max(1, int(life // 60)))
    )
    return await _poll_token(row, transport, sleep, (said, device, life))


async def _poll_token(
    row: OAuthSpec, transport: Transport, sleep: Sleep, begun: tuple[TokenResponse, str, float]
) -> Token:
    start, device, life = begun
    interval = start.get_number("interval") or _INTERVAL
    deadline = time.monotonic() + life
    fields = {"grant_type": GRANT, "device_code": device, "client_id": row.client_id}
    while time.monotonic() < deadline:
        await sleep(interval)
        try:
            said = await post_fields(transport, row.token_url, fields)
        except ProviderError as error:
            if error.failure.kind is not Kind.NETWORK:
                raise
            interval = min(2 * interval, 60.0)
            continue
        match said.error_code:
            case "authorization_pending":
                continue
            case "slow_down":
                interval = max(interval + _SLOW_DOWN, said.get_number("interval"))
            case "access_denied":
                raise ProviderError(Failure(Kind.AUTH, "the login was refused on that page"))
            case "expired_token":
                break
            case _:
                if (token := extract_token(said, row)) is not None:
                    return token
                if said.status < 500:
                    raise build_refusal(said, "the login failed", (device,))
    text = "the code ran out before it was typed in; nothing was changed, try again"
    raise ProviderError(Failure(Kind.AUTH, text))

"""Logging in by a code that is typed in on another page (RFC 8628)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.llm.auth.oauth.token_http import Said, post, refused, token_of
from hermes.llm.auth.oauth.tokens import Token
from hermes.llm.http.transport import Transport
from hermes.llm.provider_spec import OAuth

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_INTERVAL = 5.0
_SLOWER = 5.0
_LIFE = 900.0
Sleep = Callable[[float], Awaitable[None]]


class Shown(Struct, frozen=True):
    """What the user has to do."""

    code: str
    page: str
    complete: str
    """The page with the code filled in; empty: there is none."""
    minutes: int


async def log_in(
    row: OAuth,
    transport: Transport,
    show: Callable[[Shown], None],
    sleep: Sleep = asyncio.sleep,
) -> Token:
    """Waits until the user has typed in the code, or refused, or was too slow."""
    fields = {"client_id": row.client_id}
    if row.scopes:
        fields["scope"] = row.scopes
    said = await post(transport, row.device_url, fields)
    code, device = said.text("user_code"), said.text("device_code")
    page = said.text("verification_uri") or said.text("verification_url")
    if said.status != 200 or not (code and device and page):
        raise refused(said, "no code was given")
    life = said.number("expires_in") or _LIFE
    show(Shown(code, page, said.text("verification_uri_complete"), max(1, int(life // 60))))
    return await _poll(row, transport, sleep, (said, device, life))


async def _poll(
    row: OAuth, transport: Transport, sleep: Sleep, begun: tuple[Said, str, float]
) -> Token:
    start, device, life = begun
    interval = start.number("interval") or _INTERVAL
    deadline = time.monotonic() + life
    fields = {"grant_type": GRANT, "device_code": device, "client_id": row.client_id}
    while time.monotonic() < deadline:
        await sleep(interval)
        try:
            said = await post(transport, row.token_url, fields)
        except ProviderError as error:
            if error.failure.kind is not Kind.NETWORK:
                raise
            interval = min(2 * interval, 60.0)
            continue
        match said.error:
            case "authorization_pending":
                continue
            case "slow_down":
                interval = max(interval + _SLOWER, said.number("interval"))
            case "access_denied":
                raise ProviderError(Failure(Kind.AUTH, "the login was refused on that page"))
            case "expired_token":
                break
            case _:
                if (token := token_of(said, row)) is not None:
                    return token
                if said.status < 500:
                    raise refused(said, "the login failed", (device,))
    text = "the code ran out before it was typed in; nothing was changed, try again"
    raise ProviderError(Failure(Kind.AUTH, text))

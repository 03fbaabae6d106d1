"""Login with a code that the user enters on a web page (device flow, RFC 8628)."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.llm.auth.oauth.token_http import build_refusal, extract_token, post_fields
from hermes.llm.auth.oauth.tokens import Token
from hermes.llm.http.transport import Transport
from hermes.llm.provider_spec import OAuthSpec

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_INTERVAL = 5.0
_SLOW_DOWN = 5.0
_LIFETIME = 900.0
Sleep = Callable[[float], Awaitable[None]]


class DeviceCode(Struct, frozen=True):
    """What the user has to enter, and where."""

    code: str
    page: str
    complete: str
    """The page with the code already filled in; empty: not offered."""
    minutes: int


async def log_in(
    spec: OAuthSpec,
    transport: Transport,
    show: Callable[[DeviceCode], None],
    sleep: Sleep = asyncio.sleep,
) -> Token:
    """Wait until the user has entered the code; ProviderError when they refuse or are too slow."""
    fields = {"client_id": spec.client_id}
    if spec.scopes:
        fields["scope"] = spec.scopes
    response = await post_fields(transport, spec.device_url, fields)
    code, device = response.get_text("user_code"), response.get_text("device_code")
    page = response.get_text("verification_uri") or response.get_text("verification_url")
    if response.status != 200 or not (code and device and page):
        raise build_refusal(response, "no login code was issued")
    life = response.get_number("expires_in") or _LIFETIME
    complete = response.get_text("verification_uri_complete")
    show(DeviceCode(code, page, complete, max(1, int(life // 60))))
    interval = response.get_number("interval") or _INTERVAL
    deadline = time.monotonic() + life
    fields = {"grant_type": GRANT, "device_code": device, "client_id": spec.client_id}
    while time.monotonic() < deadline:
        await sleep(interval)
        try:
            response = await post_fields(transport, spec.token_url, fields)
        except ProviderError as error:
            if error.failure.kind is not Kind.NETWORK:
                raise
            interval = min(2 * interval, 60.0)
            continue
        match response.error_code:
            case "authorization_pending":
                continue
            case "slow_down":
                interval = max(interval + _SLOW_DOWN, response.get_number("interval"))
            case "access_denied":
                raise ProviderError(Failure(Kind.AUTH, "the login was denied on the web page"))
            case "expired_token":
                break
            case _:
                if (token := extract_token(response, spec)) is not None:
                    return token
                if response.status < 500:
                    raise build_refusal(response, "the login failed", (device,))
    text = "the code expired before it was entered; nothing was changed, try again"
    raise ProviderError(Failure(Kind.AUTH, text))

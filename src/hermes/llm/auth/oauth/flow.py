"""A login from its beginning to a token that calls can be made with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct, structs

from hermes.llm.auth.oauth import device, loopback
from hermes.llm.auth.oauth.token_http import exchanged
from hermes.llm.auth.oauth.tokens import Token
from hermes.llm.provider_spec import OAuth
from hermes.llm.transport import Transport


class Steps(Struct, frozen=True):
    """What the user is shown, and how they can answer."""

    code: Callable[[device.Shown], None]
    page: Callable[[str], None]
    paste: Callable[[], Awaitable[str]] | None = None


async def enter(row: OAuth, transport: Transport, steps: Steps) -> Token:
    """ProviderError says in one sentence why there is no token; then nothing has changed."""
    if row.flow == "device":
        token = await device.log_in(row, transport, steps.code)
    else:
        token = await loopback.log_in(row, transport, steps.page, steps.paste)
    return await completed(row, transport, token)


async def completed(row: OAuth, transport: Transport, token: Token) -> Token:
    """Where calls are made with another token than the login's."""
    if not row.exchange_url:
        return token
    return await exchanged(transport, row, structs.replace(token, refresh=token.access))

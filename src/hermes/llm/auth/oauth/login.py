"""A login: how it is made, and its token for each call, renewed by one process for all."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from hermes.config.private_files import open_lock, try_lock
from hermes.core.errors import ConfigError, Failure, Kind, ProviderError
from hermes.llm.auth.oauth import device, loopback, tokens
from hermes.llm.auth.oauth.token_http import (
    build_refusal,
    exchange_token,
    extract_token,
    post_fields,
)
from hermes.llm.auth.oauth.tokens import Token
from hermes.llm.http.transport import Transport
from hermes.llm.provider_spec import OAuthSpec

log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds to wait for another process that renews: longer than its request may take."""
GRACE = 0.8
"""Seconds an interruption waits for a renewal under way."""
_POLL_SECONDS = 0.03
_unfinished: set[asyncio.Future[Token]] = set()


class LoginPrompts(Struct, frozen=True):
    """What the user is shown, and how they can answer."""

    code: Callable[[device.DeviceCode], None]
    page: Callable[[str], None]
    paste: Callable[[], Awaitable[str]] | None = None


async def run_login(row: OAuthSpec, transport: Transport, steps: LoginPrompts) -> Token:
    """ProviderError says in one sentence why there is no token; then nothing has changed."""
    if row.flow == "device":
        token = await device.log_in(row, transport, steps.code)
    else:
        token = await loopback.log_in(row, transport, steps.page, steps.paste)
    return await exchange_login(row, transport, token)


async def exchange_login(row: OAuthSpec, transport: Transport, token: Token) -> Token:
    """Where calls are made with another token than the login's."""
    if not row.exchange_url:
        return token
    return await exchange_token(transport, row, structs.replace(token, refresh=token.access))


class Login:
    """The file is the truth: whoever holds its lock renews, the others take what is there then."""

    def __init__(
        self,
        file: Path,
        row: OAuthSpec,
        transport: Transport,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = file
        self._row = row
        self._transport = transport
        self._clock = clock
        self._refused = ""
        """What the server would not renew: it is not asked again."""

    @property
    def name(self) -> str:
        return self._file.stem

    async def get_token(self) -> Token:
        """Good for the next call. ProviderError says in one sentence why there is none."""
        token = self._read_token()
        if not token.is_due(self._clock()):
            return token
        try:
            return await self.renew_token(token.access)
        except ProviderError as error:
            if error.failure.kind is Kind.AUTH or token.is_expired(self._clock()):
                raise
            log.info("%s could not be renewed ahead of time: %s", self.name, error)
            return token

    async def renew_token(self, used: str) -> Token:
        """Another token than `used`, which is no good any more. An interruption waits: a token
        that was handed out is never lost."""
        return await _run_shielded(self._renew_under_lock(used))

    async def _renew_under_lock(self, used: str) -> Token:
        async with _hold_lock(self._file):
            token = self._read_token()
            if token.access != used and not token.is_due(self._clock()):
                return token  # somebody else was faster
            fresh = await self._request_token(token)
            try:
                await asyncio.to_thread(tokens.save_token, self._file, fresh)
            except OSError as error:
                # The old one is spent: say so, and use the new one as long as we live.
                log.error("the renewed login to %s could not be kept: %s", self.name, error)
            log.info("the login to %s was renewed", self.name)
            return fresh

    async def _request_token(self, token: Token) -> Token:
        row = self._row
        again = f"log in again with: hermes auth login {self.name}"
        if not token.refresh or token.refresh == self._refused:
            raise _auth_error(f"the login to {self.name} has run out; {again}")
        if token.server != row.token_url:
            raise _auth_error(f"the login to {self.name} was made at another server; {again}")
        try:
            if row.exchange_url:
                return await exchange_token(self._transport, row, token)
            fields = {
                "grant_type": "refresh_token",
                "refresh_token": token.refresh,
                "client_id": row.client_id,
            }
            said = await post_fields(
                self._transport, row.token_url, fields, json=row.body == "json"
            )
            fresh = extract_token(said, row, token)
            if fresh is None:
                what = f"the login to {self.name} was not renewed ({again})"
                raise build_refusal(said, what, (token.refresh, token.access))
        except ConfigError as error:
            raise _auth_error(str(error)) from None
        except ProviderError as error:
            if error.failure.kind is Kind.AUTH:
                self._refused = token.refresh
            raise
        return fresh

    def _read_token(self) -> Token:
        token = tokens.load_token(self._file)
        if token is None:
            text = f"you are not logged in to {self.name}: run hermes auth login {self.name}"
            raise _auth_error(text)
        return token


def _auth_error(text: str) -> ProviderError:
    return ProviderError(Failure(Kind.AUTH, text))


@asynccontextmanager
async def _hold_lock(file: Path) -> AsyncIterator[None]:
    """The lock beside a file. It ends with its process, however that ends."""
    try:
        handle = open_lock(file.with_name(f".{file.stem}.lock"))
    except OSError as error:
        raise _auth_error(f"{file.parent} cannot be used: {error.strerror}") from None
    try:
        deadline = time.monotonic() + PATIENCE
        while not try_lock(handle):
            if time.monotonic() > deadline:
                text = f"another process has been renewing the login to {file.stem} for a minute"
                raise ProviderError(Failure(Kind.NETWORK, text))
            await asyncio.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(handle)


async def _run_shielded(work: Coroutine[Any, Any, Token]) -> Token:
    """To the end, also when we are interrupted meanwhile; the interruption waits a moment for it,
    and what takes longer goes on as long as the process lives."""
    task = asyncio.ensure_future(work)
    _unfinished.add(task)
    task.add_done_callback(_forget_task)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=GRACE)
        raise


def _forget_task(task: asyncio.Future[Token]) -> None:
    _unfinished.discard(task)
    if not task.cancelled():
        task.exception()  # told to whoever still waits

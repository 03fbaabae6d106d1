"""A login: how it is obtained, and its token for each call, renewed by one process for all."""

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
from hermes.llm.auth.cooldown import LoginRow, SharedKeys
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
"""Seconds to wait for another process to renew: longer than its request may take."""
GRACE = 0.8
"""Seconds an interruption waits for a running renewal."""
_POLL_SECONDS = 0.03
_unfinished: set[asyncio.Future[Token]] = set()


class LoginPrompts(Struct, frozen=True):
    """Callbacks that show the user what to do, and read what they paste."""

    code: Callable[[device.DeviceCode], None]
    page: Callable[[str], None]
    paste: Callable[[], Awaitable[str]] | None = None


async def run_login(spec: OAuthSpec, transport: Transport, prompts: LoginPrompts) -> Token:
    """Log in with the given flow. ProviderError says why there is no token; nothing has changed."""
    if spec.flow == "device":
        token = await device.log_in(spec, transport, prompts.code)
    else:
        token = await loopback.log_in(spec, transport, prompts.page, prompts.paste)
    return await exchange_login(spec, transport, token)


async def exchange_login(spec: OAuthSpec, transport: Transport, token: Token) -> Token:
    """The token that calls are made with, where that is not the login's own."""
    if not spec.exchange_url:
        return token
    return await exchange_token(transport, spec, structs.replace(token, refresh=token.access))


class Login:
    """The file is authoritative: whoever holds its lock renews, the others read the result."""

    def __init__(
        self,
        file: Path,
        spec: OAuthSpec,
        transport: Transport,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = file
        self._spec = spec
        self._transport = transport
        self._clock = clock
        self._refused = ""
        """The refresh token that the server rejected: it is not sent again."""
        self.shared: SharedKeys | None = None
        """Other nodes that use the same login."""

    @property
    def name(self) -> str:
        return self._file.stem

    async def get_token(self) -> Token:
        """A token that is valid for the next call. ProviderError says why there is none."""
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
        """A token other than `used`, which is no longer valid. An interruption waits for it, so
        that a token the server has issued is never lost."""
        return await _run_shielded(self._renew_under_lock(used))

    async def _renew_under_lock(self, used: str) -> Token:
        async with _hold_lock(self._file):
            token = self._read_token()
            if token.access != used and not token.is_due(self._clock()):
                return token  # another process has renewed it
            if self.shared is None:
                fresh = await self._request_token(token)
            else:
                async with self.shared.hold_login(self.name) as row:
                    fresh = await self._renew_for_nodes(token, used, row)
            try:
                await asyncio.to_thread(tokens.save_token, self._file, fresh)
            except OSError as error:
                # The old one is spent: use the new one while this process lives.
                log.error("the renewed login to %s could not be saved: %s", self.name, error)
            log.info("the login to %s was renewed", self.name)
            return fresh

    async def _renew_for_nodes(self, token: Token, used: str, row: LoginRow | None) -> Token:
        """The token that another node has obtained, or a new one for all."""
        if row is None:
            return await self._request_token(token)
        newer = tokens.decode_token(row.body)
        if newer is not None and newer.server == token.server and newer.obtained > token.obtained:
            token = newer
            if token.access != used and not token.is_due(self._clock()):
                return token
        fresh = await self._request_token(token)
        await row.save(tokens.encode_token(fresh))
        return fresh

    async def _request_token(self, token: Token) -> Token:
        spec = self._spec
        again = f"log in again with: hermes auth login {self.name}"
        if not token.refresh or token.refresh == self._refused:
            raise _auth_error(f"the login to {self.name} has expired; {again}")
        if token.server != spec.token_url:
            raise _auth_error(f"the login to {self.name} was issued by another server; {again}")
        try:
            if spec.exchange_url:
                return await exchange_token(self._transport, spec, token)
            fields = {"grant_type": "refresh_token", "refresh_token": token.refresh}
            fields["client_id"] = spec.client_id
            json = spec.body == "json"
            response = await post_fields(self._transport, spec.token_url, fields, json=json)
            fresh = extract_token(response, spec, token)
            if fresh is None:
                what = f"the login to {self.name} was not renewed ({again})"
                raise build_refusal(response, what, (token.refresh, token.access))
        except ConfigError as error:
            raise _auth_error(str(error)) from None
        except ProviderError as error:
            if error.failure.kind is Kind.AUTH:
                self._refused = token.refresh
            raise
        return fresh

    def _read_token(self) -> Token:
        if (token := tokens.load_token(self._file)) is not None:
            return token
        text = f"you are not logged in to {self.name}: run hermes auth login {self.name}"
        raise _auth_error(text)


def _auth_error(text: str) -> ProviderError:
    return ProviderError(Failure(Kind.AUTH, text))


@asynccontextmanager
async def _hold_lock(file: Path) -> AsyncIterator[None]:
    """Hold the lock beside the file; it is released when the process ends, however that happens."""
    try:
        handle = open_lock(file.with_name(f".{file.stem}.lock"))
    except OSError as error:
        raise _auth_error(f"the folder {file.parent} cannot be used: {error.strerror}") from None
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
    """Run to the end even when interrupted: the interruption waits for a moment, and longer work
    continues in the background."""
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
        task.exception()  # already raised to whoever waited

"""Uses the credentials of an endpoint: picks one for each call, and reacts when it fails."""

import asyncio
import random
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import structs

from hermes.core.errors import ConfigError, Failure, Kind, ProviderError
from hermes.core.redaction.redactor import Redactor
from hermes.llm.auth import aws
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.auth.key_pool import Credential, KeyPool, clean_key
from hermes.llm.auth.logins import Logins
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.http.tape import TAPE, mark_job, note_choice, note_failure
from hermes.llm.http.transport import Transport
from hermes.version import VERSION

Sleep = Callable[[float], Awaitable[None]]


class CredentialUse:
    """Remembers which credential the last call of each task used, since a failure concerns that one
    even if other tasks have moved on."""

    def __init__(
        self, endpoint: ModelEndpoint, transport: Transport, cooldowns: Cooldowns, sleep: Sleep
    ) -> None:
        self._endpoint = endpoint
        self._cooldowns = cooldowns
        self._sleep = sleep
        self._pool = KeyPool(endpoint.base_url, endpoint.keys, cooldowns, endpoint.pool)
        self._logins = Logins(endpoint.login, transport, cooldowns)
        self._secrets = dict.fromkeys(p for k in endpoint.keys for p in (k.value, k.id, k.token))
        self._redactor = Redactor(self._secrets)
        self._used: weakref.WeakKeyDictionary[asyncio.Task[Any], Credential]
        self._used = weakref.WeakKeyDictionary()
        if endpoint.keys and endpoint.auth != "aws":
            transport.warn_plain_http(endpoint.base_url)

    @property
    def key_source(self) -> str:
        """Where the key came from, for messages; never the key."""
        found = self._last_used_key().source
        return found or ("the AWS credentials" if self._endpoint.auth == "aws" else "")

    @property
    def is_login(self) -> bool:
        """Whether calls use the token of a login instead of a key."""
        return bool(self._last_used_key().login)

    async def prepare_call(self) -> Credential:
        """The credential for this task's next call; waits while it is paused."""
        await self._pool.ask_nodes()
        key = self._pool.take_next_key()
        if (tape := TAPE.get()) is not None:
            tape.note_key(key.source, is_login=bool(key.login))
        try:
            key = await self._prepare_key(key)
        except ProviderError as error:
            note_failure(self.redact_failure(error.failure))
            raise
        while True:
            wait = self._cooldowns.pause_left(self._pool.pool_key(key), _current_task())
            if wait > 0:
                # Spread out: otherwise all waiting tasks would call in the same instant.
                await self._sleep(wait + random.uniform(0.0, min(1.0, wait / 4)))
            if not await self._wait_for_start(key):
                return key

    async def _wait_for_start(self, key: Credential) -> bool:
        """Whether there was a wait, in which the key may have been paused."""
        pace = self._endpoint.requests_per_minute
        if pace is None:
            return False
        pool_key, task = self._pool.pool_key(key), _current_task()
        wait = await self._cooldowns.reserve_start(pool_key, pace)
        if wait <= 0:
            return False
        await self._sleep(wait)
        await self._pool.ask_nodes()
        return self._cooldowns.pause_left(pool_key, task) > 0

    async def prepare_query(self) -> Credential:
        """The credential for a small request that is not a model call."""
        return await self._prepare_key(self._last_used_key())

    def rotate_key(self, failure: Failure) -> bool:
        """Start the cooldown of the key of this task's last call; False when no other is left."""
        has_other = self._pool.set_aside(self._last_used_key(), failure)
        note_choice("rotate_key", has_other)
        return has_other

    async def refresh_login(self) -> bool:
        """Renew the login of this task's last call; False when it used a key, or no other token is
        available."""
        key = self._last_used_key()
        with mark_job("login"):
            is_renewed = bool(key.login) and await self._logins.renew_token(key)
        note_choice("refresh_login", is_renewed)
        return is_renewed

    def pause_key(self, seconds: float) -> None:
        """Keep all other tasks from using this key for so long; the caller waits on its own."""
        self._cooldowns.pause(self._pool.pool_key(self._last_used_key()), seconds, _current_task())

    def build_headers(self, key: Credential) -> dict[str, str]:
        """The headers of a request, without a signature."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"hermes/{VERSION}",
            **self._endpoint.headers,
        }
        if not key.value:
            return headers
        if key.login:
            return headers | self._logins.build_headers(key)
        match self._endpoint.auth:
            case "bearer":
                headers["Authorization"] = f"Bearer {clean_key(key)}"
            case "x-api-key" | "x-goog-api-key" as name:
                headers[name] = clean_key(key)
        return headers

    async def sign_headers(self, key: Credential, url: str, body: bytes) -> dict[str, str]:
        """The headers of a model call, signed if the endpoint requires it."""
        headers = self.build_headers(key)
        if self._endpoint.auth != "aws":
            return headers
        keys = aws.AwsKeys(key.id, key.value, key.token) if key.id else None
        try:
            return await asyncio.to_thread(aws.sign_request, "POST", url, headers, body, keys=keys)
        except ConfigError as error:
            raise ProviderError(Failure(Kind.AUTH, str(error))) from None

    def redact_failure(self, failure: Failure) -> Failure:
        """The failure without any secret the provider may have quoted."""
        message, code = map(self._redactor.redact, (failure.message, failure.code))
        return structs.replace(failure, message=message, code=code)

    async def _prepare_key(self, key: Credential) -> Credential:
        task = _current_task()
        if task is not None:
            self._used[task] = key
        if key.login:
            with mark_job("login"):
                key = await self._logins.prepare_key(key)
            if key.value not in self._secrets:  # old ones are kept: an error may quote them
                self._secrets.update(dict.fromkeys((key.value, key.token)))
                self._redactor = Redactor(self._secrets)
            if task is not None:
                self._used[task] = key
        return key

    def _last_used_key(self) -> Credential:
        task = _current_task()
        used = self._used.get(task) if task is not None else None
        return used or self._pool.pick_key()


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None

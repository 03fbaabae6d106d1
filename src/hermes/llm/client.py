"""One endpoint as a Provider: request out, answer in, every failure classified and redacted."""

from __future__ import annotations

import asyncio
import random
import re
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct, structs

from hermes.core.errors import ConfigError, Failure, Kind, ProviderError
from hermes.core.events import Notice, StreamEvent
from hermes.core.message import Target
from hermes.core.provider import Request
from hermes.core.redaction.redactor import Redactor
from hermes.core.response_sink import ResponseSink
from hermes.llm import wire
from hermes.llm.auth.key_pool import NO_KEY, Credential, Pool, usable
from hermes.llm.auth.logins import Logins
from hermes.llm.cache_guard import CODE, Line, differs
from hermes.llm.cache_guard import line as line_of
from hermes.llm.endpoints.catalog import Endpoint, find
from hermes.llm.endpoints.model_facts import DEFAULT_OUTPUT, ModelFacts
from hermes.llm.endpoints.model_info import inquire, list_url, names
from hermes.llm.errors.classifier import MAX_MESSAGE, classify, gist
from hermes.llm.history_view import View
from hermes.llm.http.transport import Exchange, Transport
from hermes.llm.http.watchdog import Timeouts, Watchdog
from hermes.llm.provider_spec import About, Quirks, overlay
from hermes.llm.reasoning_effort import fitted
from hermes.llm.response_reader import FRAMES, Reading, can_unframe
from hermes.version import VERSION

Sleep = Callable[[float], Awaitable[None]]

MAX_ERROR = 256 * 1024
_LARGE_PROMPT = 400_000
"""Bytes, about 100,000 tokens: reading that much takes a model long enough to look stalled."""
_LIST_SECONDS = 5.0
_HINTS = re.compile(rb'"(n_ctx|retryDelay|resets_in_seconds|resets_at)"\s*:\s*"?([\d.]+s?)"?')
"""Facts that stand beside the message of an error and not in it."""


class _Profile(Struct, frozen=True):
    """The quirks in force, and a hashable name for them."""

    quirks: Quirks
    key: bytes
    stream: bool


class Client:
    """Shared by all sessions that use its endpoint. It keeps nothing of a conversation: what was
    encoded for one lives in that conversation's History."""

    def __init__(
        self, endpoint: Endpoint, transport: Transport, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._endpoint = endpoint
        self._transport = transport
        self._sleep = sleep
        self._pool = Pool(endpoint.base_url, endpoint.keys, transport.cooling, endpoint.pool)
        self._secrets = dict.fromkeys(p for k in endpoint.keys for p in (k.value, k.id, k.token))
        self._redactor = Redactor(self._secrets)
        self._profiles: dict[bytes, _Profile] = {}
        self._told: set[str] = set()
        self._used: weakref.WeakKeyDictionary[asyncio.Task[Any], Credential]
        self._used = weakref.WeakKeyDictionary()
        """Which key each task's last call went out with: others may have moved on since."""
        transport.proxy(endpoint.base_url)
        self._logins = Logins(endpoint.login, transport)
        if endpoint.keys and endpoint.auth != "aws":
            transport.warn_plain(endpoint.base_url)

    @property
    def target(self) -> Target:
        return self._endpoint.target

    @property
    def base_url(self) -> str:
        return self._endpoint.base_url

    @property
    def quirks(self) -> Quirks:
        return self._endpoint.quirks

    @property
    def context_length(self) -> int | None:
        return self._endpoint.context_length

    @property
    def facts(self) -> ModelFacts:
        return self._endpoint.facts

    @property
    def own(self) -> bool:
        spec = find(self.target.provider)
        return spec is not None and spec.auth == "none" and not spec.embedded

    @property
    def default_output(self) -> int | None:
        """What is asked for when nobody asks for a limit; one protocol always wants one."""
        least = DEFAULT_OUTPUT if self.target.wire == "anthropic" else None
        return self._endpoint.quirks.max_tokens_default or least

    @property
    def key_source(self) -> str:
        found = self._credential().source
        return found or ("the AWS credentials" if self._endpoint.auth == "aws" else "")

    def rotate(self, failure: Failure) -> bool:
        """Set the key of this task's last call aside; False when no other is left."""
        return self._pool.set_aside(self._credential(), failure)

    async def refresh(self) -> bool:
        """Renew the login this task's last call went out with; False when that was a key, or
        there is no other token to be had."""
        key = self._credential()
        return bool(key.login) and await self._logins.renew(key)

    def hold(self, seconds: float) -> None:
        """Nobody calls this endpoint with this key before then; the caller waits by itself."""
        until = time.monotonic() + seconds
        place = self._pool.place(self._credential())
        if until > self._transport.until.get(place, (0.0, None))[0]:
            self._transport.until[place] = (until, _here())

    async def stream(
        self, request: Request, sink: ResponseSink
    ) -> AsyncGenerator[list[StreamEvent], None]:
        """Fill `sink`; see core.provider."""
        profile = self._profile(request.learned)
        request, notes = self._fitted(request, profile.quirks)
        body, line = self._body(request, profile)
        sent = request.history.sent
        if line is not None and (text := differs(sent.get(self.target), line, self.target)):
            sent[self.target] = line
            notes.append(Notice(CODE, text))
        if notes:
            yield notes
        sink.request_size = len(body)
        if profile.quirks.calling != "native" and request.settings.tool_choice != "none":
            sink.offered_tools = frozenset(tool.name for tool in request.tools)
        key = await self._ready(self._pool.take())
        await self._wait_turn(key)
        host = self._host
        watchdog = Watchdog(self._limits(profile.stream, len(body)), host)
        exchange: Exchange | None = None
        try:
            exchange = await watchdog.wait(self._post(profile, key, body, fresh=request.fresh))
            await self._refuse(exchange, watchdog)
            if line is not None:
                sent[self.target] = line
            decoder = self._wire.Decoder(sink, profile.quirks)
            reading = Reading(exchange, watchdog, decoder, sink, self._wire.STREAM_TYPE)
            while True:
                try:
                    more = await reading.step()
                except ProviderError:
                    if events := sink.drain_events():
                        yield events
                    raise
                if events := sink.drain_events() if more else sink.finish_events():
                    yield events
                if not more:
                    return
        except ProviderError as error:
            raise ProviderError(self._clean(error.failure)) from None
        finally:
            watchdog.stop()
            if exchange is not None:
                exchange.close()

    async def models(self) -> tuple[str, ...]:
        """The names this endpoint lists; empty when it does not say."""
        url = list_url(self.base_url, self.target.wire)
        return names(await self._fetch("GET", url)) if url else ()

    async def listing(self) -> tuple[int, str, str]:
        """What it answers when asked for its models: status and time there; or why it does not."""
        url = list_url(self.base_url, self.target.wire) or self.base_url
        try:
            async with self._aside("GET", url) as (exchange, _):
                return exchange.status, exchange.headers.get("Date", ""), ""
        except ProviderError as error:
            return 0, "", self._clean(error.failure).message

    async def inquire(self) -> ModelFacts:
        """What it says of its model. Asked on demand only."""
        spec = find(self.target.provider)
        ways: tuple[About, ...] = spec.about if spec else ("list", "props", "show")
        return await inquire(self._fetch, self.target, self.base_url, ways)

    async def _fetch(self, method: str, url: str, body: bytes = b"") -> Any:
        """The JSON behind an address of this endpoint; None when it gives none."""
        try:
            async with self._aside(method, url, body) as (exchange, watchdog):
                if exchange.status != 200:
                    return None
                return msgspec.json.decode(await watchdog.wait(exchange.all(4 * 2**20)))
        except (ProviderError, ValueError):
            return None

    @asynccontextmanager
    async def _aside(
        self, method: str, url: str, body: bytes = b""
    ) -> AsyncIterator[tuple[Exchange, Watchdog]]:
        """A small request that is no model call."""
        watchdog = Watchdog(Timeouts(0, 0, _LIST_SECONDS), self._host)
        exchange: Exchange | None = None
        try:
            headers = self._headers(await self._ready(self._credential()))
            sending = self._transport.send(method, url, headers=headers, body=body)
            exchange = await watchdog.wait(sending)
            yield exchange, watchdog
        finally:
            watchdog.stop()
            if exchange is not None:
                exchange.close()

    # -- the request -----------------------------------------------------------------------

    @cached_property
    def _wire(self) -> wire.Wire:
        return wire.load(self.target.wire)

    @cached_property
    def _host(self) -> str:
        return self.base_url.partition("://")[2].partition("/")[0].rpartition("@")[2]

    def _profile(self, learned: Mapping[str, Any]) -> _Profile:
        name = msgspec.json.encode(learned) if learned else b""
        found = self._profiles.get(name)
        if found is None:
            quirks = overlay(self._endpoint.quirks, learned)
            stream = quirks.stream and (self._wire.STREAM_TYPE != FRAMES or can_unframe())
            found = _Profile(quirks, msgspec.json.encode(quirks), stream)
            self._profiles[name] = found
        return found

    def _fitted(self, request: Request, quirks: Quirks) -> tuple[Request, list[StreamEvent]]:
        """The request with an effort that is known here, and what to say about it, once."""
        asked = request.settings.effort
        effort = asked if quirks.effort == "omit" else fitted(asked, quirks.efforts)
        if effort == asked:
            return request, []
        request = structs.replace(
            request, settings=structs.replace(request.settings, effort=effort)
        )
        used = f"{effort} is used" if effort else "it decides by itself"
        text = f"{self.target.model} knows no reasoning effort {asked!r}: {used}."
        if text in self._told:
            return request, []
        self._told.add(text)
        return request, [Notice("effort", text)]

    def _body(self, request: Request, profile: _Profile) -> tuple[bytes, Line | None]:
        """Each message is made legal and serialised once; the rest is joining bytes."""
        views = request.history.views
        place = (self.target, profile.key)
        made = views.get(place)
        if made is None:
            encoder = self._wire.Encoder(self.target, profile.quirks)
            for other in [k for k in views if k[0] == self.target]:  # type: ignore[index]
                del views[other]
            made = views[place] = View(self.target, profile.quirks, encoder.push), encoder
        view, encoder = made
        view.advance(request.history)
        body: bytes = encoder.body(
            view.pending(request.tail),
            system=request.system,
            tools=request.tools,
            settings=request.settings,
            stream=profile.stream,
        )
        return body, line_of(request, profile.quirks, encoder.tail.sent)

    async def _post(
        self, profile: _Profile, key: Credential, body: bytes, *, fresh: bool
    ) -> Exchange:
        url = self._wire.url(self.base_url, self.target.model, stream=profile.stream)
        headers = self._headers(key)
        if self._endpoint.auth == "aws":
            headers = await _signed(url, headers, body, key)
        return await self._transport.send("POST", url, headers=headers, body=body, fresh=fresh)

    def _headers(self, key: Credential) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"hermes/{VERSION}",
            **self._endpoint.headers,
        }
        if not key.value:
            return headers
        if key.login:
            return headers | self._logins.headers(key)
        match self._endpoint.auth:
            case "bearer":
                headers["Authorization"] = f"Bearer {usable(key)}"
            case "x-api-key" | "x-goog-api-key" as name:
                headers[name] = usable(key)
            case _:
                pass
        return headers

    def _limits(self, stream: bool, size: int) -> Timeouts:
        limits = self._endpoint.timeouts
        factor = 2.0 if size > _LARGE_PROMPT else 1.0
        return Timeouts(limits.ttfb if stream else 0.0, limits.stale * factor, limits.total)

    async def _wait_turn(self, key: Credential) -> None:
        until, holder = self._transport.until.get(self._pool.place(key), (0.0, None))
        wait = until - time.monotonic()
        if wait > 0 and holder is not _here():
            # Spread: everybody who waited would otherwise come back in the same instant.
            await self._sleep(wait + random.uniform(0.0, min(1.0, wait / 4)))

    # -- failures --------------------------------------------------------------------------

    async def _refuse(self, exchange: Exchange, watchdog: Watchdog) -> None:
        """Raise what an answer says whose status is not a success."""
        status = exchange.status
        if 200 <= status < 300:
            return
        raw = await watchdog.wait(exchange.all(MAX_ERROR))
        code, message, param = "", "", ""
        try:
            parsed = msgspec.json.decode(raw)
        except (ValueError, RecursionError):
            message = gist(raw)
        else:
            code, message, param = self._wire.error(parsed, exchange.headers)
            if not message:
                message = raw[:MAX_MESSAGE].decode("utf-8", "replace")
        if 300 <= status < 400:
            message = f"{exchange.host} redirects to {exchange.headers.get('Location', 'nowhere')}"
        for name, value in _HINTS.findall(raw):
            if value.decode() not in message:
                message += f" ({name.decode()}: {value.decode()})"
        headers = exchange.headers
        raise ProviderError(
            classify(status=status, code=code, message=message, param=param, headers=headers)
        )

    def _clean(self, failure: Failure) -> Failure:
        return structs.replace(
            failure,
            message=self._redactor.clean(failure.message),
            code=self._redactor.clean(failure.code),
        )

    async def _ready(self, key: Credential) -> Credential:
        """The key of this task's next call; a login with its token as it is now."""
        task = _here()
        if task is not None:
            self._used[task] = key
        if key.login:
            key = await self._logins.ready(key)
            if key.value not in self._secrets:  # what was before stays: a refusal may quote it
                self._secrets.update(dict.fromkeys((key.value, key.token)))
                self._redactor = Redactor(self._secrets)
            if task is not None:
                self._used[task] = key
        return key

    def _credential(self) -> Credential:
        task = _here()
        used = self._used.get(task) if task is not None else None
        return used or self._pool.pick()


def _here() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


async def _signed(
    url: str, headers: dict[str, str], body: bytes, key: Credential
) -> dict[str, str]:
    from hermes.llm.auth import aws

    keys = None if key is NO_KEY or not key.id else aws.Keys(key.id, key.value, key.token)
    try:
        return await asyncio.to_thread(aws.sign, "POST", url, headers, body, keys=keys)
    except ConfigError as error:
        raise ProviderError(Failure(Kind.AUTH, str(error))) from None

"""A client of a scripted server, and what it heard."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.events import StreamEvent, TextDelta
from hermes.core.history import History
from hermes.core.message import Target, user_message
from hermes.core.provider import Request
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.auth.key_pool import Credential
from hermes.llm.client import Client
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.http.transport import Transport
from hermes.llm.http.watchdog import Timeouts
from hermes.llm.response_builder import ResponseBuilder
from tests.kit import (
    Provider,
)

KEY = "sk-test-0123456789abcdefghijklmnop"
OTHER = "sk-other-zyxwvutsrqponmlkjihgfedcba"
QUICK = Timeouts(ttfb=5, stale=5, total=10)
"""Nothing in these tests takes that long unless it is broken."""


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(autouse=True)
def no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def lookup(host: Any, *args: Any, **kwargs: Any) -> Any:
        if str(host).endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    made = Transport()
    yield made
    await made.close()


COOLDOWNS: WeakKeyDictionary[Transport, Cooldowns] = WeakKeyDictionary()
"""Clients of one transport share what they know about keys, as those of one process do."""


def client(
    transport: Transport, provider: Provider | str, *, sleep: Any = asyncio.sleep, **fields: Any
) -> Client:
    base_url = provider if isinstance(provider, str) else provider.base_url
    wire = "chat" if isinstance(provider, str) else provider.wire
    fields.setdefault("keys", (Credential("TEST_KEY", KEY),))
    fields.setdefault("timeouts", QUICK)
    endpoint = ModelEndpoint(Target("custom", "kit-model", wire), base_url, **fields)
    return Client(endpoint, transport, COOLDOWNS.setdefault(transport, Cooldowns()), sleep=sleep)


def request(text: str = "hi", **fields: Any) -> Request:
    return Request("be brief", History([user_message(text)]), **fields)


class Heard:
    """One call with all that came of it."""

    def __init__(self) -> None:
        self.answer = ResponseBuilder()
        self.events: list[StreamEvent] = []
        self.failure: Failure | None = None

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, TextDelta))

    @property
    def kind(self) -> Kind | None:
        return self.failure.kind if self.failure else None

    @property
    def said(self) -> str:
        return self.failure.message if self.failure else ""


async def ask(to: Client, sent: Request | None = None) -> Heard:
    heard = Heard()
    try:
        async with aclosing(to.stream(sent or request(), heard.answer)) as batches:
            async for events in batches:
                assert events, "an empty batch"
                heard.events += events
    except ProviderError as error:
        heard.failure = error.failure
    return heard

"""What one turn is given. Built by app, consumed by loop, step, executor and recovery."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from msgspec import Struct

from hermes.core.errors import Failure
from hermes.core.events import Recorded, TurnEvent
from hermes.core.history import History
from hermes.core.message import Message, Target, ToolCall, Usage
from hermes.core.provider import Provider, Settings, ToolSpec
from hermes.core.redact import Redactor
from hermes.core.store import State
from hermes.core.taint import Source
from hermes.core.tool import Tool, ToolContext


async def uncancelled(work: Awaitable[None]) -> None:
    """Wait to the end, whatever is cancelled meanwhile: for what must not be left half done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


class Endpoint(Provider, Protocol):
    """A provider with the credentials and the limiter behind it."""

    @property
    def key_source(self) -> str:
        """Where its key came from, for messages; never the key."""
        ...

    @property
    def base_url(self) -> str: ...

    def rotate(self, failure: Failure) -> bool:
        """Go on to the next credential; False when there is none."""
        ...

    def hold(self, seconds: float) -> None:
        """Nobody calls this endpoint before then."""
        ...

    async def models(self) -> Sequence[str]:
        """The names the endpoint lists; empty when it does not say."""
        ...


class Limits(Struct, frozen=True):
    max_calls: int = 90
    """Model calls per turn; then one last call without tools."""
    tries: int = 3
    """Attempts at one call when the network or the server fails, the first one counted."""
    result_chars: int = 50_000
    """Longest tool result shown to the model; the rest is saved to a file."""


class Agent(Struct, frozen=True):
    """Who runs: the model chain, the tools, the limits. Shared by all sessions that ask alike."""

    providers: tuple[Endpoint, ...]
    """Primary first, then fallbacks."""
    tools: Mapping[str, Tool[Any]] = {}
    specs: tuple[ToolSpec, ...] = ()
    """Those a request declares; the others are found by tool_search, or called by name."""
    settings: Settings = Settings()
    limits: Limits = Limits()
    redactor: Redactor = Redactor()
    """What tools print goes through it before anybody sees it."""


class Learned(Struct):
    """What an endpoint taught us the hard way; outlives the turn."""

    quirks: dict[str, Any] = {}
    max_output: int | None = None


class Turn(Struct, kw_only=True):
    """Mutable state of exactly one turn; dies with it."""

    system: str
    history: History
    record: Callable[[Message | None, State | None], Awaitable[None]]
    """Durable append. Awaited: the loop never runs ahead of the store."""
    emit: Callable[[TurnEvent], None]
    """Display. Never blocks, never fails."""
    steer: Callable[[], str]
    """Take the guidance given since last time; empty when there is none."""
    context: Callable[[ToolCall], ToolContext]
    absorb: Callable[[Collection[Source]], None]
    """Told what a call brought into the conversation before its result is recorded."""
    sleep: Callable[[float], Awaitable[None]]
    learned: dict[Target, Learned]
    active: int = 0
    """Index of the provider in use; survives steps so that a fallback sticks."""
    calls: int = 0
    """Answers received from a model."""
    usage: Usage = Usage()
    added: list[Message] = []
    target: Target | None = None
    """Who answered last."""

    async def append(self, message: Message, state: State | None = None) -> None:
        """Durable first. A cancellation waits for the commit, so that store and history agree."""
        commit = asyncio.ensure_future(self.record(message, state))
        interrupted: asyncio.CancelledError | None = None
        while not commit.done():
            try:
                await asyncio.shield(commit)
            except asyncio.CancelledError as error:
                if commit.cancelled():
                    raise
                interrupted = error
        commit.result()
        self.history.append(message)
        self.added.append(message)
        self.emit(Recorded(message))
        if interrupted is not None:
            raise interrupted

    async def settle(self, state: State) -> None:
        """The turn is over without another message."""
        await self.record(None, state)

    def lessons(self, target: Target) -> Learned:
        return self.learned.setdefault(target, Learned())

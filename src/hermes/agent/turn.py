"""What one turn is given: built by app, consumed by loop, step, executor and recovery."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from hermes.core.errors import Failure
from hermes.core.events import Recorded, TurnEvent
from hermes.core.history import History
from hermes.core.message import Message, Target, ToolCall, Usage
from hermes.core.provider import Provider, Request, Settings, ToolSpec
from hermes.core.redaction.redactor import Redactor
from hermes.core.store import State
from hermes.core.taint import Source
from hermes.core.tool import Tool, ToolContext

if TYPE_CHECKING:
    from hermes.llm.credential_use import CredentialUse
    from hermes.llm.endpoints.endpoint import ModelEndpoint
    from hermes.llm.model_list import ModelListing

T = TypeVar("T")
GUESSED_WINDOW = 128_000
"""Tokens, where nobody says how many a model takes."""


async def through(work: Awaitable[T]) -> tuple[T, asyncio.CancelledError | None]:
    """The result, and the interruption that came meanwhile: it has waited."""
    task = asyncio.ensure_future(work)
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            interrupted = error
    return task.result(), interrupted


async def uncancelled(work: Awaitable[None]) -> None:
    """Wait to the end, whatever is cancelled meanwhile: for what must not be left half done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


class Endpoint(Provider, Protocol):
    """A model endpoint as the loop uses it: what it is, what it is called with, what it lists."""

    @property
    def endpoint(self) -> ModelEndpoint: ...

    @property
    def credentials(self) -> CredentialUse: ...

    @property
    def listing(self) -> ModelListing: ...


class Limits(Struct, frozen=True):
    max_calls: int = 90
    """Model calls per turn; then one last call without tools."""
    tries: int = 3
    """Attempts at one call when the network or the server fails, the first one counted."""
    result_chars: int = 50_000
    """Longest tool result shown to the model; the rest is saved to a file."""


class Compression(Struct, frozen=True):
    """Decided when an agent is built, from what is known without asking anybody."""

    enabled: bool = True
    threshold: float = 0.5
    """Share of the window at which a conversation is compressed."""
    warning: str = ""
    """Told to the user once."""


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
    compression: Compression = Compression()
    small: bool = False
    """A small model is among them: it has a prompt of its own, and its calls are confirmed."""
    hand_over: bool = False
    """Calls are not run: the turn ends with them, and whoever asked brings the results."""
    note: str = ""
    """What people are told once about how the first provider came to be chosen."""


class Learned(Struct):
    """What an endpoint taught us the hard way; outlives the turn."""

    quirks: dict[str, Any] = {}
    max_output: int | None = None
    context: int | None = None
    """The window, as an error stated it."""
    asked: bool = False
    """Whether the endpoint was asked about its model."""


class Ask(Protocol):
    """A small question to a model beside the conversation; ToolError when there is no answer."""

    def __call__(self, prompt: Message, *, system: str, max_output: int) -> Awaitable[str]: ...


class Reader(Struct, frozen=True):
    """Who summarises."""

    ask: Ask
    window: int | None = None
    """As far as it is known; None: as large as the conversation's."""


class Compressing(Protocol):
    """Keeps the turn's history inside the window (see agent.compress)."""

    async def before(self, agent: Agent, turn: Turn) -> None:
        """Before each call."""
        ...

    async def after(self, agent: Agent, turn: Turn, failure: Failure, tries: int) -> bool:
        """After a prompt was refused as too long: whether the history is shorter now."""
        ...


class Metering(Protocol):
    """Counts every call, and keeps the caps (see app.metering)."""

    async def reserve(self, endpoint: Endpoint, request: Request) -> Any:
        """A ticket with the `request` to send; OverBudget when the call may not be made."""
        ...

    def settle(self, ticket: Any, usage: Usage, outcome: str, tools: Sequence[str]) -> Usage:
        """How the call ended; its usage with what it cost."""
        ...


def sees_images(endpoint: Endpoint, learned: Mapping[Target, Learned]) -> bool:
    """Not when its model is known to take none, or it has refused one."""
    lessons = learned.get(endpoint.target)
    refused = lessons is not None and lessons.quirks.get("media") is False
    return endpoint.endpoint.facts.images is not False and not refused


def _forgotten(endpoint: Endpoint, context: int | None, output: int | None) -> None:
    return None


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
    compressor: Compressing | None = None
    meter: Metering | None = None
    remember: Callable[[Endpoint, int | None, int | None], None] = _forgotten
    """A context or output limit that this endpoint stated, for later processes."""
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
        _, interrupted = await through(self.record(message, state))
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


def window_of(agent: Agent, turn: Turn) -> int:
    """Tokens the active model takes: as set or known, unless an error stated less."""
    return min(_windows(agent, turn), default=GUESSED_WINDOW)


def is_known(agent: Agent, turn: Turn) -> bool:
    """Whether that is more than a guess."""
    return bool(_windows(agent, turn))


def _windows(agent: Agent, turn: Turn) -> list[int]:
    provider = agent.providers[turn.active]
    said = (provider.endpoint.context_length, turn.lessons(provider.target).context)
    return [n for n in said if n]

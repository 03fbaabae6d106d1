"""One turn and what it works with: the agent, its host, the meter, what was learned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from hermes.core.errors import Failure
from hermes.core.events import Recorded, TurnEvent
from hermes.core.history import History
from hermes.core.ledger import Cap, Entry
from hermes.core.message import Message, Target, ToolCall, Usage
from hermes.core.provider import Provider, Request, Settings, ToolSpec
from hermes.core.redaction.redactor import Redactor
from hermes.core.shield import run_shielded
from hermes.core.store import SessionState
from hermes.core.taint import Source
from hermes.core.tool import Tool, Toolbox, ToolContext, Verdict, Workspace
from hermes.llm.credential_use import CredentialUse
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.endpoints.model_facts import Prices
from hermes.llm.model_list import ModelListing

GUESSED_WINDOW = 128_000
"""Tokens, where nobody says how many a model takes."""


class ModelClient(Provider, Protocol):
    """A model endpoint as the loop uses it: what it is, what it is called with, what it lists."""

    @property
    def endpoint(self) -> ModelEndpoint: ...

    @property
    def credentials(self) -> CredentialUse: ...

    @property
    def listing(self) -> ModelListing: ...


class TurnLimits(Struct, frozen=True):
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

    providers: tuple[ModelClient, ...]
    """Primary first, then fallbacks."""
    tools: Mapping[str, Tool[Any]] = {}
    specs: tuple[ToolSpec, ...] = ()
    """Those a request declares; the others are found by tool_search, or called by name."""
    settings: Settings = Settings()
    limits: TurnLimits = TurnLimits()
    redactor: Redactor = Redactor()
    """What tools print goes through it before anybody sees it."""
    compression: Compression = Compression()
    small: bool = False
    """A small model is among them: it has a prompt of its own, and its calls are confirmed."""
    hand_over: bool = False
    """Calls are not run: the turn ends with them, and whoever asked brings the results."""
    note: str = ""
    """What people are told once about how the first provider came to be chosen."""


class EndpointLessons(Struct):
    """What an endpoint taught us the hard way; outlives the turn."""

    quirks: dict[str, Any] = {}
    max_output: int | None = None
    context: int | None = None
    """The window, as an error stated it."""
    asked: bool = False
    """Whether the endpoint was asked about its model."""


class AskModel(Protocol):
    """A small question to a model beside the conversation; ToolError when there is no answer."""

    def __call__(self, prompt: Message, *, system: str, max_output: int) -> Awaitable[str]: ...


class Summarizer(Struct, frozen=True):
    """Who summarises."""

    ask: AskModel
    window: int | None = None
    """As far as it is known; None: as large as the conversation's."""


class HistoryCompressor(Protocol):
    """Keeps the turn's history inside the window (see agent.compress)."""

    async def before_call(self, agent: Agent, turn: Turn) -> None:
        """Before each call."""
        ...

    async def after_refusal(self, agent: Agent, turn: Turn, failure: Failure, tries: int) -> bool:
        """After a prompt was refused as too long: whether the history is shorter now."""
        ...


class CallTicket(Struct, frozen=True):
    """A call that may be made, with the output limit it must keep."""

    request: Request
    entry: Entry
    caps: tuple[Cap, ...]
    prices: Prices | None
    began: float


class CallMeter(Protocol):
    """Counts every model call and enforces the budget (see app.meter)."""

    async def reserve_call(self, endpoint: ModelClient, request: Request) -> CallTicket:
        """Admit a call; OverBudget when it may not be made."""
        ...

    def settle_call(
        self, ticket: CallTicket, usage: Usage, outcome: str, tools: Sequence[str]
    ) -> Usage:
        """Book how the call ended; its usage with what it cost."""
        ...


class TurnHost(Protocol):
    """What a turn needs from the session, or the question, that it runs for."""

    async def record(self, message: Message | None, state: SessionState | None) -> None:
        """Store a message and the state durably. The loop never runs ahead of the store."""
        ...

    def emit(self, event: TurnEvent) -> None:
        """Show an event. Never blocks, never fails."""
        ...

    def take_steer(self) -> str:
        """The guidance given since the last call; empty when there is none."""
        ...

    @property
    def session_id(self) -> str: ...

    @property
    def workspace(self) -> Workspace: ...

    async def approve(
        self, call: ToolCall, tool: Tool[Any], params: Any, keys: tuple[str, ...]
    ) -> Verdict:
        """Decide whether a call may run; this may ask the user."""
        ...

    def tool_context(
        self,
        call: ToolCall,
        verdict: Verdict,
        toolbox: Toolbox,
        progress: Callable[[str], None],
    ) -> ToolContext:
        """What a call that was approved may touch."""
        ...

    def absorb_taint(self, sources: Collection[Source]) -> None:
        """Note what a call brings into the conversation, before its result is recorded."""
        ...

    def sleep(self, seconds: float) -> Awaitable[None]: ...

    def remember_limits(
        self, endpoint: ModelClient, context: int | None, output: int | None
    ) -> None:
        """Keep a context or output limit that this endpoint stated, for later processes."""
        ...


def sees_images(endpoint: ModelClient, learned: Mapping[Target, EndpointLessons]) -> bool:
    """Not when its model is known to take none, or it has refused one."""
    lessons = learned.get(endpoint.target)
    refused = lessons is not None and lessons.quirks.get("media") is False
    return endpoint.endpoint.facts.images is not False and not refused


class Turn(Struct, kw_only=True):
    """Mutable state of exactly one turn; dies with it."""

    system: str
    history: History
    host: TurnHost
    learned: dict[Target, EndpointLessons]
    compressor: HistoryCompressor | None = None
    meter: CallMeter | None = None
    active: int = 0
    """Index of the provider in use; survives steps so that a fallback sticks."""
    calls: int = 0
    """Answers received from a model."""
    usage: Usage = Usage()
    added: list[Message] = []
    target: Target | None = None
    """Who answered last."""

    async def append(self, message: Message, state: SessionState | None = None) -> None:
        """Durable first. A cancellation waits for the commit, so that store and history agree."""
        _, interrupted = await run_shielded(self.host.record(message, state))
        self.history.append(message)
        self.added.append(message)
        self.host.emit(Recorded(message))
        if interrupted is not None:
            raise interrupted

    async def record_end(self, state: SessionState) -> None:
        """The turn is over without another message."""
        await self.host.record(None, state)

    def lessons_for(self, target: Target) -> EndpointLessons:
        return self.learned.setdefault(target, EndpointLessons())


def find_window(agent: Agent, turn: Turn) -> int:
    """Tokens the active model takes: as set or known, unless an error stated less."""
    return min(_known_windows(agent, turn), default=GUESSED_WINDOW)


def is_window_known(agent: Agent, turn: Turn) -> bool:
    """Whether that is more than a guess."""
    return bool(_known_windows(agent, turn))


def _known_windows(agent: Agent, turn: Turn) -> list[int]:
    provider = agent.providers[turn.active]
    said = (provider.endpoint.context_length, turn.lessons_for(provider.target).context)
    return [n for n in said if n]

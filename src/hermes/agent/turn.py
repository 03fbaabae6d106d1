"""One turn and what it works with: the agent, its host, the meter, what was learned."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from hermes.core.errors import Failure
from hermes.core.events import Recorded, TurnEvent
from hermes.core.history import History
from hermes.core.hooks import SessionHooks
from hermes.core.ledger import Cap, Entry
from hermes.core.lifecycle import run_shielded
from hermes.core.message import Message, Target, ToolCall, Usage
from hermes.core.provider import Provider, Request, Settings, ToolSpec
from hermes.core.redaction.redactor import Redactor
from hermes.core.store import SessionState
from hermes.core.taint import Source
from hermes.core.tool import Tool, Toolbox, ToolContext, Verdict, Workspace
from hermes.llm.credential_use import CredentialUse
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.endpoints.model_facts import Prices
from hermes.llm.side_requests.media import MediaRequests
from hermes.llm.side_requests.model_list import ModelListing

TurnMode: TypeAlias = Literal["new", "again", "continue"]
"""`again`: an earlier turn stored the prompt and failed; `continue`: it was cut off."""
GUESSED_WINDOW = 128_000
"""The context window in tokens that is assumed when none is known."""


class ModelClient(Provider, Protocol):
    """A model endpoint as the loop uses it: its settings, its credentials, its model
    list and its media."""

    @property
    def endpoint(self) -> ModelEndpoint: ...

    @property
    def credentials(self) -> CredentialUse: ...

    @property
    def listing(self) -> ModelListing: ...

    @property
    def media(self) -> MediaRequests: ...


class TurnLimits(Struct, frozen=True):
    max_calls: int = 90
    """Model calls per turn; then one last call without tools."""
    continues: int = 3
    """How often an answer that reached the output limit is continued."""
    tries: int = 3
    """Attempts at one call when the network or the server fails, the first one counted."""
    first_wait: float = 120.0
    """Longest wait in seconds that a provider's rate limit may cost before its first response."""
    result_chars: int = 50_000
    """Longest tool result shown to the model; the rest is saved to a file."""


class Compression(Struct, frozen=True):
    """Whether and when a conversation is compressed; decided when the agent is built."""

    enabled: bool = True
    threshold: float = 0.5
    """Share of the window at which a conversation is compressed."""
    warning: str = ""
    """Shown to the user once."""


class Agent(Struct, frozen=True):
    """The models, tools and limits of a turn. Sessions with the same options share one."""

    providers: tuple[ModelClient, ...]
    """Primary first, then fallbacks."""
    tools: Mapping[str, Tool[Any]] = {}
    specs: tuple[ToolSpec, ...] = ()
    """The tools that requests declare; others are found by tool_search or called by name."""
    settings: Settings = Settings()
    limits: TurnLimits = TurnLimits()
    redactor: Redactor = Redactor()
    """Applied to tool output before the model or a person sees it."""
    compression: Compression = Compression()
    small: bool = False
    """Whether one of the models is small: it gets a shorter prompt, and its calls need approval."""
    client_tools: frozenset[str] = frozenset()
    """Tools that the client runs: the turn ends with their calls, and the client sends the
    results."""
    note: str = ""
    """Shown once: how the first provider was chosen."""


class EndpointLessons(Struct):
    """What refusals taught us about an endpoint; outlives the turn."""

    quirks: dict[str, Any] = {}
    max_output: int | None = None
    context: int | None = None
    """The context window that an error stated."""
    asked: bool = False
    """Whether the endpoint was queried for the limits of its model."""
    parameters: float | None = None
    """Billions, as the endpoint says."""


class AskModel(Protocol):
    """Asks a model something outside the conversation; ToolError when there is no answer."""

    def __call__(self, prompt: Message, *, system: str, max_output: int) -> Awaitable[str]: ...


class Summarizer(Struct, frozen=True):
    """The model that writes summaries."""

    ask: AskModel
    window: int | None = None
    """Its context window; None: assumed to be as large as the conversation's."""


class HistoryCompressor(Protocol):
    """Keeps the turn's history inside the context window (see agent.compression)."""

    async def before_call(self, agent: Agent, turn: "Turn") -> None:
        """Compress if the next prompt would be too long. Awaited before each model call."""

    async def after_refusal(self, agent: Agent, turn: "Turn", failure: Failure, tries: int) -> bool:
        """Compress after the provider refused a prompt as too long; True if it is shorter now."""


class CallTicket(Struct, frozen=True):
    """A model call that the meter has admitted; `request` carries its output limit."""

    request: Request
    entry: Entry
    caps: tuple[Cap, ...]
    prices: Prices | None
    began: float


class CallMeter(Protocol):
    """Counts every model call and enforces the budget (see app.meter)."""

    async def reserve_call(self, endpoint: ModelClient, request: Request) -> CallTicket:
        """Admit a call; OverBudget when it may not be made."""

    def settle_call(
        self, ticket: CallTicket, usage: Usage, outcome: str, tools: Sequence[str]
    ) -> Usage:
        """Record how the call ended and return its usage with the cost."""


class TurnHost(Protocol):
    """What a turn needs from the session or one-off question it runs for."""

    jitter: Callable[[float, float], float]
    """Chooses a number between two; waits are spread with it."""
    hands_over: bool
    """Whether the turn is to stop after its step, because another process continues it."""
    mark_call: Callable[[ToolCall], Awaitable[None]] | None
    """Notes durably that a call with effects begins; None: nobody could continue the turn."""

    async def record(
        self, message: Message | None, state: SessionState | None, error: str = ""
    ) -> None:
        """Store a message and the state durably. The loop never runs ahead of the store. `error`:
        the sentence that a turn ends with."""

    def emit(self, event: TurnEvent) -> None:
        """Show an event. Never blocks, never fails."""

    def take_steer(self) -> str:
        """The guidance given since the last call; empty when there is none."""

    @property
    def session_id(self) -> str: ...

    @property
    def workspace(self) -> Workspace: ...

    @property
    def hooks(self) -> SessionHooks | None:
        """None: there are none."""

    async def approve(
        self, call: ToolCall, tool: Tool[Any], params: Any, keys: tuple[str, ...]
    ) -> Verdict:
        """Decide whether a call may run; this may ask the user."""

    def tool_context(
        self,
        call: ToolCall,
        verdict: Verdict,
        toolbox: Toolbox,
        progress: Callable[[str], None],
    ) -> ToolContext:
        """The context of an approved call."""

    def absorb_taint(self, sources: Collection[Source]) -> None:
        """Mark the session with what a call reads, before its result is recorded."""

    def sleep(self, seconds: float) -> Awaitable[None]: ...

    def remember_limits(
        self, endpoint: ModelClient, context: int | None, output: int | None
    ) -> None:
        """Remember a context or output limit that this endpoint stated, beyond this process."""

    def remember_calling(self, endpoint: ModelClient, calling: str) -> None:
        """Remember how the model of this endpoint calls tools, beyond this process."""


def sees_images(endpoint: ModelClient, learned: Mapping[Target, EndpointLessons]) -> bool:
    """False when the model is known not to accept images or has refused one."""
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
    """Responses received from a model."""
    usage: Usage = Usage()
    added: list[Message] = []
    target: Target | None = None
    """The model that answered last."""
    effects: bool = False
    """Whether a tool ran that may have changed something."""

    async def append(
        self, message: Message, state: SessionState | None = None, error: str = ""
    ) -> None:
        """Store the message, then show it. A cancellation waits for the commit, so that store and
        history agree."""
        _, interrupted = await run_shielded(self.host.record(message, state, error))
        self.history.append(message)
        self.added.append(message)
        self.host.emit(Recorded(message))
        if interrupted is not None:
            raise interrupted

    async def record_state(self, state: SessionState, error: str = "") -> None:
        """Record that the turn began again, or ended, without another message."""
        await self.host.record(None, state, error)

    def lessons_for(self, target: Target) -> EndpointLessons:
        return self.learned.setdefault(target, EndpointLessons())


def find_window(agent: Agent, turn: Turn) -> int:
    """The context window of the active model: as configured, else the smaller of what is known and
    what an error stated."""
    return min(_known_windows(agent, turn), default=GUESSED_WINDOW)


def is_window_known(agent: Agent, turn: Turn) -> bool:
    """Whether the context window is known rather than assumed."""
    return bool(_known_windows(agent, turn))


def _known_windows(agent: Agent, turn: Turn) -> list[int]:
    provider = agent.providers[turn.active]
    known = provider.endpoint.context_length
    if known and provider.endpoint.has_configured_context:
        return [known]
    return [n for n in (known, turn.lessons_for(provider.target).context) if n]

"""What the loop and a model endpoint exchange: a request, and the response as it arrives."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from hermes.core.events import StreamEvent
from hermes.core.history import History
from hermes.core.message import Message, Stop, Target

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class ToolSpec(Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments object."""


class Settings(Struct, frozen=True):
    max_output: int | None = None
    temperature: float | None = None
    effort: Effort | None = None
    fast: bool = False
    """Whether to pay more for being answered sooner, where the endpoint offers it."""
    top_p: float | None = None
    seed: int | None = None
    """Left out where a wire has no field for it."""
    stop: tuple[str, ...] = ()
    answer_schema: dict[str, Any] | None = None
    """The format of the answer: `name`, `schema` and `strict`. It is sent where the endpoint
    enforces it; elsewhere only the prompt can ask for it."""
    tool_choice: Literal["auto", "none", "required"] = "auto"
    """none: tools may not be called; they are left out where the wire allows it."""
    tool: str = ""
    """required: the one that has to be called; empty: any."""


class Request(Struct, frozen=True):
    """One immutable request. Recovery replaces it; nobody mutates it."""

    system: str
    history: History
    tools: tuple[ToolSpec, ...] = ()
    settings: Settings = Settings()
    tail: tuple[Message, ...] = ()
    """Scaffolding of this request only (continue, nudge): sent after the history, never stored."""
    learned: Mapping[str, Any] = {}
    """Quirk overrides this endpoint taught us; laid over its profile."""
    passing: bool = False
    """It differs from the session's other requests on purpose, and for this step only."""
    fresh: bool = False
    """Use a new connection, whatever the pool holds."""


class Provider(Protocol):
    @property
    def target(self) -> Target: ...

    def stream(
        self, request: Request, sink: "ResponseSink"
    ) -> AsyncGenerator[Sequence[StreamEvent], None]:
        """Fill `sink`, yielding display events once per network read.

        Raises only ProviderError; what had arrived stays in `sink`. Closing it aborts the
        request and its socket.
        """


class ResponseSink(Protocol):
    """One answer under construction. A slot is any hashable a codec tells the parts apart by; parts
    stand in the order of their first use unless `set_order` says otherwise."""

    stop: Stop | None
    detail: str
    """What the provider said about why it stopped."""
    request_size: int
    """Bytes of the request; 0: not known. For an estimate when no usage is reported."""
    offered_tools: Mapping[str, tuple[str, ...]]
    """The tools that a call written into the text may name, each with its parameters."""
    calling: str
    """How the calls of the answer were written: native, text or schema; empty: there are none, and
    no schema was obeyed."""
    has_unread_call: bool
    """Whether the text contains what was meant as a call and cannot be read."""

    @property
    def size(self) -> int:
        """Characters of text, reasoning and arguments so far."""

    @property
    def is_empty(self) -> bool: ...

    @property
    def call_names(self) -> tuple[str, ...]:
        """Of the tool calls that have begun."""

    def add_text(self, slot: Any, piece: str) -> None: ...

    def add_thinking(self, slot: Any, piece: str) -> None: ...

    def add_call(self, slot: Any, *, id: str = "", name: str = "", args: str = "") -> None:
        """Assign the id and the name, append the fragment of the arguments."""

    def set_args(self, slot: Any, args: str) -> None:
        """Replace a call's arguments by the complete ones."""

    def get_args(self, slot: Any) -> str:
        """A call's arguments so far."""

    def complete_part(self, slot: Any, kind: str, text: str) -> None:
        """Make this the whole text of a part of that kind (text or thinking)."""

    def add_extra(self, slot: Any, kind: str, **extra: Any) -> None:
        """Keys to send back with the part of that kind (text, thinking or call)."""

    def set_native(self, slot: Any, data: dict[str, Any]) -> None:
        """Something the provider ran itself; a later one replaces it."""

    def set_order(self, slot: Any, order: Any) -> None:
        """Where the part belongs."""

    def count_usage(self, **counts: Any) -> None:
        """Usage so far, by field of Usage: cumulative; None changes nothing."""

    def drain_events(self) -> list[StreamEvent]:
        """Display events since the last call."""

    def finish_events(self) -> list[StreamEvent]:
        """The last display events."""

    def build_message(self, origin: Target) -> Message:
        """The answer as it stands."""

"""The seam between the loop and any model endpoint."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from hermes.core.events import StreamEvent
from hermes.core.history import History
from hermes.core.message import Message, Target
from hermes.core.response_sink import ResponseSink

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
    stop: tuple[str, ...] = ()
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
        self, request: Request, sink: ResponseSink
    ) -> AsyncGenerator[Sequence[StreamEvent], None]:
        """Fill `sink`, yielding display events once per network read.

        Raises only ProviderError; what had arrived stays in `sink`. Closing it aborts the
        request and its socket.
        """
        ...

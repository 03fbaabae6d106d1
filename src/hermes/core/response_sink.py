"""What a provider fills while an answer comes in."""

from __future__ import annotations

from typing import Any, Protocol

from hermes.core.events import StreamEvent
from hermes.core.message import Message, Stop, Target


class ResponseSink(Protocol):
    """One answer under construction. A slot is any hashable a codec tells the parts apart by; parts
    stand in the order of their first use unless `set_order` says otherwise."""

    stop: Stop | None
    detail: str
    """What the provider said about why it stopped."""
    request_size: int
    """Bytes of the request; 0: not known. For an estimate when no usage is reported."""
    offered_tools: frozenset[str]
    """Names of the tools that a call written into the text may name."""

    @property
    def size(self) -> int:
        """Characters of text, reasoning and arguments so far."""
        ...

    @property
    def is_empty(self) -> bool: ...

    @property
    def call_names(self) -> tuple[str, ...]:
        """Of the tool calls that have begun."""
        ...

    def add_text(self, slot: Any, piece: str) -> None: ...

    def add_thinking(self, slot: Any, piece: str) -> None: ...

    def add_call(self, slot: Any, *, id: str = "", name: str = "", args: str = "") -> None:
        """Assign the id and the name, append the fragment of the arguments."""
        ...

    def set_args(self, slot: Any, args: str) -> None:
        """Replace a call's arguments by the complete ones."""
        ...

    def get_args(self, slot: Any) -> str:
        """A call's arguments so far."""
        ...

    def complete_part(self, slot: Any, kind: str, text: str) -> None:
        """Make this the whole text of a part of that kind (text or thinking)."""
        ...

    def add_extra(self, slot: Any, kind: str, **extra: Any) -> None:
        """Keys to send back with the part of that kind (text, thinking or call)."""
        ...

    def set_native(self, slot: Any, data: dict[str, Any]) -> None:
        """Something the provider ran itself; a later one replaces it."""
        ...

    def set_order(self, slot: Any, order: Any) -> None:
        """Where the part belongs."""
        ...

    def count_usage(self, **counts: Any) -> None:
        """Usage so far, by field of Usage: cumulative; None changes nothing."""
        ...

    def drain_events(self) -> list[StreamEvent]:
        """Display events since the last call."""
        ...

    def finish_events(self) -> list[StreamEvent]:
        """The last display events."""
        ...

    def build_message(self, origin: Target) -> Message:
        """The answer as it stands."""
        ...

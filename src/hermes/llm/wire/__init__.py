"""Wire protocols, one sans-IO module each: an Encoder and a Decoder behind the same two shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from hermes.core.errors import ConfigError
from hermes.core.message import Message, Target
from hermes.core.provider import Settings, ToolSpec
from hermes.core.response_sink import ResponseSink
from hermes.core.wire_names import OLD_WIRE_NAMES, WIRE_NAMES
from hermes.llm.index import load_builtin_index
from hermes.llm.provider_spec import Quirks, WireFacts
from hermes.llm.wire.message_buffer import MessageBuffer


class Encoder(Protocol):
    """Serialises one transcript for one target. `push` gets each closed group of the view once
    (see llm/view for what a group looks like) and keeps its bytes; `body` joins them."""

    @property
    def messages(self) -> MessageBuffer:
        """Its messages as bytes."""
        ...

    def add_group(self, group: Message) -> None: ...

    def build_body(
        self,
        pending: Sequence[Message],
        *,
        system: str,
        tools: Sequence[ToolSpec],
        settings: Settings,
        stream: bool,
    ) -> bytes: ...


class Decoder(Protocol):
    """Fills an Answer. `feed` takes the raw body of a stream in pieces of any size, `close` its
    end; `whole` takes a complete non-streamed body instead. Raises ProviderError for an error
    the provider sent in band. Sets `sink.stop`; a stream that broke off gets `died`."""

    activity: int
    """Data events decoded so far (comments do not count): what the stall watchdog looks at."""

    @property
    def is_finished(self) -> bool:
        """The provider has said why it stopped: what breaks off after that is no loss."""
        ...

    def feed(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def decode_document(self, body: bytes) -> None: ...


class Wire(Protocol):
    """What a module of this package provides."""

    FACTS: WireFacts
    STREAM_TYPE: str
    """Content type of its streams."""
    Encoder: Callable[[Target, Quirks], Encoder]
    Decoder: Callable[[ResponseSink, Quirks], Decoder]

    def can_stream(self) -> bool:
        """Whether what it takes to read its streams is installed."""
        ...

    def build_url(self, base_url: str, model: str, *, stream: bool) -> str: ...

    def read_error(self, body: Any, headers: Mapping[str, str]) -> tuple[str, str, str]:
        """(code, message, param) of a parsed error body; empty strings when it says nothing."""
        ...


_registered: dict[str, Wire] = {}


def wire_names() -> tuple[str, ...]:
    return (*WIRE_NAMES, *_registered)


def check_wire_name(name: str) -> str:
    """The wire of that name, old names included; ConfigError when there is none."""
    found = OLD_WIRE_NAMES.get(name, name)
    if found not in wire_names():
        raise ConfigError(f"api_mode {name!r} is unknown; use one of: {', '.join(wire_names())}.")
    return found


def load_wire(name: str) -> Wire:
    """The module is imported when its wire is first used."""
    return _registered.get(name) or cast(Wire, import_module(f"{__name__}.{name}"))


def wire_facts(name: str) -> WireFacts:
    """Of a wire that need not be loaded for it."""
    return _registered[name].FACTS if name in _registered else load_builtin_index().wires[name]


def register_wire(name: str, wire: Wire) -> Callable[[], None]:
    """Add a wire from outside the package. Call the result to take it out again."""
    if name in WIRE_NAMES:
        raise ValueError(f"{name} is a wire of this package")
    _registered[name] = wire

    def unregister_wire() -> None:
        _registered.pop(name, None)

    return unregister_wire

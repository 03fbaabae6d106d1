"""Wire protocols, one module each, without IO: an Encoder and a Decoder."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Protocol, cast

from hermes.core.errors import ConfigError
from hermes.core.message import Message, Target
from hermes.core.provider import ResponseSink
from hermes.core.wire_names import OLD_WIRE_NAMES, WIRE_NAMES
from hermes.llm.index import load_builtin_index
from hermes.llm.provider_spec import Quirks, WireFacts
from hermes.llm.wire.message_buffer import MessageBuffer
from hermes.llm.wire.request_fields import RequestHead


class Encoder(Protocol):
    """Serialises one conversation for one target. It gets each closed group of the HistoryView once
    and keeps its bytes; `build_body` joins them."""

    @property
    def messages(self) -> MessageBuffer:
        """The encoded messages."""
        ...

    def add_group(self, group: Message) -> None: ...

    def build_body(self, pending: Sequence[Message], head: RequestHead) -> bytes: ...


class Decoder(Protocol):
    """Fills a ResponseSink. `feed` takes the body of a stream in pieces of any size and `close` its
    end; `decode_document` takes the body of a response that is not streamed. Raises ProviderError
    for an error inside the answer. Sets `sink.stop`; a stream that broke off gets `died`."""

    activity: int
    """Data events decoded so far, without comments."""

    @property
    def is_finished(self) -> bool:
        """Whether the stop reason has come: nothing is lost if the stream breaks off after it."""
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

    def build_url(self, base_url: str, model: str, *, stream: bool) -> str: ...

    def read_error(self, body: Any, headers: Mapping[str, str]) -> tuple[str, str, str]:
        """(code, message, param) of a parsed error body; empty strings if it has none."""
        ...


_registered: dict[str, Wire] = {}


def wire_names() -> tuple[str, ...]:
    return (*WIRE_NAMES, *_registered)


def check_wire_name(name: str) -> str:
    """The name of an existing wire, replacing old names; ConfigError when there is none."""
    found = OLD_WIRE_NAMES.get(name, name)
    if found not in wire_names():
        raise ConfigError(f"api_mode {name!r} is unknown; use one of: {', '.join(wire_names())}.")
    return found


def load_wire(name: str) -> Wire:
    """The module of a wire, imported on first use."""
    return _registered.get(name) or cast(Wire, import_module(f"{__name__}.{name}"))


def wire_facts(name: str) -> WireFacts:
    """The facts of a wire, without loading it."""
    return _registered[name].FACTS if name in _registered else load_builtin_index().wires[name]


def register_wire(name: str, wire: Wire) -> Callable[[], object]:
    """Add a wire from outside the package. Call the result to remove it again."""
    if name in WIRE_NAMES:
        raise ValueError(f"{name} is a wire of this package")
    _registered[name] = wire
    return partial(_registered.pop, name, None)

"""Shorthand of the wire tests: an answer out of bytes, a request out of messages."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Self

import orjson
import pytest

from hermes.core.errors import Failure, ProviderError
from hermes.core.events import StreamEvent
from hermes.core.history import History
from hermes.core.message import Message, Part, Target
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.history_view import HistoryView
from hermes.llm.provider_spec import Quirks
from hermes.llm.response_builder import ResponseBuilder
from hermes.llm.wire import load_wire
from hermes.llm.wire.body_reader import BodyReader
from hermes.llm.wire.request_fields import RequestHead

PLAIN = Quirks()
DEFAULTS = Settings()
TOOLS = (
    ToolSpec(
        "read",
        "Reads a file.",
        {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    ),
)


def target(wire: str) -> Target:
    return Target("provider", "model", wire)


def cuts(data: bytes, seed: int) -> Iterator[bytes]:
    """The data in pieces: 0 all at once, 1 byte by byte, else at random."""
    rng = random.Random(seed)
    most = (len(data) or 1, 1)[seed] if seed < 2 else 40
    while data:
        size = most if seed < 2 else rng.randint(1, most)
        yield data[:size]
        data = data[size:]


def body_reader(wire: str, answer: ResponseBuilder, content_type: str = "") -> BodyReader:
    """A body of that content type (usually a stream's), read into `answer`."""
    module = load_wire(wire)
    decoder = module.Decoder(answer, PLAIN)
    return BodyReader(decoder, content_type or module.STREAM_TYPE, module.STREAM_TYPE, "h")


def streamed(wire: str, body: bytes, *, seed: int = 0) -> tuple[Message, ResponseBuilder]:
    answer = ResponseBuilder()
    reader = body_reader(wire, answer)
    for chunk in cuts(body, seed):
        reader.feed(chunk)
    reader.close()
    return answer.build_message(target(wire)), answer


def whole(wire: str, body: Any) -> tuple[Message, ResponseBuilder]:
    answer = ResponseBuilder()
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    reader = body_reader(wire, answer, "application/json")
    reader.feed(raw)
    reader.close()
    return answer.build_message(target(wire)), answer


class Read:
    """An answer of one wire, decoded from a body: a stream in pieces of `size`, or a document."""

    wire = ""

    def __init__(self, body: bytes, *, size: int = 0, whole: bool = False) -> None:
        module = load_wire(self.wire)
        self.answer = ResponseBuilder()
        self.decoder: Any = module.Decoder(self.answer, PLAIN)
        self.events: list[StreamEvent] = []
        kind = "application/json" if whole else module.STREAM_TYPE
        reader = BodyReader(self.decoder, kind, module.STREAM_TYPE, "h")
        for i in range(0, len(body), size or len(body) or 1):
            reader.feed(body[i : i + (size or len(body))])
            self.events += self.answer.drain_events()
        reader.close()
        self.events += self.answer.finish_events()
        self.message = self.answer.build_message(Target("p", "m", self.wire))
        self.parts = self.message.parts
        self.stop = self.answer.stop

    @classmethod
    def stream(cls, body: bytes) -> Self:
        """Decoded in one piece; byte by byte must give the same."""
        read, slow = cls(body), cls(body, size=1)
        assert read.message == slow.message
        assert read.decoder.activity == slow.decoder.activity
        return read

    @classmethod
    def failure(cls, body: bytes, *, is_whole: bool = False) -> Failure:
        with pytest.raises(ProviderError) as caught:
            cls(body, whole=is_whole)
        return caught.value.failure


def encode_groups(
    wire: str,
    *groups: Message,
    quirks: Quirks = PLAIN,
    settings: Settings = DEFAULTS,
    system: str = "sys",
    tools: tuple[ToolSpec, ...] = (),
    stream: bool = True,
) -> dict[str, Any]:
    """The request for groups as the view would make them."""
    encoder = load_wire(wire).Encoder(Target("p", "m", wire), quirks)
    for group in groups[:-1]:
        encoder.add_group(group)
    raw = encoder.build_body(groups[-1:], RequestHead(system, tools, settings, stream))
    out: dict[str, Any] = orjson.loads(raw)
    return out


def user(*parts: Part) -> Message:
    return Message("user", parts)


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts)


class Talk:
    """One conversation with one endpoint, as the client holds it."""

    def __init__(self, wire: str, quirks: Quirks = PLAIN) -> None:
        self.encoder = load_wire(wire).Encoder(target(wire), quirks)
        self.view = HistoryView(target(wire), quirks, self.encoder.add_group)
        self.history = History()

    def raw(
        self,
        *messages: Message,
        system: str = "Be brief.",
        tools: Sequence[ToolSpec] = (),
        settings: Settings = DEFAULTS,
        tail: tuple[Message, ...] = (),
        stream: bool = True,
    ) -> bytes:
        """The body of the next request, after these messages were added."""
        for message in messages:
            self.history.append(message)
        self.view.add_new_messages(self.history)
        return self.encoder.build_body(
            self.view.pending_groups(tail), RequestHead(system, tuple(tools), settings, stream)
        )

    def body(self, *messages: Message, **more: Any) -> dict[str, Any]:
        return orjson.loads(self.raw(*messages, **more))

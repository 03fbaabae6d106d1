"""Shorthand of the wire tests: an answer out of bytes, a request out of messages."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from hermes.core.history import History
from hermes.core.message import Message, Target
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.history_view import View
from hermes.llm.provider_spec import Quirks
from hermes.llm.response_builder import ResponseBuilder
from hermes.llm.wire import load_wire
from hermes.llm.wire.body_reader import BodyReader

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


class Talk:
    """One conversation with one endpoint, as the client holds it."""

    def __init__(self, wire: str, quirks: Quirks = PLAIN) -> None:
        self.encoder = load_wire(wire).Encoder(target(wire), quirks)
        self.view = View(target(wire), quirks, self.encoder.push)
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
        self.view.advance(self.history)
        return self.encoder.body(
            self.view.pending(tail), system=system, tools=tools, settings=settings, stream=stream
        )

    def body(self, *messages: Message, **more: Any) -> dict[str, Any]:
        return orjson.loads(self.raw(*messages, **more))

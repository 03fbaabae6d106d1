"""Whatever a provider of three wires sends, decoding ends in an answer or in a ProviderError."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.errors import ProviderError
from hermes.core.message import Message, user
from hermes.llm.assemble import Answer
from hermes.llm.profile import Quirks
from hermes.llm.wire import load
from tests.wire.talk import Talk, target
from tests.wire.test_bedrock import frame

KEYS = {
    "anthropic": (
        "type index delta content_block content message usage text thinking signature data input id"
        " name partial_json citations citation stop_reason error tool_use_id input_tokens"
    ),
    "gemini": (
        "candidates content parts text thought thoughtSignature functionCall args id name index"
        " finishReason finishMessage promptFeedback blockReason usageMetadata promptTokenCount"
        " error executableCode"
    ),
    "bedrock": (
        "output message content text toolUse toolUseId input name type reasoningContent start delta"
        " reasoningText redactedContent signature contentBlockIndex stopReason usage inputTokens"
        " citationsContent citation toolResult"
    ),
}
WORDS = {
    "anthropic": (
        "message_start message_delta message_stop content_block_start content_block_delta"
        " content_block_stop text thinking tool_use server_tool_use text_delta thinking_delta"
        " input_json_delta signature_delta citations_delta error end_turn"
    ),
    "gemini": "STOP SAFETY MAX_TOKENS MALFORMED_FUNCTION_CALL read x",
    "bedrock": "end_turn tool_use server_tool_use malformed_tool_use read x YWJj",
}
EVENTS = (
    "messageStart contentBlockStart contentBlockDelta contentBlockStop messageStop metadata other"
)


def values(wire: str) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(KEYS[wire].split())
    leaves = (
        st.sampled_from(WORDS[wire].split())
        | st.sampled_from([None, True, 0, 1, -3, 1.5, "", "<think>", "{", "\ud800", "\x00"])
        | st.integers(0, 3)
    )
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
        max_leaves=14,
    )


def block(index: int, *deltas: dict[str, Any], **start: Any) -> list[tuple[str, Any]]:
    begin = {"type": "content_block_start", "index": index, "content_block": start}
    more = [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
    return [("", e) for e in (begin, *more, {"type": "content_block_stop", "index": index})]


def chunk(*parts: Any, **more: Any) -> tuple[str, Any]:
    return "", {"candidates": [{"content": {"parts": list(parts)}, **more}]}


GOOD: dict[str, list[tuple[str, Any]]] = {
    "anthropic": [
        ("", {"type": "message_start", "message": {"usage": {"input_tokens": 3}}}),
        *block(
            0,
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "s"},
            type="thinking",
            thinking="",
        ),
        *block(1, {"type": "citations_delta", "citation": {"a": 1}}, type="text", text="x"),
        *block(
            2, {"type": "input_json_delta", "partial_json": "{}"}, type="tool_use", id="a", name="f"
        ),
        *block(
            3,
            {"type": "input_json_delta", "partial_json": "{"},
            type="server_tool_use",
            id="b",
            name="f",
            input={},
        ),
        *block(4, type="web_search_tool_result", tool_use_id="b", content=[]),
        ("", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}),
        ("", {"type": "message_stop"}),
    ],
    "gemini": [
        chunk({"text": "hm", "thought": True}, {"text": "a", "thoughtSignature": "s"}),
        chunk({"functionCall": {"name": "f", "args": {"a": 1}, "id": "x"}}),
        chunk({"executableCode": {"code": "1"}}, finishReason="STOP", finishMessage="m"),
        ("", {"usageMetadata": {"promptTokenCount": 1}, "promptFeedback": {"blockReason": "X"}}),
    ],
    "bedrock": [
        (
            "contentBlockDelta",
            {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "t"}}},
        ),
        (
            "contentBlockDelta",
            {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "s"}}},
        ),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "a"}}),
        (
            "contentBlockStart",
            {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "a", "name": "f"}}},
        ),
        ("contentBlockDelta", {"contentBlockIndex": 2, "delta": {"toolUse": {"input": "{}"}}}),
        ("contentBlockStop", {"contentBlockIndex": 2}),
        (
            "contentBlockStart",
            {"contentBlockIndex": 3, "start": {"toolResult": {"toolUseId": "a"}}},
        ),
        ("contentBlockDelta", {"contentBlockIndex": 3, "delta": {"toolResult": [{"text": "r"}]}}),
        ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"citation": {"title": "t"}}}),
        ("messageStop", {"stopReason": "end_turn"}),
        ("metadata", {"usage": {"inputTokens": 1, "outputTokens": 2}}),
    ],
}


def spoiled(draw: st.DrawFn, value: Any, odd: st.SearchStrategy[Any]) -> Any:
    """The value with some of what is inside replaced."""
    if draw(st.integers(0, 9)) == 0:
        return draw(odd)
    if isinstance(value, dict):
        return {k: spoiled(draw, v, odd) for k, v in value.items()}
    if isinstance(value, list):
        return [spoiled(draw, v, odd) for v in value]
    return value


def framed(wire: str, kind: str, value: Any) -> bytes:
    raw = orjson.dumps(value, default=str) if _sane(value) else b'{"\\ud800": "\\u0000"}'
    if wire == "bedrock":
        return frame({":event-type": kind, ":message-type": "event"}, raw)
    return b"data: " + raw + b"\n\n"


def _sane(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


@st.composite
def streams(draw: st.DrawFn) -> tuple[str, bytes, list[int]]:
    wire = draw(st.sampled_from(sorted(KEYS)))
    kinds = st.sampled_from(EVENTS.split())
    odd = values(wire)
    events = draw(st.lists(st.tuples(kinds, odd), max_size=6))
    if draw(st.booleans()):
        events = [(kind, spoiled(draw, value, odd)) for kind, value in GOOD[wire]]
    body = b"".join(framed(wire, kind, value) for kind, value in events)
    return wire, body, draw(st.lists(st.integers(1, 60), max_size=20))


@settings(max_examples=400)
@given(streams())
def test_any_stream(given_: tuple[str, bytes, list[int]]) -> None:
    wire, body, sizes = given_
    chunks = []
    rest = body
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    cut, whole = decoded(wire, [*chunks, rest]), decoded(wire, [body])
    assert cut == whole
    if isinstance(whole, Message):
        assert whole.stop is not None
        resent(wire, whole)


@settings(max_examples=300)
@given(st.sampled_from(sorted(KEYS)).flatmap(lambda w: st.tuples(st.just(w), values(w))))
def test_any_body(given_: tuple[str, Any]) -> None:
    wire, value = given_
    answer = Answer()
    try:
        load(wire).Decoder(answer, Quirks()).whole(orjson.dumps(value) if _sane(value) else b"{")
    except ProviderError:
        return
    resent(wire, answer.message(target(wire)))


@pytest.mark.parametrize("wire", sorted(KEYS))
@given(st.binary(max_size=200))
def test_any_bytes(wire: str, body: bytes) -> None:
    decoded(wire, [body])
    try:
        load(wire).Decoder(Answer(), Quirks()).whole(body)
    except ProviderError:
        return


def decoded(wire: str, chunks: list[bytes]) -> Any:
    answer = Answer()
    decoder = load(wire).Decoder(answer, Quirks())
    try:
        for chunk in chunks:
            decoder.feed(chunk)
            answer.drain()
        decoder.close()
    except ProviderError as error:
        return error.failure
    answer.finish()
    message = answer.message(target(wire))
    parts = tuple(_plain(p) for p in message.parts)
    return Message("assistant", parts, origin=message.origin, stop=message.stop)


def _plain(part: Any) -> Any:
    """Without ids that are made up anew each time."""
    if getattr(part, "id", "").startswith("call_"):
        return type(part)("made-up", part.name, part.args, part.extra)
    return part


def resent(wire: str, message: Message) -> None:
    """What was understood can be sent back."""
    talk = Talk(wire)
    orjson.loads(talk.raw(user("x"), message, user("y")))
    orjson.loads(talk.raw(user("z")))

"""Whatever a provider of three wires sends, decoding ends in an answer or in a ProviderError."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.errors import ProviderError
from hermes.core.message import Message, Native, user_message
from hermes.core.provider import Settings
from hermes.llm.provider_spec import Quirks
from hermes.llm.response_builder import ResponseBuilder
from hermes.llm.wire import load_wire
from tests.unit.llm.test_history_view import HERE, histories, quirks
from tests.wire.bedrock_frames import frame
from tests.wire.talk import TOOLS, Talk, target

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


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(KEYS)).flatmap(lambda w: st.tuples(st.just(w), values(w))))
def test_any_body(given_: tuple[str, Any]) -> None:
    wire, value = given_
    answer = ResponseBuilder()
    try:
        load_wire(wire).Decoder(answer, Quirks()).decode_document(
            orjson.dumps(value) if _sane(value) else b"{"
        )
    except ProviderError:
        return
    resent(wire, answer.build_message(target(wire)))


@pytest.mark.parametrize("wire", sorted(KEYS))
@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(wire: str, body: bytes) -> None:
    decoded(wire, [body])
    try:
        load_wire(wire).Decoder(ResponseBuilder(), Quirks()).decode_document(body)
    except ProviderError:
        return


def decoded(wire: str, chunks: list[bytes]) -> Any:
    answer = ResponseBuilder()
    decoder = load_wire(wire).Decoder(answer, Quirks())
    try:
        for chunk in chunks:
            decoder.feed(chunk)
            answer.drain_events()
        decoder.close()
    except ProviderError as error:
        return error.failure
    answer.finish_events()
    message = answer.build_message(target(wire))
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
    orjson.loads(talk.raw(user_message("x"), message, user_message("y")))
    orjson.loads(talk.raw(user_message("z")))


# -- any history, sent to any of them ------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(KEYS)), histories, quirks, st.sampled_from([None, "low", "none"]))
def test_any_history_makes_a_legal_request(
    wire: str, history: list[Message], q: Quirks, effort: Any
) -> None:
    for style in ("omit", "budget"):
        talk = Talk(wire, msgspec.structs.replace(q, effort=style))
        body: dict[str, Any] = {}
        own = [at_home(m, wire) for m in [user_message("x"), *history]]
        for message in own:
            body = talk.body(message, tools=TOOLS, settings=Settings(effort=effort))
        # Message by message or all at once: the same bytes.
        again = Talk(wire, msgspec.structs.replace(q, effort=style))
        assert body == again.body(*own, tools=TOOLS, settings=Settings(effort=effort))
        LEGAL[wire](body)


def at_home(message: Message, wire: str) -> Message:
    """The same, as if this wire had made it."""
    if message.origin != HERE:
        return message
    data = {
        "anthropic": {"type": "container_upload", "file_id": "f"},
        "gemini": {"executableCode": {"language": "PYTHON", "code": "1"}},
        "bedrock": {"guardContent": {"text": {"text": "x"}}},
    }[wire]
    parts = tuple(Native(data) if isinstance(p, Native) else p for p in message.parts)
    return msgspec.structs.replace(message, parts=parts, origin=target(wire))


def legal_messages(body: dict[str, Any]) -> None:
    waiting: list[str] = []
    for i, message in enumerate(body["messages"]):
        blocks = message["content"]
        assert message["role"] == ("user", "assistant")[i % 2]
        assert blocks
        answered = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        assert answered == waiting
        assert all(b["type"] == "tool_result" for b in blocks[: len(answered)])
        waiting = [b["id"] for b in blocks if b["type"] == "tool_use"]
        for block in blocks:
            if block["type"] == "text":
                assert block["text"].strip()
            elif block["type"] == "tool_use":
                assert isinstance(block["input"], dict)
    assert not waiting
    assert body.get("thinking", {}).get("budget_tokens", 0) < body["max_tokens"]


def legal_contents(body: dict[str, Any]) -> None:
    waiting: list[str] = []
    for i, content in enumerate(body["contents"]):
        assert content["role"] == ("user", "model")[i % 2]
        assert content["parts"]
        answers = [p["functionResponse"] for p in content["parts"] if "functionResponse" in p]
        assert [a["name"] for a in answers] == waiting
        assert all(isinstance(a["response"], dict) for a in answers)
        waiting = [p["functionCall"]["name"] for p in content["parts"] if "functionCall" in p]
    assert not waiting


def legal_converse(body: dict[str, Any]) -> None:
    from botocore.validate import ParamValidator

    from tests.wire.test_other_oracles import _converse

    report = ParamValidator().validate({"modelId": "m", **body}, _converse()[1].input_shape)
    assert not report.has_errors(), report.generate_report()
    waiting: list[str] = []
    for i, message in enumerate(body["messages"]):
        assert message["role"] == ("user", "assistant")[i % 2]
        assert message["content"]
        results = [b["toolResult"] for b in message["content"] if "toolResult" in b]
        assert [r["toolUseId"] for r in results] == waiting
        waiting = [b["toolUse"]["toolUseId"] for b in message["content"] if "toolUse" in b]
        assert all(b["text"].strip() for b in message["content"] if "text" in b)
        assert all(r["content"] for r in results)
    assert not waiting


LEGAL = {"anthropic": legal_messages, "gemini": legal_contents, "bedrock": legal_converse}

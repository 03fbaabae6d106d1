"""What the chat and the responses wire have in common: one table, each case on both."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.errors import Kind, ProviderError
from hermes.core.message import Message, Text, ToolCall, ToolReturn
from hermes.core.provider import Settings
from hermes.llm.response_builder import ResponseBuilder
from hermes.llm.wire import load_wire
from hermes.llm.wire.request_fields import RequestHead
from tests.wire import chat_frames, responses_frames, talk
from tests.wire.chat_frames import chunk, events
from tests.wire.responses_frames import added, done, end, ev, frames, function, message
from tests.wire.talk import TOOLS, assistant, encode_groups, target, user


@dataclass(frozen=True)
class Wire:
    """One of them: its bytes for the same meaning."""

    name: str
    read: type[talk.Read]
    path: str
    text: bytes
    end: bytes
    cut_call: Callable[[str], bytes]
    """A call with these arguments, ended by the output limit."""
    messages: str
    """The field of a request that holds the conversation."""
    system: int
    """How many of its elements are the system prompt."""
    sent_args: Callable[[dict[str, Any]], str]
    """Arguments of the only call in a request."""
    no_answers: tuple[tuple[bytes, Kind], ...]
    keys: str
    """That mean something in its answers."""
    values: tuple[str, ...] = ()


def _cut_chat(args: str) -> bytes:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": args}}
    return events(chunk({"tool_calls": [call]}), chunk({}, "length"))


def _cut_responses(args: str) -> bytes:
    last = end("incomplete", incomplete_details={"reason": "max_output_tokens"})
    delta = ev("function_call_arguments.delta", 0, delta=args)
    return frames(added(function("c", "")), delta, last)


CHAT = Wire(
    "chat",
    chat_frames.Read,
    "/chat/completions",
    events(chunk({"content": "hi"}), done=False),
    events(chunk({}, "stop"), done=False),
    _cut_chat,
    "messages",
    1,
    lambda body: str(body["messages"][2]["tool_calls"][0]["function"]["arguments"]),
    (
        (b"Not found", Kind.NOT_API),
        (b'{"status":"ok"}', Kind.NOT_API),
        (b'{"choices":[{"mess', Kind.NETWORK),
        (b'{"error":{"message":"no such key","code":"invalid_api_key"}}', Kind.AUTH),
    ),
    "choices delta message content tool_calls function name arguments index id type text usage "
    "error code finish_reason reasoning reasoning_details prompt_tokens x_groq",
    ("stop", "error"),
)
RESPONSES = Wire(
    "responses",
    responses_frames.Read,
    "/responses",
    frames(done(message("hi"))),
    frames(end()),
    _cut_responses,
    "input",
    0,
    lambda body: str(body["input"][1]["arguments"]),
    (
        (b'{"status_page":"ok"}', Kind.NOT_API),
        (b'{"output":[{"ty', Kind.NETWORK),
        (b'{"error":{"message":"m","code":"model_not_found"}}', Kind.MODEL_NOT_FOUND),
        (
            b'{"status":"failed","output":[],"error":{"code":"server_error","message":"x"}}',
            Kind.SERVER,
        ),
    ),
    "type output_index content_index delta item part text arguments response output content "
    "summary status error usage input_tokens call_id name id refusal",
    (
        "response.output_item.done",
        "response.output_item.added",
        "response.completed",
        "message",
        "function_call",
        "reasoning",
        "response.output_text.delta",
        "response.refusal.delta",
    ),
)
WIRES = pytest.mark.parametrize("wire", [CHAT, RESPONSES], ids=lambda wire: wire.name)
HI = user(Text("hi"))


# -- answers -----------------------------------------------------------------------------------


@WIRES
def test_the_last_word_is_known_before_the_stream_ends(wire: Wire) -> None:
    decoder = load_wire(wire.name).Decoder(ResponseBuilder(), talk.PLAIN)
    decoder.feed(wire.text)
    assert not decoder.is_finished
    decoder.feed(wire.end)
    assert decoder.is_finished


@WIRES
@pytest.mark.parametrize(
    ("args", "stop"),
    [('{"a":"x', "length"), ('{"a', "length"), ("", "length"), ("{}", "tool_use")],
)
def test_a_call_cut_by_the_limit_says_so(wire: Wire, args: str, stop: str) -> None:
    assert wire.read.stream(wire.cut_call(args)).stop == stop


@pytest.mark.parametrize(
    ("wire", "body", "kind"),
    [
        pytest.param(wire, body, kind, id=f"{wire.name}-{body[:24].decode()}")
        for wire in (CHAT, RESPONSES)
        for body, kind in (
            (b"<html><body>Sign in</body></html>", Kind.NOT_API),
            (b"<html>", Kind.NOT_API),
            (b"[]", Kind.NOT_API),
            *wire.no_answers,
        )
    ],
)
def test_bodies_that_are_no_answer(wire: Wire, body: bytes, kind: Kind) -> None:
    assert wire.read.failure(body, is_whole=True).kind is kind
    if body.startswith((b"<", b"{", b"[")):
        assert wire.read.failure(body).kind is kind


@WIRES
def test_an_empty_document_is_no_answer(wire: Wire) -> None:
    with pytest.raises(ProviderError) as caught:
        load_wire(wire.name).Decoder(ResponseBuilder(), talk.PLAIN).decode_document(b"")
    assert caught.value.failure.kind is Kind.NOT_API


def _json(wire: Wire) -> st.SearchStrategy[Any]:
    texts = st.sampled_from(["", "a", *wire.values])
    return st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | texts,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(wire.keys.split()), inner, max_size=5)
        ),
        max_leaves=12,
    )


@WIRES
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_no_json_can_crash_the_decoder(wire: Wire, data: st.DataObject) -> None:
    values = data.draw(st.lists(_json(wire), max_size=4))
    body = b"".join(b"data: " + json.dumps(v).encode() + b"\n\n" for v in values)
    for raw, is_whole in ((body, False), (json.dumps(values[:1]).encode()[1:-1], True)):
        answer = ResponseBuilder()
        decoder = load_wire(wire.name).Decoder(answer, talk.PLAIN)
        try:
            if is_whole:
                decoder.decode_document(raw)
            else:
                decoder.feed(raw)
                decoder.close()
        except ProviderError:
            pass
        answer.finish_events()
        answer.build_message(target(wire.name))


# -- requests ----------------------------------------------------------------------------------


@WIRES
@pytest.mark.parametrize(
    ("base", "before", "after"),
    [
        ("https://h/v1", "https://h/v1", ""),
        ("https://h/v1/", "https://h/v1", ""),
        ("https://h/v1{path}", "https://h/v1", ""),
        ("https://h/d?api-version=1", "https://h/d", "?api-version=1"),
    ],
)
def test_url(wire: Wire, base: str, before: str, after: str) -> None:
    for stream in (True, False):
        found = load_wire(wire.name).build_url(base.format(path=wire.path), "m", stream=stream)
        assert found == before + wire.path + after


@WIRES
@pytest.mark.parametrize("args", ['{"a":', "[1]", '"x"', "not json", "oops", '{"a":"\x01"}'])
def test_arguments_that_are_no_object_are_told_legally(wire: Wire, args: str) -> None:
    call, result = assistant(ToolCall("c", "f", args)), user(ToolReturn("c", "f"))
    value = json.loads(wire.sent_args(encode_groups(wire.name, HI, call, result)))
    assert isinstance(value, dict) and value


@WIRES
@pytest.mark.parametrize("args", ["", "None", "null", ' "" '])
def test_no_arguments_are_an_empty_object(wire: Wire, args: str) -> None:
    call, result = assistant(ToolCall("c", "f", args)), user(ToolReturn("c", "f"))
    assert json.loads(wire.sent_args(encode_groups(wire.name, HI, call, result))) == {}


@WIRES
def test_consecutive_requests_share_their_prefix_byte_for_byte(wire: Wire) -> None:
    encoder = load_wire(wire.name).Encoder(target(wire.name), talk.PLAIN)
    groups: list[Message] = []
    last = b""
    for i in range(20):
        groups.append(user(Text(f"question {i}")) if i % 2 == 0 else assistant(Text(f"answer {i}")))
        if i % 2 == 0:
            raw = encoder.build_body(groups[i:], RequestHead("sys", TOOLS, Settings(), True))
            assert raw.startswith(last)
            assert len(json.loads(raw)[wire.messages]) == i + 1 + wire.system
            last = raw.removesuffix(b"]}")
        encoder.add_group(groups[i])

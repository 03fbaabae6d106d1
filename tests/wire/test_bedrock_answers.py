"""Answers of Bedrock's wire."""

from __future__ import annotations

from base64 import b64encode

import orjson
import pytest

from hermes.core.errors import Kind, ProviderError
from hermes.core.message import (
    Message,
    Native,
    Text,
    Thinking,
    ToolCall,
    user_message,
)
from hermes.llm.wire import bedrock
from tests.wire.bedrock_frames import SEEDS, WIRE, begin, delta, ends, event, frame, plain, stop
from tests.wire.talk import Talk, streamed, target, whole

# -- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_whole_stream(seed: int) -> None:
    first, second = b64encode(b"red").decode(), b64encode(b"acted!").decode()
    body = (
        event("messageStart", role="assistant")
        + delta(0, reasoningContent={"text": "Let me "})
        + delta(0, reasoningContent={"text": "see."})
        + delta(0, reasoningContent={"signature": "sig"})
        + stop(0)
        + delta(1, reasoningContent={"redactedContent": first})
        + delta(1, reasoningContent={"redactedContent": second})
        + stop(1)
        + delta(2, text="Voi")
        + delta(2, text="là é")
        + stop(2)
        + begin(3, toolUse={"toolUseId": "t1", "name": "read", "type": "tool_use"})
        + delta(3, toolUse={"input": ""})
        + delta(3, toolUse={"input": '{"path": '})
        + delta(3, toolUse={"input": '"é"}'})
        + stop(3)
        + begin(4, toolUse={"toolUseId": "t2", "name": "list"})
        + stop(4)
        + event("somethingNew", x=1)
        + ends(
            "tool_use",
            inputTokens=10,
            outputTokens=20,
            totalTokens=37,
            cacheReadInputTokens=5,
            cacheReadInputTokenCount=5,
            cacheWriteInputTokens=2,
            cacheWriteInputTokenCount=2,
        )
    )
    message, answer = streamed(WIRE, body, seed=seed)
    assert message.parts == (
        Thinking("Let me see.", {"signature": "sig"}),
        Thinking("", {"redacted": b64encode(b"redacted!").decode()}),
        Text("Voilà é"),
        ToolCall("t1", "read", '{"path": "é"}'),
        ToolCall("t2", "list", "{}"),
    )
    assert message.stop == "tool_use"
    usage = answer.usage
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write) == (17, 20, 5, 2)


def test_a_plain_answer_says_the_same() -> None:
    redacted = b64encode(b"redacted!").decode()
    body = plain(
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": redacted}},
        {"text": "Voilà"},
        {"toolUse": {"toolUseId": "t1", "name": "read", "input": {"path": "é"}}},
        reason="tool_use",
        usage={
            "inputTokens": 3,
            "outputTokens": 4,
            "cacheReadInputTokens": None,
            "cacheReadInputTokenCount": 2,
        },
        additionalModelResponseFields="anything",
    )
    message, answer = whole(WIRE, body)
    assert message.parts == (
        Thinking("hm", {"signature": "sig"}),
        Thinking("", {"redacted": redacted}),
        Text("Voilà"),
        ToolCall("t1", "read", '{"path":"é"}'),
    )
    assert (answer.usage.input, answer.usage.output, answer.usage.cache_read) == (5, 4, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_thinking_aloud_is_reasoning(seed: int) -> None:
    body = (
        delta(0, text="<thinking")
        + delta(0, text="> I need")
        + delta(0, text=" it.</thin")
        + delta(0, text="king>\n")
        + stop(0)
        + begin(1, toolUse={"toolUseId": "t", "name": "read"})
        + delta(1, toolUse={"input": "{}"})
        + stop(1)
        + ends("tool_use")
    )
    message, _ = streamed(WIRE, body, seed=seed)
    assert (message.text.strip(), message.thinking.strip()) == ("", "I need it.")
    assert [c.name for c in message.calls] == ["read"]
    # It is not a reasoning block and must not go back as one.
    content = Talk(WIRE).body(user_message("x"), message)["messages"][1]["content"]
    assert [list(b) for b in content] == [["toolUse"]]


def test_what_the_service_ran_is_kept_in_place_and_is_no_call() -> None:
    use = {"toolUseId": "s", "name": "code", "type": "server_tool_use", "input": {"a": 1}}
    done = {
        "toolUseId": "s",
        "type": "code_result",
        "status": "success",
        "content": [{"json": {"out": "1"}}],
    }
    body = plain({"text": "A"}, {"toolUse": use}, {"toolResult": done}, {"text": "B"})
    expected = (Text("A"), Native({"toolUse": use}), Native({"toolResult": done}), Text("B"))
    message, _ = whole(WIRE, body)
    assert message.parts == expected
    started = {k: v for k, v in use.items() if k != "input"}
    result_started = {k: v for k, v in done.items() if k != "content"}
    stream = (
        delta(0, text="A")
        + begin(1, toolUse=started)
        + delta(1, toolUse={"input": '{"a"'})
        + delta(1, toolUse={"input": ": 1}"})
        + stop(1)
        + begin(2, toolResult=result_started)
        + delta(2, toolResult=[{"json": {"out": "1"}}])
        + stop(2)
        + delta(3, text="B")
        + ends()
    )
    message, _ = streamed(WIRE, stream)
    assert message.parts == expected
    assert (message.stop, message.calls) == ("end", ())
    content = Talk(WIRE).body(user_message("?"), message)["messages"][1]["content"]
    assert content == [{"text": "A"}, {"toolUse": use}, {"toolResult": done}, {"text": "B"}]
    alone = Message("assistant", expected[:2], origin=target(WIRE))
    body = Talk(WIRE).body(user_message("?"), alone, user_message("go on"))
    assert body["messages"][1]["content"] == [{"text": "A"}]


def test_cited_text() -> None:
    cite = {"title": "T", "sourceContent": [{"text": "s"}], "location": {"web": {"url": "u"}}}
    block = {"citationsContent": {"content": [{"text": "It is so."}], "citations": [cite]}}
    message, _ = whole(WIRE, plain(block))
    assert message.parts == (Text("It is so.", {"citations": [cite]}),)
    stream = delta(0, text="It is ") + delta(0, citation=cite) + delta(0, text="so.") + stop(0)
    assert streamed(WIRE, stream + ends())[0].parts == message.parts
    content = Talk(WIRE).body(user_message("?"), message)["messages"][1]["content"]
    assert content == [block]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "length"),
        ("guardrail_intervened", "filtered"),
        ("content_filtered", "filtered"),
        ("model_context_window_exceeded", "length"),
        ("malformed_tool_use", "died"),
        ("unheard_of", "end"),
    ],
)
def test_why_it_stopped(reason: str, expected: str) -> None:
    assert streamed(WIRE, delta(0, text="words") + ends(reason))[0].stop == expected
    assert whole(WIRE, plain({"text": "words"}, reason=reason))[0].stop == expected


def test_nothing_but_a_reason() -> None:
    for reason, kind in [
        ("malformed_model_output", Kind.EMPTY),
        ("model_context_window_exceeded", Kind.CONTEXT_OVERFLOW),
    ]:
        with pytest.raises(ProviderError) as caught:
            streamed(WIRE, ends(reason))
        assert caught.value.failure.kind is kind


def test_a_stream_that_broke_off_died() -> None:
    body = delta(0, text="half") + begin(1, toolUse={"toolUseId": "t", "name": "write"})
    message, answer = streamed(WIRE, body + delta(2, text="more")[:30])
    assert (message.stop, message.text, answer.call_names) == ("died", "half", ("write",))
    assert streamed(WIRE, b"")[0].stop == "died"


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("throttlingException", Kind.RATE_LIMITED),
        ("serviceUnavailableException", Kind.OVERLOADED),
        ("internalServerException", Kind.SERVER),
        ("modelStreamErrorException", Kind.SERVER),
        ("validationException", Kind.BAD_REQUEST),
    ],
)
def test_an_exception_frame(type_: str, kind: Kind) -> None:
    headers = {":exception-type": type_, ":message-type": "exception"}
    body = delta(0, text="shown") + frame(headers, b'{"message": "Sorry."}')
    with pytest.raises(ProviderError) as caught:
        streamed(WIRE, body)
    failure = caught.value.failure
    assert (failure.kind, failure.code, failure.message) == (kind, type_, "Sorry.")


def test_an_error_frame_and_the_models_own_words() -> None:
    headers = {":message-type": "error", ":error-code": "InternalError", ":error-message": "Oops."}
    with pytest.raises(ProviderError) as caught:
        streamed(WIRE, frame(headers, b""))
    assert caught.value.failure.message == "Oops."
    headers = {":message-type": "exception", ":exception-type": "modelStreamErrorException"}
    inner = {"message": "m", "originalStatusCode": 429, "originalMessage": "Too many requests"}
    with pytest.raises(ProviderError) as caught:
        streamed(WIRE, frame(headers, orjson.dumps(inner)))
    assert caught.value.failure.kind is Kind.RATE_LIMITED


def test_a_damaged_frame_is_a_broken_connection() -> None:
    body = bytearray(delta(0, text="words"))
    body[40] ^= 1
    with pytest.raises(ProviderError) as caught:
        streamed(WIRE, bytes(body))
    assert caught.value.failure.kind is Kind.NETWORK


def test_errors_and_bodies_that_are_no_answer() -> None:
    headers = {"X-Amzn-ErrorType": "ValidationException:http://internal.amazon.com/"}
    assert bedrock.read_error({"message": "Bad."}, headers) == ("ValidationException", "Bad.", "")
    typed = {"__type": "com.amazon#AccessDeniedException", "Message": "No."}
    assert bedrock.read_error(typed, {}) == ("AccessDeniedException", "No.", "")
    assert bedrock.read_error(None, {}) == ("", "", "")
    for body, kind in [
        ({"message": "Too many requests, please wait"}, Kind.RATE_LIMITED),
        ({"status": "ok"}, Kind.NOT_API),
        (b"<html>", Kind.NOT_API),
        (b'{"output": {"mess', Kind.NETWORK),
    ]:
        with pytest.raises(ProviderError) as caught:
            whole(WIRE, body)
        assert caught.value.failure.kind is kind


def test_content_types_lie() -> None:
    assert streamed(WIRE, orjson.dumps(plain({"text": "hi"})), seed=2)[0].text == "hi"
    assert whole(WIRE, delta(0, text="hi") + ends())[0].text == "hi"


def test_odd_values_break_nothing() -> None:
    body = (
        event("contentBlockDelta")
        + event("contentBlockDelta", contentBlockIndex="x", delta={"text": None})
        + frame({":event-type": "contentBlockDelta", ":message-type": "event"}, b"no json")
        + delta(0, reasoningContent={"redactedContent": "not base64!"})
        + delta(1, toolUse=None)
        + delta(2, text="fine")
        + ends(inputTokens=-1)
    )
    message, answer = streamed(WIRE, body)
    assert message.text == "fine"
    assert answer.usage.estimated
    assert whole(WIRE, plain(None, 7, {}, {"text": "x"}, usage=None))[0].text == "x"

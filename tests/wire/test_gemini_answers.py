"""Answers of Google's wire."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from hermes.core.errors import Kind, ProviderError
from hermes.core.message import (
    Native,
    Text,
    Thinking,
    ToolCall,
    user_message,
)
from hermes.llm.wire.gemini import read_error
from tests.wire.gemini_frames import SEEDS, WIRE, call, chunk, sse
from tests.wire.talk import Talk, streamed, whole

# -- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_a_whole_stream(seed: int, end: bytes) -> None:
    body = sse(
        chunk({"text": "Let me ", "thought": True}, usage={"promptTokenCount": 169}),
        chunk({"text": "think.", "thought": True}),
        chunk({"text": "Voilà"}, {"text": " le"}),
        chunk({"text": " fichier"}, {"text": ""}),
        chunk({**call(id="g1"), "thoughtSignature": "sig1"}),
        chunk(call("list")),
        chunk({"text": "", "thoughtSignature": "sig2"}),
        chunk(
            reason="STOP",
            message="Model generated function call(s).",
            usage={
                "promptTokenCount": 79,
                "toolUsePromptTokenCount": 11,
                "candidatesTokenCount": 12,
                "thoughtsTokenCount": 30,
                "cachedContentTokenCount": 50,
            },
        ),
        end=end,
    )
    message, answer = streamed(WIRE, body, seed=seed)
    first, second = message.calls
    assert message.parts == (
        Thinking("Let me think."),
        Text("Voilà le fichier"),
        ToolCall("g1", "read", '{"path":"é"}', {"id": "g1", "thoughtSignature": "sig1"}),
        ToolCall(second.id, "list", '{"path":"é"}'),
        Text("", {"thoughtSignature": "sig2"}),
    )
    assert second.id not in ("", first.id)
    assert message.stop == "tool_use"
    usage = answer.usage
    assert (usage.input, usage.output, usage.cache_read, usage.reasoning) == (90, 42, 50, 30)


@pytest.mark.parametrize("seed", SEEDS)
def test_arguments_that_come_value_by_value(seed: int) -> None:
    def more(*pieces: Any, **call: Any) -> dict[str, Any]:
        given = [{"jsonPath": path, **value} for path, value in pieces]
        return {"functionCall": {**({"partialArgs": given} if given else {}), **call}}

    goes_on = {"willContinue": True}
    body = sse(
        chunk({**more(name="edit", id="g1", **goes_on), "thoughtSignature": "s"}),
        chunk(more(("$.text", {"stringValue": "Ça ", **goes_on}), **goes_on)),
        chunk(more(("$.text", {"stringValue": "va"}), ("$.at[1]['x']", {"numberValue": 2}))),
        chunk(more(("$.all", {"boolValue": False}), name="list", **goes_on)),
        chunk(more(("$.none", {"nullValue": "NULL_VALUE"}), **goes_on)),
        chunk({"functionCall": {}}),
        chunk(call()),
        chunk(reason="STOP"),
    )
    message, _ = streamed(WIRE, body, seed=seed)
    assert [(c.name, orjson.loads(c.args)) for c in message.calls] == [
        ("edit", {"text": "Ça va", "at": [None, {"x": 2}]}),
        ("list", {"all": False, "none": None}),
        ("read", {"path": "é"}),
    ]
    assert message.calls[0].extra == {"id": "g1", "thoughtSignature": "s"}


def test_a_reason_that_is_none_ends_nothing() -> None:
    body = sse(chunk({"text": "a"}, reason="FINISH_REASON_UNSPECIFIED"), chunk({"text": "b"}))
    assert streamed(WIRE, body)[0].stop == "died"


def test_a_count_once_given_is_not_taken_back() -> None:
    body = sse(
        chunk({"text": "a"}, usage={"promptTokenCount": 55, "thoughtsTokenCount": 9}),
        chunk({"text": "b"}, reason="STOP", usage={"promptTokenCount": 257}),
    )
    usage = streamed(WIRE, body)[1].usage
    assert (usage.input, usage.output, usage.reasoning) == (257, 9, 9)


def test_a_signature_stays_with_its_part() -> None:
    body = sse(
        chunk({"text": "one "}),
        chunk({"text": "two ", "thoughtSignature": "s"}),
        chunk({"text": "three"}),
        chunk({"text": " four"}, reason="STOP"),
    )
    message, _ = streamed(WIRE, body)
    assert message.parts == (
        Text("one "),
        Text("two ", {"thoughtSignature": "s"}),
        Text("three four"),
    )
    assert message.text == "one two three four"


def test_a_signature_outlives_reasoning_tags_in_the_text() -> None:
    body = sse(
        chunk({"text": "<think>hm</think>yes"}),
        chunk({"text": "", "thoughtSignature": "s"}, reason="STOP"),
    )
    message, _ = streamed(WIRE, body)
    assert message.parts == (Thinking("hm"), Text("yes"), Text("", {"thoughtSignature": "s"}))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_provider_ran_is_kept_in_place_and_is_no_call(seed: int) -> None:
    ran = [
        {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"toolCall": {"toolType": "SEARCH", "id": "x", "args": {}}, "thoughtSignature": "s"},
        {"toolResponse": {"toolType": "SEARCH", "id": "x", "response": {}}},
        {"somethingNew": {"a": 1}},
    ]
    body = sse(chunk({"text": "A"}, *ran, {"text": "B"}, reason="STOP"))
    message, _ = streamed(WIRE, body, seed=seed)
    assert message.parts == (Text("A"), *(Native(p) for p in ran), Text("B"))
    assert (message.stop, message.calls) == ("end", ())
    sent = Talk(WIRE).body(user_message("?"), message)["contents"][1]["parts"]
    assert sent == [{"text": "A"}, *ran, {"text": "B"}]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", "end"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "filtered"),
        ("RECITATION", "filtered"),
        ("PROHIBITED_CONTENT", "filtered"),
        ("SPII", "filtered"),
        ("BLOCKLIST", "filtered"),
        ("MODEL_ARMOR", "filtered"),
        ("MALFORMED_FUNCTION_CALL", "died"),
        ("OTHER", "end"),
        ("UNHEARD_OF", "end"),
    ],
)
def test_why_it_stopped(reason: str, stop: str) -> None:
    assert streamed(WIRE, sse(chunk({"text": "words"}), chunk(reason=reason)))[0].stop == stop
    assert whole(WIRE, chunk({"text": "words"}, reason=reason))[0].stop == stop


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "MODEL_ARMOR", "IMAGE_SAFETY"])
def test_a_blocked_answer_is_an_error_in_the_providers_words(reason: str) -> None:
    thought = {"text": "hm", "thought": True}
    for body in (
        sse(chunk(thought), chunk(reason=reason, message="It violates settings.")),
        sse(chunk(reason=reason, message="It violates settings.")),
    ):
        with pytest.raises(ProviderError) as caught:
            streamed(WIRE, body)
        failure = caught.value.failure
        assert failure.kind is Kind.CONTENT_POLICY
        assert (failure.message, failure.code) == ("It violates settings.", reason)


def test_a_blocked_prompt_is_an_error() -> None:
    for feedback, said in [
        ({"blockReason": "PROHIBITED_CONTENT"}, "PROHIBITED_CONTENT"),
        ({"blockReason": "OTHER", "blockReasonMessage": "No."}, "No."),
    ]:
        body = {"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 3}}
        for decode in (lambda b=body: whole(WIRE, b), lambda b=body: streamed(WIRE, sse(b))):
            with pytest.raises(ProviderError) as caught:
                decode()
            assert caught.value.failure.kind is Kind.CONTENT_POLICY
            assert caught.value.failure.message == said


def test_a_call_nobody_declared_is_still_a_call() -> None:
    body = chunk(call("nobody"), reason="UNEXPECTED_TOOL_CALL", message="Unexpected tool call")
    message, _ = whole(WIRE, body)
    assert (message.stop, message.calls[0].name) == ("tool_use", "nobody")


def test_a_malformed_call_without_anything_else_is_empty() -> None:
    body = chunk(reason="MALFORMED_FUNCTION_CALL", message="Malformed function call: read(")
    with pytest.raises(ProviderError) as caught:
        whole(WIRE, body)
    assert caught.value.failure.kind is Kind.EMPTY
    assert "read(" in caught.value.failure.message


def test_a_stream_that_broke_off_died() -> None:
    assert streamed(WIRE, sse(chunk({"text": "half"})))[0].stop == "died"
    assert streamed(WIRE, b"")[0].stop == "died"
    array = orjson.dumps([chunk({"text": "half"})])
    assert whole(WIRE, array)[0].stop == "died"


@pytest.mark.parametrize("seed", SEEDS)
def test_an_array_instead_of_events(seed: int) -> None:
    body = orjson.dumps(
        [chunk({"text": "a"}), chunk({"text": "b"}, reason="STOP", usage={"promptTokenCount": 4})],
        option=orjson.OPT_INDENT_2,
    )
    for message, answer in (whole(WIRE, body), streamed(WIRE, body, seed=seed)):
        assert (message.text, message.stop, answer.usage.input) == ("ab", "end", 4)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (429, "RESOURCE_EXHAUSTED", Kind.RATE_LIMITED),
        (503, "UNAVAILABLE", Kind.OVERLOADED),
        (500, "INTERNAL", Kind.SERVER),
        (400, "INVALID_ARGUMENT", Kind.BAD_REQUEST),
        (403, "PERMISSION_DENIED", Kind.FORBIDDEN),
    ],
)
def test_an_error_in_band(code: int, status: str, kind: Kind) -> None:
    body = {"error": {"code": code, "message": "Sorry.", "status": status}}
    assert read_error(body, {}) == (status, "Sorry.", "")
    assert read_error([body], {}) == (status, "Sorry.", "")
    for decode in (
        lambda: whole(WIRE, body),
        lambda: whole(WIRE, [body]),
        lambda: streamed(WIRE, sse(chunk({"text": "shown"}), body)),
    ):
        with pytest.raises(ProviderError) as caught:
            decode()
        failure = caught.value.failure
        assert (failure.kind, failure.status, failure.message) == (kind, code, "Sorry.")


def test_the_details_of_an_error_are_told() -> None:
    details = [{"@type": "x", "reason": "API_KEY_INVALID"}, {"retryDelay": "7s"}]
    body = {"error": {"code": 400, "message": "No.", "status": "X", "details": details}}
    assert read_error(body, {})[1] == "No. (reason: API_KEY_INVALID) (retryDelay: 7s)"
    assert read_error({"error": "plain"}, {}) == ("", "plain", "")
    assert read_error(None, {}) == ("", "", "")


def test_odd_values_break_nothing() -> None:
    body = b"data: nonsense\r\n\r\ndata: 3\r\n\r\n" + sse(
        {"candidates": None, "usageMetadata": None},
        {"candidates": [None, {"index": 1, "content": {"parts": [{"text": "other"}]}}]},
        {"candidates": [{"content": None}]},
        chunk(None, 7, {"functionCall": None}, {"text": None}, {"thought": True}, {}),
        chunk({"text": "fine"}, reason="STOP", usage={"promptTokenCount": -1}),
    )
    message, answer = streamed(WIRE, body)
    assert message.text == "fine"
    assert answer.usage.estimated
    with pytest.raises(ProviderError) as caught:
        whole(WIRE, {"detail": "Not Found"})
    assert caught.value.failure.kind is Kind.NOT_API

"""The Converse protocol: odd answers understood, requests the API takes, signatures."""

from __future__ import annotations

import struct
from base64 import b64encode
from binascii import crc32
from typing import Any

import orjson
import pytest

from hermes.core.errors import ConfigError, Kind, ProviderError
from hermes.core.message import (
    Media,
    Message,
    Native,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
    user,
)
from hermes.core.provider import Settings
from hermes.llm.auth import aws
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire import bedrock
from tests.wire.talk import TOOLS, Talk, streamed, target, whole

WIRE = "bedrock"
SEEDS = range(5)


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One message of an AWS event stream, as the format is documented."""
    packed = b""
    for name, value in headers.items():
        raw = value.encode()
        packed += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(raw)) + raw
    prelude = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    prelude += struct.pack(">I", crc32(prelude))
    message = prelude + packed + payload
    return message + struct.pack(">I", crc32(message))


def event(kind: str, **payload: Any) -> bytes:
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, orjson.dumps({**payload, "p": "abcdef"}))


def delta(index: int, **inner: Any) -> bytes:
    return event("contentBlockDelta", contentBlockIndex=index, delta=inner)


def begin(index: int, **inner: Any) -> bytes:
    return event("contentBlockStart", contentBlockIndex=index, start=inner)


def stop(index: int) -> bytes:
    return event("contentBlockStop", contentBlockIndex=index)


def ends(reason: str = "end_turn", **usage: int) -> bytes:
    return event("messageStop", stopReason=reason) + event("metadata", usage=usage)


def plain(*content: Any, reason: str = "end_turn", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": list(content)}
    return {"output": {"message": message}, "stopReason": reason, **more}


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
    content = Talk(WIRE).body(user("x"), message)["messages"][1]["content"]
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
    content = Talk(WIRE).body(user("?"), message)["messages"][1]["content"]
    assert content == [{"text": "A"}, {"toolUse": use}, {"toolResult": done}, {"text": "B"}]
    alone = Message("assistant", expected[:2], origin=target(WIRE))
    body = Talk(WIRE).body(user("?"), alone, user("go on"))
    assert body["messages"][1]["content"] == [{"text": "A"}]


def test_cited_text() -> None:
    cite = {"title": "T", "sourceContent": [{"text": "s"}], "location": {"web": {"url": "u"}}}
    block = {"citationsContent": {"content": [{"text": "It is so."}], "citations": [cite]}}
    message, _ = whole(WIRE, plain(block))
    assert message.parts == (Text("It is so.", {"citations": [cite]}),)
    stream = delta(0, text="It is ") + delta(0, citation=cite) + delta(0, text="so.") + stop(0)
    assert streamed(WIRE, stream + ends())[0].parts == message.parts
    content = Talk(WIRE).body(user("?"), message)["messages"][1]["content"]
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
    assert bedrock.error({"message": "Bad."}, headers) == ("ValidationException", "Bad.", "")
    typed = {"__type": "com.amazon#AccessDeniedException", "Message": "No."}
    assert bedrock.error(typed, {}) == ("AccessDeniedException", "No.", "")
    assert bedrock.error(None, {}) == ("", "", "")
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


# -- requests ------------------------------------------------------------------------------------


def test_a_result_whose_content_changes_its_form_breaks_nothing() -> None:
    """A list may follow where a text stood."""
    body = (
        begin(0, toolResult={"toolUseId": "s1", "content": "text"})
        + delta(0, toolResult=[{"text": "more"}])
        + stop(0)
        + delta(1, text="done")
        + ends()
    )
    assert streamed(WIRE, body)[0].text == "done"


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts, origin=target(WIRE))


def result(id: str, *content: Text | Media, failed: bool = False) -> Message:
    return Message("tool", (ToolReturn(id, "read", content, failed),))


CALL = ToolCall("t1", "read", '{"path":"a"}')


def test_addresses() -> None:
    base = "https://bedrock-runtime.us-east-1.amazonaws.com"
    model = "us.amazon.nova-v1:0"
    assert bedrock.url(base, model, stream=False) == f"{base}/model/us.amazon.nova-v1%3A0/converse"
    arn = "arn:aws:bedrock:us-east-1:1:inference-profile/x"
    path = "arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fx"
    assert bedrock.url(base + "/", arn, stream=True) == f"{base}/model/{path}/converse-stream"


def test_an_ordinary_request() -> None:
    body = Talk(WIRE).body(
        user("hi"),
        assistant(Thinking("hm", {"signature": "s"}), Text("Reading."), CALL),
        result("t1", Text("content")),
        tools=TOOLS,
        settings=Settings(max_output=100, temperature=0.5, stop=("END",)),
    )
    assert body == {
        "system": [{"text": "Be brief."}],
        "toolConfig": {
            "tools": [
                {
                    "toolSpec": {
                        "name": "read",
                        "description": "Reads a file.",
                        "inputSchema": {"json": TOOLS[0].parameters},
                    }
                }
            ]
        },
        "inferenceConfig": {"maxTokens": 100, "temperature": 0.5, "stopSequences": ["END"]},
        "messages": [
            {"role": "user", "content": [{"text": "hi"}]},
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
                    {"text": "Reading."},
                    {"toolUse": {"toolUseId": "t1", "name": "read", "input": {"path": "a"}}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "toolResult": {
                            "toolUseId": "t1",
                            "content": [{"text": "content"}],
                            "status": "success",
                        }
                    }
                ],
            },
        ],
    }
    assert list(body)[-1] == "messages"
    assert Talk(WIRE).body(user("x"), system="") == {
        "messages": [{"role": "user", "content": [{"text": "x"}]}]
    }


def test_consecutive_requests_share_their_prefix() -> None:
    talk = Talk(WIRE)
    before = talk.raw(user("hi"), tools=TOOLS)
    for n in range(5):
        more = [assistant(ToolCall(f"c{n}", "read", "{}")), result(f"c{n}", Text("x"))]
        body = talk.raw(*more, tools=TOOLS)
        assert body.startswith(before[:-2])
        before = body


@pytest.mark.parametrize(
    ("quirk", "effort", "fields"),
    [
        ("budget", "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("budget", "none", None),
        (
            "adaptive",
            "high",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        ),
        ("adaptive", "none", {"thinking": {"type": "disabled"}}),
        ("object", "low", {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}),
        ("effort", "minimal", {"reasoning_effort": "low"}),
        ("omit", "high", None),
        ("budget", None, None),
    ],
)
def test_effort(quirk: Any, effort: Any, fields: Any) -> None:
    settings = Settings(effort=effort, temperature=0.5)
    body = Talk(WIRE, Quirks(effort=quirk)).body(user("x"), settings=settings)
    assert body.get("additionalModelRequestFields") == fields
    thinks = bool(fields) and fields.get("thinking", {}).get("type") in ("enabled", "adaptive")
    config = body.get("inferenceConfig", {})
    assert ("temperature" in config) is not thinks
    if fields and fields.get("thinking", {}).get("budget_tokens"):
        assert config["maxTokens"] > fields["thinking"]["budget_tokens"]


def test_a_turn_that_began_without_reasoning_goes_on_without() -> None:
    talk = Talk(WIRE, Quirks(effort="budget"))
    settings = Settings(effort="low")
    body = talk.body(user("x"), assistant(CALL), result("t1", Text("y")), settings=settings)
    assert "additionalModelRequestFields" not in body
    body = talk.body(assistant(Text("done")), user("next"), settings=settings)
    assert "thinking" in body["additionalModelRequestFields"]


def test_what_the_endpoint_refused_is_left_out() -> None:
    quirks = Quirks(effort="budget", drop=("temperature", "thinking"))
    body = Talk(WIRE, quirks).body(user("x"), settings=Settings(temperature=1, max_output=5))
    assert body["inferenceConfig"] == {"maxTokens": 5}
    assert "additionalModelRequestFields" not in body


def test_calls_in_the_history_need_declared_tools() -> None:
    history = [user("x"), assistant(CALL), result("t1", Text("y"))]
    body = Talk(WIRE).body(*history)
    assert [t["toolSpec"]["name"] for t in body["toolConfig"]["tools"]] == ["read"]
    none = Settings(tool_choice="none")
    body = Talk(WIRE).body(*history, tools=TOOLS, settings=none)
    assert body["toolConfig"]["tools"][0]["toolSpec"]["description"] == "Reads a file."
    assert "toolConfig" not in Talk(WIRE).body(user("x"), tools=TOOLS, settings=none)
    flat = Talk(WIRE, Quirks(tools=False)).body(*history, tools=TOOLS)
    assert "toolConfig" not in flat
    assert "toolUse" not in str(flat)


def test_results_media_and_documents() -> None:
    png, data = Media("image/png", b"png"), b64encode(b"png").decode()
    pdf = Media("application/pdf", b"%PDF", name="My report, v2.pdf")
    talk = Talk(WIRE)
    body = talk.body(
        user("look", png, pdf, Media("video/mp4", url="s3://bucket/v.mp4")),
        assistant(*(ToolCall(f"t{i}", "read", "{}") for i in range(3))),
        result("t0", Text("")),
        result("t1", Text("bad"), failed=True),
        result("t2", png, pdf),
    )
    image = {"image": {"format": "png", "source": {"bytes": data}}}
    first, second = body["messages"][0]["content"], body["messages"][2]["content"]
    assert first[0] == image
    assert first[1]["document"]["name"] == "My report v2 1"
    assert first[2]["video"]["source"] == {"s3Location": {"uri": "s3://bucket/v.mp4"}}
    assert first[3] == {"text": "look"}
    assert [r["toolResult"]["status"] for r in second] == ["success", "error", "success"]
    assert second[0]["toolResult"]["content"][0]["text"].strip()
    assert second[2]["toolResult"]["content"][0] == image
    # Documents of one request must have different names, and a text beside them.
    assert second[2]["toolResult"]["content"][1]["document"]["name"] == "My report v2 2"
    body = talk.body(assistant(Text("ok")), Message("user", (pdf, pdf)))
    document, other, text = body["messages"][4]["content"]
    assert document["document"]["name"] == "My report v2 3"
    assert other["document"]["name"] == "My report v2 4"
    assert text["text"].strip()


def test_media_converse_has_no_form_for() -> None:
    for media in (
        Media("image/png", url="https://h/i.png"),
        Media("audio/wav", b"x", name="a.wav"),
    ):
        block = Talk(WIRE).body(user("x", media))["messages"][0]["content"][0]
        assert list(block) == ["text"]


def test_only_sealed_reasoning_goes_back() -> None:
    message = assistant(
        Thinking("aloud"),
        Thinking("unsigned", {"signature": ""}),
        Thinking("", {"redacted": "cmVk"}),
        Text(" "),
        Text("answer"),
    )
    content = Talk(WIRE).body(user("x"), message)["messages"][1]["content"]
    assert content == [{"reasoningContent": {"redactedContent": "cmVk"}}, {"text": "answer"}]


def test_the_vendors_library_accepts_what_we_send() -> None:
    from botocore.session import Session
    from botocore.validate import ParamValidator

    service = Session().get_service_model("bedrock-runtime")
    shape = service.operation_model("ConverseStream").input_shape
    png = Media("image/png", b"png")
    cite = {"title": "T", "location": {"web": {"url": "u"}}}
    body = Talk(WIRE, Quirks(effort="budget")).body(
        user("x", png, Media("text/plain", b"t")),
        assistant(
            Thinking("t", {"signature": "s"}),
            Thinking("", {"redacted": "cmVk"}),
            Text("c", {"citations": [cite]}),
            Text("a"),
            CALL,
        ),
        result("t1", Text("r"), png),
        user("more"),
        tools=TOOLS,
        settings=Settings(max_output=5000, effort="low", stop=("a",)),
    )
    report = ParamValidator().validate({"modelId": "m", **body}, shape)
    assert not report.has_errors(), report.generate_report()
    known = set(shape.members)
    assert set(body) <= known
    for message in body["messages"]:
        for block in message["content"]:
            assert set(block) <= set(
                shape.members["messages"].member.members["content"].member.members
            )


# -- Amazon's own ways ---------------------------------------------------------------------------

ADDRESS = "https://bedrock-runtime.eu-west-3.amazonaws.com/model/a.b-v1%3A0/converse"
KEYS = aws.Keys("AKIDEXAMPLE", "secret", "session")


def test_regions() -> None:
    assert aws.region(ADDRESS) == "eu-west-3"
    assert (
        aws.region("https://bedrock-runtime-fips.us-gov-east-1.amazonaws.com/") == "us-gov-east-1"
    )
    assert aws.region("https://vpce-1.bedrock-runtime.ap-southeast-2.vpce.amazonaws.com") == (
        "ap-southeast-2"
    )
    assert aws.region("http://127.0.0.1:8000/model/us-east-1") == ""


def test_a_signature_verifies() -> None:
    """Checked against the published recipe, computed here step by step."""
    import hashlib
    import hmac

    body = b'{"messages":[]}'
    headers = {"Content-Type": "application/json", "User-Agent": "x", "Accept": "*/*"}
    signed = aws.sign("POST", ADDRESS, headers, body, keys=KEYS)
    assert {**headers, **signed} == signed
    assert signed["X-Amz-Security-Token"] == "session"
    scheme, _, rest = signed["Authorization"].partition(" ")
    assert scheme == "AWS4-HMAC-SHA256"
    fields = dict(p.split("=", 1) for p in rest.split(", "))
    names = fields["SignedHeaders"].split(";")
    assert "user-agent" not in names
    assert "accept" not in names
    lower = {k.lower(): v for k, v in signed.items()}
    lower["host"] = "bedrock-runtime.eu-west-3.amazonaws.com"
    canonical = "\n".join(
        [
            "POST",
            "/model/a.b-v1%253A0/converse",  # every percent sign is encoded again
            "",
            *(f"{n}:{lower[n]}" for n in names),
            "",
            ";".join(names),
            hashlib.sha256(body).hexdigest(),
        ]
    )
    when = signed["X-Amz-Date"]
    scope = f"{when[:8]}/eu-west-3/bedrock/aws4_request"
    text = "\n".join(
        ["AWS4-HMAC-SHA256", when, scope, hashlib.sha256(canonical.encode()).hexdigest()]
    )
    key = b"AWS4secret"
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    assert fields["Signature"] == hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    assert fields["Credential"] == f"AKIDEXAMPLE/{scope}"


def test_keys_are_not_shown() -> None:
    assert "secret" not in repr(KEYS)
    assert "secret" not in str(KEYS)


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """No credentials and no region anywhere botocore looks."""
    import os

    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    aws._session.cache_clear()


def test_credentials_come_from_where_botocore_looks(
    nobody: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID"):
        aws.sign("POST", ADDRESS, {}, b"")
    with pytest.raises(ConfigError, match="region"):
        aws.sign("POST", "http://127.0.0.1:9/x", {}, b"", keys=KEYS)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    aws._session.cache_clear()
    signed = aws.sign("POST", ADDRESS, {}, b"")
    assert "Credential=AKIDENV/" in signed["Authorization"]
    signed = aws.sign("POST", "http://127.0.0.1:9/x", {}, b"", keys=KEYS, place="us-east-1")
    assert "/us-east-1/" in signed["Authorization"]


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [n for n in sys.modules if n.partition(".")[0] == "botocore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(ConfigError, match=r"hermes-runtime\[bedrock\]"):
        aws.sign("POST", ADDRESS, {}, b"", keys=KEYS)
    with pytest.raises(ProviderError) as caught:
        streamed(WIRE, delta(0, text="x"))
    assert caught.value.failure.kind is Kind.STREAM_UNSUPPORTED
    # Plain answers need nothing of it.
    assert whole(WIRE, plain({"text": "hi"}))[0].text == "hi"


def test_installed_says_whether_streams_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bedrock.can_stream()
    aws.installed.cache_clear()
    monkeypatch.setattr(aws, "find_spec", lambda name: None)
    assert not bedrock.can_stream()
    aws.installed.cache_clear()

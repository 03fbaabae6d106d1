"""Requests of Bedrock's wire."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from hermes.core.message import (
    Media,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
    user_message,
)
from hermes.core.provider import Settings
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire import bedrock
from tests.wire.bedrock_frames import WIRE, begin, delta, ends, stop
from tests.wire.talk import TOOLS, Talk, streamed, target

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
    assert (
        bedrock.build_url(base, model, stream=False)
        == f"{base}/model/us.amazon.nova-v1%3A0/converse"
    )
    arn = "arn:aws:bedrock:us-east-1:1:inference-profile/x"
    path = "arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fx"
    assert bedrock.build_url(base + "/", arn, stream=True) == f"{base}/model/{path}/converse-stream"


def test_an_ordinary_request() -> None:
    body = Talk(WIRE).body(
        user_message("hi"),
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
    assert Talk(WIRE).body(user_message("x"), system="") == {
        "messages": [{"role": "user", "content": [{"text": "x"}]}]
    }


def test_consecutive_requests_share_their_prefix() -> None:
    talk = Talk(WIRE)
    before = talk.raw(user_message("hi"), tools=TOOLS)
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
    body = Talk(WIRE, Quirks(effort=quirk)).body(user_message("x"), settings=settings)
    assert body.get("additionalModelRequestFields") == fields
    thinks = bool(fields) and fields.get("thinking", {}).get("type") in ("enabled", "adaptive")
    config = body.get("inferenceConfig", {})
    assert ("temperature" in config) is not thinks
    if fields and fields.get("thinking", {}).get("budget_tokens"):
        assert config["maxTokens"] > fields["thinking"]["budget_tokens"]


def test_a_turn_that_began_without_reasoning_goes_on_without() -> None:
    talk = Talk(WIRE, Quirks(effort="budget"))
    settings = Settings(effort="low")
    body = talk.body(user_message("x"), assistant(CALL), result("t1", Text("y")), settings=settings)
    assert "additionalModelRequestFields" not in body
    body = talk.body(assistant(Text("done")), user_message("next"), settings=settings)
    assert "thinking" in body["additionalModelRequestFields"]


def test_what_the_endpoint_refused_is_left_out() -> None:
    quirks = Quirks(effort="budget", drop=("temperature", "thinking"))
    body = Talk(WIRE, quirks).body(
        user_message("x"), settings=Settings(temperature=1, max_output=5)
    )
    assert body["inferenceConfig"] == {"maxTokens": 5}
    assert "additionalModelRequestFields" not in body


def test_calls_in_the_history_need_declared_tools() -> None:
    history = [user_message("x"), assistant(CALL), result("t1", Text("y"))]
    body = Talk(WIRE).body(*history)
    assert [t["toolSpec"]["name"] for t in body["toolConfig"]["tools"]] == ["read"]
    none = Settings(tool_choice="none")
    body = Talk(WIRE).body(*history, tools=TOOLS, settings=none)
    assert body["toolConfig"]["tools"][0]["toolSpec"]["description"] == "Reads a file."
    assert "toolConfig" not in Talk(WIRE).body(user_message("x"), tools=TOOLS, settings=none)
    flat = Talk(WIRE, Quirks(tools=False)).body(*history, tools=TOOLS)
    assert "toolConfig" not in flat
    assert "toolUse" not in str(flat)


def test_results_media_and_documents() -> None:
    png, data = Media("image/png", b"png"), b64encode(b"png").decode()
    pdf = Media("application/pdf", b"%PDF", name="My report, v2.pdf")
    talk = Talk(WIRE)
    body = talk.body(
        user_message("look", png, pdf, Media("video/mp4", url="s3://bucket/v.mp4")),
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
        block = Talk(WIRE).body(user_message("x", media))["messages"][0]["content"][0]
        assert list(block) == ["text"]


def test_only_sealed_reasoning_goes_back() -> None:
    message = assistant(
        Thinking("aloud"),
        Thinking("unsigned", {"signature": ""}),
        Thinking("", {"redacted": "cmVk"}),
        Text(" "),
        Text("answer"),
    )
    content = Talk(WIRE).body(user_message("x"), message)["messages"][1]["content"]
    assert content == [{"reasoningContent": {"redactedContent": "cmVk"}}, {"text": "answer"}]


def test_the_vendors_library_accepts_what_we_send() -> None:
    from botocore.session import Session
    from botocore.validate import ParamValidator

    service = Session().get_service_model("bedrock-runtime")
    shape = service.operation_model("ConverseStream").input_shape
    png = Media("image/png", b"png")
    cite = {"title": "T", "location": {"web": {"url": "u"}}}
    body = Talk(WIRE, Quirks(effort="budget")).body(
        user_message("x", png, Media("text/plain", b"t")),
        assistant(
            Thinking("t", {"signature": "s"}),
            Thinking("", {"redacted": "cmVk"}),
            Text("c", {"citations": [cite]}),
            Text("a"),
            CALL,
        ),
        result("t1", Text("r"), png),
        user_message("more"),
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

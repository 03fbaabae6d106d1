"""Requests of Anthropic's wire."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import orjson
import pytest

from hermes.core.message import (
    Media,
    Message,
    Native,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
    user_message,
)
from hermes.core.provider import Settings
from hermes.llm.history_view import NO_RESULT
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.anthropic import build_url
from tests.wire.anthropic_frames import BEGIN, WIRE, delta, sse, start, stop
from tests.wire.talk import TOOLS, Talk, streamed, target

# -- requests ------------------------------------------------------------------------------------


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts, origin=target(WIRE))


def result(id: str, *content: Text | Media, failed: bool = False) -> Message:
    return Message("tool", (ToolReturn(id, "read", content, failed),))


CALL = ToolCall("t1", "read", '{"path":"a"}')


def test_addresses() -> None:
    for base in (
        "https://h",
        "https://h/",
        "https://h/v1",
        "https://h/v1/",
        "https://h/v1/messages",
    ):
        assert build_url(base, "m", stream=True) == "https://h/v1/messages"
    assert build_url("https://h?k=1", "m", stream=True) == "https://h/v1/messages?k=1"
    assert build_url("https://h/anthropic", "m", stream=False) == "https://h/anthropic/v1/messages"


def test_an_ordinary_request() -> None:
    talk = Talk(WIRE)
    body = talk.body(
        user_message("hi"),
        assistant(Text("Reading."), CALL),
        result("t1", Text("content")),
        tools=TOOLS,
        settings=Settings(max_output=100, temperature=0.5, stop=("END", " ")),
    )
    assert body == {
        "model": "model",
        "max_tokens": 100,
        "stream": True,
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "system": "Be brief.",
        "tools": [
            {
                "name": "read",
                "description": "Reads a file.",
                "input_schema": TOOLS[0].parameters,
            }
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Reading."},
                    {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "content"}],
            },
        ],
    }
    assert list(body)[-1] == "messages"


def test_consecutive_requests_share_their_prefix() -> None:
    talk = Talk(WIRE, Quirks(effort="budget"))
    settings = Settings(effort="low")
    before = talk.raw(user_message("hi"), tools=TOOLS, settings=settings)
    for n in range(5):
        thought = Thinking("t", {"signature": "s"})
        call = ToolCall(f"c{n}", "read", "{}")
        more = [assistant(thought, call), result(f"c{n}", Text("x"))]
        body = talk.raw(*more, tools=TOOLS, settings=settings)
        assert body.startswith(before[:-2])
        before = body


def test_a_cache_marker_stands_on_a_block_that_takes_one() -> None:
    ways = [
        (Native({"type": kind}), Thinking("t", {"signature": "s"}))
        for kind in ("fallback", "mcp_tool_listing", "brand_new")
    ]
    for way in ways:
        body = Talk(WIRE, Quirks(cache="native")).body(
            user_message("x"), assistant(Text("a"), *way)
        )
        blocks = body["messages"][1]["content"]
        assert ["cache_control" in b for b in blocks] == [True, False, False]
    body = Talk(WIRE, Quirks(cache="native")).body(
        user_message("x"), assistant(Text("a"), USE, FOUND)
    )
    assert "cache_control" in body["messages"][1]["content"][-1]


def test_limits_and_defaults() -> None:
    assert Talk(WIRE).body(user_message("x"))["max_tokens"] == 8192
    assert (
        Talk(WIRE, Quirks(max_tokens_default=32000)).body(user_message("x"))["max_tokens"] == 32000
    )
    body = Talk(WIRE, Quirks(drop=("temperature", "stream"), body={"metadata": {"a": 1}})).body(
        user_message("x"), settings=Settings(temperature=1.0), system=" "
    )
    assert set(body) == {"model", "max_tokens", "metadata", "messages"}


@pytest.mark.parametrize(
    ("quirk", "effort", "limit", "thinking", "level"),
    [
        ("budget", "low", 8192, {"type": "enabled", "budget_tokens": 2048}, None),
        ("budget", "high", 8192, {"type": "enabled", "budget_tokens": 6144}, None),
        ("budget", "high", 1200, None, None),
        ("budget", "none", 8192, None, None),
        ("budget", None, 8192, None, None),
        ("adaptive", "xhigh", 8192, {"type": "adaptive"}, {"effort": "xhigh"}),
        ("adaptive", "minimal", 8192, {"type": "adaptive"}, {"effort": "low"}),
        ("adaptive", "none", 8192, {"type": "disabled"}, None),
        ("omit", "high", 8192, None, None),
    ],
)
def test_effort(quirk: Any, effort: Any, limit: int, thinking: Any, level: Any) -> None:
    settings = Settings(effort=effort, max_output=limit, temperature=0.2)
    body = Talk(WIRE, Quirks(effort=quirk)).body(user_message("x"), settings=settings)
    assert body.get("thinking") == thinking
    assert body.get("output_config") == level
    thinks = thinking is not None and thinking["type"] != "disabled"
    assert ("temperature" in body) is not thinks


def test_thoughts_are_asked_for_in_words_unless_that_was_refused() -> None:
    for drop, thinking in (
        ((), {"type": "adaptive", "display": "summarized"}),
        (("thinking.display",), {"type": "adaptive"}),
    ):
        quirks = Quirks(effort="adaptive", thinking_display="summarized", drop=drop)
        body = Talk(WIRE, quirks).body(user_message("x"), settings=Settings(effort="low"))
        assert body["thinking"] == thinking


def test_a_turn_that_began_without_reasoning_goes_on_without() -> None:
    """With a budget the API wants the turn's first answer to begin with reasoning."""
    settings = Settings(effort="low")
    foreign = Message("assistant", (Thinking("hm"), CALL))
    talk = Talk(WIRE, Quirks(effort="budget"))
    body = talk.body(user_message("x"), foreign, result("t1", Text("y")), settings=settings)
    assert "thinking" not in body
    body = talk.body(assistant(Text("done")), user_message("next"), settings=settings)
    assert body["thinking"]["type"] == "enabled"
    signed = assistant(Thinking("hm", {"signature": "s"}), CALL)
    bare = assistant(ToolCall("t9", "read", "{}"))
    body = talk.body(
        signed, result("t1", Text("y")), bare, result("t9", Text("z")), settings=settings
    )
    assert body["thinking"]["type"] == "enabled"


def test_reasoning_goes_back_signed_or_not_at_all() -> None:
    message = assistant(
        Thinking("unsigned"),
        Thinking("", {"signature": "s1"}),
        Thinking("", {"redacted": "r"}),
        Text("\n\n"),
        Text("answer"),
        Thinking("between", {"signature": "s2"}),
        CALL,
    )
    content = Talk(WIRE).body(user_message("x"), message)["messages"][1]["content"]
    assert content == [
        {"type": "thinking", "thinking": "", "signature": "s1"},
        {"type": "redacted_thinking", "data": "r"},
        {"type": "text", "text": "answer"},
        {"type": "thinking", "thinking": "between", "signature": "s2"},
        {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
    ]
    dropped = Talk(WIRE, Quirks(thinking_replay="drop")).body(user_message("x"), message)
    kinds = [b["type"] for b in dropped["messages"][1]["content"]]
    assert kinds == ["text", "tool_use"]


def test_with_a_budget_a_joined_answer_begins_with_its_reasoning() -> None:
    talk = Talk(WIRE, Quirks(effort="budget"))
    first, second = assistant(Text("half")), assistant(Thinking("t", {"signature": "s"}), CALL)
    content = talk.body(user_message("x"), first, second)["messages"][1]["content"]
    assert [b["type"] for b in content] == ["thinking", "text", "tool_use"]


def test_reasoning_cut_off_is_not_sent_back() -> None:
    body = sse(
        BEGIN,
        start(0, type="text", text="So "),
        stop(0),
        start(1, type="thinking", thinking="", signature=""),
        delta(1, "thinking_delta", thinking="hm"),
    )
    message, _ = streamed(WIRE, body)
    assert message.thinking == "hm"
    content = Talk(WIRE).body(user_message("x"), message)["messages"][1]["content"]
    assert content == [{"type": "text", "text": "So "}]


USE = Native({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}})
FOUND = Native({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []})


def natives(body: dict[str, Any]) -> list[list[str]]:
    out = []
    for message in body["messages"]:
        if message["role"] == "assistant":
            out.append([b["type"] for b in message["content"]])
    return out


def test_a_search_cut_off_is_not_sent_back_alone() -> None:
    body = Talk(WIRE).body(user_message("x"), assistant(Text("a"), USE), user_message("go on"))
    assert natives(body) == [["text"]]
    body = Talk(WIRE).body(user_message("x"), assistant(FOUND, Text("a")), user_message("go on"))
    assert natives(body) == [["text"]]


def test_a_paused_answer_goes_back_as_it_is() -> None:
    talk = Talk(WIRE)
    body = talk.body(user_message("x"), assistant(Text("a"), USE))
    assert natives(body) == [["text", "server_tool_use"]]
    body = talk.body(assistant(FOUND, Text("b")), user_message("thanks"))
    assert natives(body) == [["text", "server_tool_use", "web_search_tool_result", "text"]]


def test_a_search_that_runs_beside_our_call_is_answered_later() -> None:
    talk = Talk(WIRE)
    body = talk.body(user_message("x"), assistant(USE, CALL), result("t1", Text("4")))
    assert natives(body) == [["server_tool_use", "tool_use"]]
    body = talk.body(assistant(FOUND, Text("b")), user_message("thanks"))
    assert natives(body)[1] == ["web_search_tool_result", "text"]


@pytest.mark.parametrize(
    ("args", "sent"),
    [
        ("", {}),
        ("None", {}),
        ("null", {}),
        ('{"a": 1}', {"a": 1}),
        ("[1]", {"_not_an_object": [1]}),
        ('{"a": ', {"_not_an_object": '{"a": '}),
    ],
)
def test_input_is_always_an_object_and_nothing_the_model_wrote_is_lost(
    args: str, sent: Any
) -> None:
    body = Talk(WIRE).body(user_message("x"), assistant(ToolCall("t", "read", args)))
    assert body["messages"][1]["content"][0]["input"] == sent


def test_results_first_and_in_every_form() -> None:
    png = Media("image/png", b"png")
    body = Talk(WIRE).body(
        user_message("x"),
        assistant(*(ToolCall(f"t{i}", "read", "{}") for i in range(4))),
        user_message("by the way", Media("image/png", url="https://h/i.png")),
        result("t0", Text("")),
        result("t1", Text("broken"), failed=True),
        result("t2", Text("see"), png),
    )
    data = b64encode(b"png").decode()
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": data},
    }
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "t0"},
        {"type": "tool_result", "tool_use_id": "t1", "content": "broken", "is_error": True},
        {
            "type": "tool_result",
            "tool_use_id": "t2",
            "content": [{"type": "text", "text": "see"}, image],
        },
        {
            "type": "tool_result",
            "tool_use_id": "t3",
            "content": NO_RESULT,
            "is_error": True,
        },
        {"type": "image", "source": {"type": "url", "url": "https://h/i.png"}},
        {"type": "text", "text": "by the way"},
    ]


def test_files() -> None:
    def sent(media: Media) -> Any:
        return Talk(WIRE).body(user_message("x", media))["messages"][0]["content"][0]

    pdf = sent(Media("application/pdf", b"%PDF"))
    assert (pdf["type"], pdf["source"]["media_type"]) == ("document", "application/pdf")
    text = sent(Media("text/markdown", "é".encode()))
    assert text["source"] == {"type": "text", "media_type": "text/plain", "data": "é"}
    data = "data:image/gif;base64," + b64encode(b"gif").decode()
    assert sent(Media("image/png", url=data))["source"]["media_type"] == "image/gif"
    odd = sent(Media("audio/wav", b"wav", name="voice.wav"))
    assert odd["type"] == "text"
    assert "voice.wav" in odd["text"]


def test_blank_text_is_never_sent() -> None:
    body = Talk(WIRE).body(
        Message("user", (Text(" "),)),
        assistant(Text("", {"citations": [{"x": 1}]})),
        user_message("\n"),
    )
    blocks = [b for m in body["messages"] for b in m["content"]]
    assert all(b["text"].strip() for b in blocks)
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]


def test_tools_that_may_not_be_called_stay_declared() -> None:
    talk = Talk(WIRE)
    body = talk.body(
        user_message("x"),
        assistant(CALL),
        result("t1", Text("y")),
        tools=TOOLS,
        settings=Settings(tool_choice="none"),
    )
    assert body["tool_choice"] == {"type": "none"}
    assert [t["name"] for t in body["tools"]] == ["read"]
    assert "tools" not in Talk(WIRE, Quirks(tools=False)).body(user_message("x"), tools=TOOLS)


@pytest.mark.parametrize("wire", [WIRE, "bedrock"])
@pytest.mark.parametrize("effort", ["budget", "adaptive"])
def test_a_model_that_must_call_a_tool_does_not_think_first(wire: str, effort: Any) -> None:
    """The two together are refused."""
    settings = Settings(effort="high", tool_choice="required")
    body = Talk(wire, Quirks(effort=effort)).body(user_message("x"), tools=TOOLS, settings=settings)
    assert "thinking" not in str(body) and '"any"' in str(body).replace("'", '"')
    free = Talk(wire, Quirks(effort=effort)).body(
        user_message("x"), settings=Settings(effort="high")
    )
    assert "thinking" in str(free)


def test_broken_unicode_is_sent_as_something_legal() -> None:
    message = assistant(ToolCall("t", "read", '{"a": "\\ud800"}'), Text("\ud800"))
    raw = Talk(WIRE).raw(user_message("\udc00 \x00"), message, result("t", Text("\udfff")))
    raw.decode("utf-8")
    assert b"\\ud" not in raw
    assert len(orjson.loads(raw)["messages"]) == 3


def test_the_vendors_library_knows_every_key_we_send() -> None:
    from typing import get_args, get_type_hints

    from anthropic.types import ContentBlockParam, ToolParam
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    forms = {}
    for form in get_args(ContentBlockParam):
        hints = get_type_hints(form)
        forms[get_args(hints["type"])[0]] = (form, set(hints))

    def check(block: dict[str, Any]) -> None:
        form, known = forms[block["type"]]
        assert form.__required_keys__ <= set(block) <= known
        for inner in block["content"] if isinstance(block.get("content"), list) else ():
            if inner["type"] in forms:
                check(inner)

    cited = {"type": "char_location", "cited_text": "c", "document_index": 0}
    files = [Media("image/png", b"x"), Media("application/pdf", b"y"), Media("text/plain", b"z")]
    body = Talk(WIRE, Quirks(effort="adaptive")).body(
        user_message("x", *files, Media("image/png", url="https://h/i.png")),
        assistant(
            Thinking("t", {"signature": "s"}),
            Thinking("", {"redacted": "r"}),
            Text("a", {"citations": [cited]}),
            USE,
            FOUND,
            ToolCall("t1", "read", "{}", {"caller": {"type": "direct"}}),
        ),
        result("t1", Text("r"), files[0], failed=True),
        tools=TOOLS,
        settings=Settings(effort="low", stop=("a",), tool_choice="none"),
    )
    top = MessageCreateParamsStreaming
    assert top.__required_keys__ <= set(body) <= top.__required_keys__ | top.__optional_keys__
    for tool in body["tools"]:
        assert set(tool) <= ToolParam.__required_keys__ | ToolParam.__optional_keys__
    for message in body["messages"]:
        for block in message["content"]:
            check(block)

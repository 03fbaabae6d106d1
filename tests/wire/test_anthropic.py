"""The Messages protocol: odd answers understood, requests the API takes."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import orjson
import pytest

from hermes.core.errors import Kind, ProviderError
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
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.anthropic import error, url
from tests.wire.talk import TOOLS, Talk, streamed, target, whole

WIRE = "anthropic"
SEEDS = range(5)


def sse(*events: dict[str, Any], end: bytes = b"\n") -> bytes:
    out = b""
    for event in events:
        out += b"event: %s%sdata: " % (event["type"].encode(), end) + orjson.dumps(event) + end * 2
    return out


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, type: str, **more: Any) -> dict[str, Any]:
    inner = {"type": type, **more}
    return {"type": "content_block_delta", "index": index, "delta": inner}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ends(reason: str | None = "end_turn", **usage: Any) -> list[dict[str, Any]]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    ]


BEGIN = {
    "type": "message_start",
    "message": {
        "type": "message",
        "content": [],
        "usage": {
            "input_tokens": 10,
            "output_tokens": 1,
            "cache_read_input_tokens": 5,
            "cache_creation_input_tokens": 2,
        },
    },
}
PING = {"type": "ping"}


# -- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_whole_stream(seed: int, end: bytes) -> None:
    body = sse(
        BEGIN,
        start(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="Let me "),
        PING,
        delta(0, "thinking_delta", thinking="see…"),
        delta(0, "signature_delta", signature="sig=="),
        stop(0),
        start(1, type="redacted_thinking", data="secret"),
        stop(1),
        start(2, type="text", text=""),
        delta(2, "text_delta", text="Ça "),
        delta(2, "text_delta", text="va"),
        stop(2),
        start(3, type="tool_use", id="t1", name="read", input={}, caller={"type": "direct"}),
        delta(3, "input_json_delta", partial_json=""),
        delta(3, "input_json_delta", partial_json='{"path": "é'),
        delta(3, "input_json_delta", partial_json='"}'),
        stop(3),
        start(4, type="tool_use", id="t2", name="list", input={}, toolset_name="files"),
        delta(4, "input_json_delta", partial_json=""),
        stop(4),
        *ends("tool_use", output_tokens=33),
        end=end,
    )
    message, answer = streamed(WIRE, body, seed=seed)
    assert message.parts == (
        Thinking("Let me see…", {"signature": "sig=="}),
        Thinking("", {"redacted": "secret"}),
        Text("Ça va"),
        ToolCall("t1", "read", '{"path": "é"}', {"caller": {"type": "direct"}}),
        ToolCall("t2", "list", "{}", {"toolset_name": "files"}),
    )
    assert Talk(WIRE).body(user("?"), message)["messages"][1]["content"][-1] == {
        "type": "tool_use",
        "id": "t2",
        "name": "list",
        "input": {},
        "toolset_name": "files",
    }
    assert message.stop == "tool_use"
    usage = answer.usage
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write) == (17, 33, 5, 2)
    assert not usage.estimated


def test_later_usage_counts_and_null_changes_nothing() -> None:
    body = sse(
        BEGIN,
        start(0, type="text", text="x"),
        stop(0),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {
                "input_tokens": 3000,
                "output_tokens": 40,
                "cache_read_input_tokens": None,
                "output_tokens_details": {"thinking_tokens": 7},
                "iterations": [{"type": "advisor_message", "input_tokens": 9999}],
            },
        },
    )
    usage = streamed(WIRE, body)[1].usage
    assert (usage.input, usage.output, usage.cache_read, usage.reasoning) == (3007, 40, 5, 7)


def test_pings_and_all_other_events_are_activity() -> None:
    from hermes.llm.response_builder import ResponseBuilder
    from hermes.llm.wire.anthropic import Decoder

    decoder = Decoder(ResponseBuilder(), Quirks())
    decoder.feed(b": comment\n\n")
    assert decoder.activity == 0
    decoder.feed(sse(PING, PING, {"type": "something_new", "x": 1}))
    assert decoder.activity == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_provider_ran_is_kept_in_place_and_is_no_call(seed: int) -> None:
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "s1",
        "content": [{"type": "web_search_result", "url": "u", "encrypted_content": "e"}],
    }
    cited = {"type": "web_search_result_location", "cited_text": "c", "encrypted_index": "i"}
    quoted = {"type": "char_location", "cited_text": "q", "document_title": None}
    body = sse(
        BEGIN,
        start(0, type="text", text=""),
        delta(0, "text_delta", text="Looking. "),
        stop(0),
        start(1, type="server_tool_use", id="s1", name="web_search", input={}),
        delta(1, "input_json_delta", partial_json='{"query"'),
        delta(1, "input_json_delta", partial_json=': "q"}'),
        stop(1),
        start(2, **found),
        stop(2),
        start(3, type="text", text="", citations=[]),
        delta(3, "citations_delta", citation=cited),
        delta(3, "citations_delta", citation={**quoted, "file_id": None}),
        delta(3, "text_delta", text="It is so"),
        stop(3),
        start(4, type="text", text=""),
        delta(4, "text_delta", text=", they say."),
        stop(4),
        start(5, type="brand_new", data="d"),
        delta(5, "brand_new_delta", more="m"),
        delta(5, "brand_new_delta", more="ore"),
        delta(5, "signature_delta", signature="sig"),
        stop(5),
        start(6, type="compaction", content="", encrypted_content=None),
        delta(6, "compaction_delta", content="In short.", encrypted_content="e"),
        stop(6),
        start(7, type="mcp_tool_listing", mcp_server_name="m", tools=[]),
        stop(7),
        *ends(),
    )
    message, _ = streamed(WIRE, body, seed=seed)
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
    new = {"type": "brand_new", "data": "d", "more": "more", "signature": "sig"}
    compacted = {"type": "compaction", "content": "In short.", "encrypted_content": "e"}
    listed = {"type": "mcp_tool_listing", "mcp_server_name": "m", "tools": []}
    assert message.parts == (
        Text("Looking. "),
        Native(use),
        Native(found),
        Text("It is so", {"citations": [cited, {**quoted, "file_id": None}]}),
        Text(", they say."),
        Native(new),
        Native(compacted),
        Native(listed),
    )
    assert message.text == "Looking. It is so, they say."
    assert (message.stop, message.calls) == ("end", ())
    # And all of it goes back as it came, but for a key that requests may not have.
    sent = Talk(WIRE).body(user("?"), message)["messages"][1]["content"]
    assert sent == [
        {"type": "text", "text": "Looking. "},
        use,
        found,
        {"type": "text", "text": "It is so", "citations": [cited, quoted]},
        {"type": "text", "text": ", they say."},
        new,
        compacted,
        listed,
    ]


@pytest.mark.parametrize(
    ("reason", "stop_"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("tool_use", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "paused"),
        ("refusal", "filtered"),
        ("unheard_of", "end"),
        (None, "end"),
    ],
)
def test_why_it_stopped(reason: str | None, stop_: str) -> None:
    body = sse(BEGIN, start(0, type="text", text="words"), stop(0), *ends(reason))
    assert streamed(WIRE, body)[0].stop == stop_
    plain = {"content": [{"type": "text", "text": "words"}], "stop_reason": reason}
    assert whole(WIRE, plain)[0].stop == stop_


def test_a_refusal_says_why() -> None:
    body = {
        "content": [],
        "stop_reason": "refusal",
        "stop_details": {"type": "refusal", "category": "bio", "explanation": "Not that."},
    }
    message, answer = whole(WIRE, body)
    assert (message.stop, answer.detail) == ("filtered", "Not that.")


def test_a_full_context_without_an_answer_is_an_overflow() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    body = {"content": [thought], "stop_reason": "model_context_window_exceeded"}
    with pytest.raises(ProviderError) as caught:
        whole(WIRE, body)
    assert caught.value.failure.kind is Kind.CONTEXT_OVERFLOW


def test_a_stream_that_broke_off_died() -> None:
    body = sse(BEGIN, start(0, type="text", text=""), delta(0, "text_delta", text="half"))
    assert streamed(WIRE, body)[0].stop == "died"
    assert streamed(WIRE, b"")[0].stop == "died"
    cut_call = sse(
        BEGIN,
        start(0, type="tool_use", id="t", name="write", input={}),
        delta(0, "input_json_delta", partial_json='{"a'),
    )
    message, answer = streamed(WIRE, cut_call)
    assert (message.stop, answer.call_names) == ("died", ("write",))
    assert message.calls[0].args == '{"a'


def test_a_stop_reason_without_the_last_frame_is_an_end() -> None:
    body = sse(BEGIN, start(0, type="text", text="all"), stop(0), ends()[0])
    assert streamed(WIRE, body[:-2])[0].stop == "end"


def test_what_follows_the_end_is_ignored() -> None:
    late = sse(start(1, type="text", text="late"), {"type": "error", "error": {"type": "x"}})
    body = sse(BEGIN, start(0, type="text", text="done"), stop(0), *ends()) + late
    assert streamed(WIRE, body)[0].text == "done"


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("overloaded_error", Kind.OVERLOADED),
        ("rate_limit_error", Kind.RATE_LIMITED),
        ("authentication_error", Kind.AUTH),
        ("permission_error", Kind.FORBIDDEN),
        ("billing_error", Kind.BILLING),
        ("not_found_error", Kind.MODEL_NOT_FOUND),
        ("request_too_large", Kind.PAYLOAD_TOO_LARGE),
        ("api_error", Kind.SERVER),
        ("timeout_error", Kind.SERVER),
        ("invalid_request_error", Kind.BAD_REQUEST),
    ],
)
def test_an_error_in_band(type_: str, kind: Kind) -> None:
    frame = {"type": "error", "error": {"type": type_, "message": "Sorry."}, "request_id": "r"}
    assert error(frame, {}) == (type_, "Sorry.", "")
    text = sse(BEGIN, start(0, type="text", text="shown"))
    for body in (text + sse(frame), sse(frame)):
        with pytest.raises(ProviderError) as caught:
            streamed(WIRE, body)
        failure = caught.value.failure
        assert (failure.kind, failure.code, failure.message) == (kind, type_, "Sorry.")
    with pytest.raises(ProviderError) as caught:
        whole(WIRE, frame)
    assert caught.value.failure.kind is kind


def test_bodies_that_are_no_answer() -> None:
    for body, kind in [
        (b"<html>Log in</html>", Kind.NOT_API),
        (b'{"status": "ok"}', Kind.NOT_API),
        (b"[1, 2]", Kind.NOT_API),
        (b'{"content": [{"type": "te', Kind.NETWORK),
    ]:
        with pytest.raises(ProviderError) as caught:
            whole(WIRE, body)
        assert caught.value.failure.kind is kind


def test_content_that_is_no_list() -> None:
    for content, parts in (("hi", (Text("hi"),)), (None, ()), ("", ())):
        message, _ = whole(WIRE, {"type": "message", "content": content, "stop_reason": "end_turn"})
        assert message.parts == parts


def test_content_types_lie() -> None:
    plain = {"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}
    assert streamed(WIRE, orjson.dumps(plain), seed=1)[0].text == "hi"
    body = sse(BEGIN, start(0, type="text", text="hi"), stop(0), *ends())
    assert whole(WIRE, body)[0].text == "hi"


def test_odd_values_break_nothing() -> None:
    body = b"data: no json\n\ndata: 7\n\ndata: [DONE\n\n" + sse(
        {"type": "message_start", "message": None},
        {"type": "content_block_start", "index": None, "content_block": None},
        {"type": "content_block_delta", "index": "x", "delta": None},
        {"type": "content_block_stop"},
        start(3, type="text", text="", citations=True),
        stop(3),
        delta(9, "text_delta", text="no start"),
        {"type": "message_delta", "delta": None, "usage": {"output_tokens": -5}},
        *ends(),
    )
    message, answer = streamed(WIRE, body)
    assert message.text == "no start"
    assert answer.usage.estimated
    plain = {"content": [None, 7, {"type": "text", "text": None}, {}], "usage": []}
    assert whole(WIRE, plain)[0].stop == "end"


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
        assert url(base, "m", stream=True) == "https://h/v1/messages"
    assert url("https://h?k=1", "m", stream=True) == "https://h/v1/messages?k=1"
    assert url("https://h/anthropic", "m", stream=False) == "https://h/anthropic/v1/messages"


def test_an_ordinary_request() -> None:
    talk = Talk(WIRE)
    body = talk.body(
        user("hi"),
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
    before = talk.raw(user("hi"), tools=TOOLS, settings=settings)
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
        body = Talk(WIRE, Quirks(cache="native")).body(user("x"), assistant(Text("a"), *way))
        blocks = body["messages"][1]["content"]
        assert ["cache_control" in b for b in blocks] == [True, False, False]
    body = Talk(WIRE, Quirks(cache="native")).body(user("x"), assistant(Text("a"), USE, FOUND))
    assert "cache_control" in body["messages"][1]["content"][-1]


def test_limits_and_defaults() -> None:
    assert Talk(WIRE).body(user("x"))["max_tokens"] == 8192
    assert Talk(WIRE, Quirks(max_tokens_default=32000)).body(user("x"))["max_tokens"] == 32000
    body = Talk(WIRE, Quirks(drop=("temperature", "stream"), body={"metadata": {"a": 1}})).body(
        user("x"), settings=Settings(temperature=1.0), system=" "
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
    body = Talk(WIRE, Quirks(effort=quirk)).body(user("x"), settings=settings)
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
        body = Talk(WIRE, quirks).body(user("x"), settings=Settings(effort="low"))
        assert body["thinking"] == thinking


def test_a_turn_that_began_without_reasoning_goes_on_without() -> None:
    """With a budget the API wants the turn's first answer to begin with reasoning."""
    settings = Settings(effort="low")
    foreign = Message("assistant", (Thinking("hm"), CALL))
    talk = Talk(WIRE, Quirks(effort="budget"))
    body = talk.body(user("x"), foreign, result("t1", Text("y")), settings=settings)
    assert "thinking" not in body
    body = talk.body(assistant(Text("done")), user("next"), settings=settings)
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
    content = Talk(WIRE).body(user("x"), message)["messages"][1]["content"]
    assert content == [
        {"type": "thinking", "thinking": "", "signature": "s1"},
        {"type": "redacted_thinking", "data": "r"},
        {"type": "text", "text": "answer"},
        {"type": "thinking", "thinking": "between", "signature": "s2"},
        {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
    ]
    dropped = Talk(WIRE, Quirks(thinking_replay="drop")).body(user("x"), message)
    kinds = [b["type"] for b in dropped["messages"][1]["content"]]
    assert kinds == ["text", "tool_use"]


def test_with_a_budget_a_joined_answer_begins_with_its_reasoning() -> None:
    talk = Talk(WIRE, Quirks(effort="budget"))
    first, second = assistant(Text("half")), assistant(Thinking("t", {"signature": "s"}), CALL)
    content = talk.body(user("x"), first, second)["messages"][1]["content"]
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
    content = Talk(WIRE).body(user("x"), message)["messages"][1]["content"]
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
    body = Talk(WIRE).body(user("x"), assistant(Text("a"), USE), user("go on"))
    assert natives(body) == [["text"]]
    body = Talk(WIRE).body(user("x"), assistant(FOUND, Text("a")), user("go on"))
    assert natives(body) == [["text"]]


def test_a_paused_answer_goes_back_as_it_is() -> None:
    talk = Talk(WIRE)
    body = talk.body(user("x"), assistant(Text("a"), USE))
    assert natives(body) == [["text", "server_tool_use"]]
    body = talk.body(assistant(FOUND, Text("b")), user("thanks"))
    assert natives(body) == [["text", "server_tool_use", "web_search_tool_result", "text"]]


def test_a_search_that_runs_beside_our_call_is_answered_later() -> None:
    talk = Talk(WIRE)
    body = talk.body(user("x"), assistant(USE, CALL), result("t1", Text("4")))
    assert natives(body) == [["server_tool_use", "tool_use"]]
    body = talk.body(assistant(FOUND, Text("b")), user("thanks"))
    assert natives(body)[1] == ["web_search_tool_result", "text"]


@pytest.mark.parametrize(
    ("args", "sent"),
    [
        ("", {}),
        ('{"a": 1}', {"a": 1}),
        ("[1]", {"_not_an_object": [1]}),
        ('{"a": ', {"_not_an_object": '{"a": '}),
    ],
)
def test_input_is_always_an_object_and_nothing_the_model_wrote_is_lost(
    args: str, sent: Any
) -> None:
    body = Talk(WIRE).body(user("x"), assistant(ToolCall("t", "read", args)))
    assert body["messages"][1]["content"][0]["input"] == sent


def test_results_first_and_in_every_form() -> None:
    png = Media("image/png", b"png")
    body = Talk(WIRE).body(
        user("x"),
        assistant(*(ToolCall(f"t{i}", "read", "{}") for i in range(4))),
        user("by the way", Media("image/png", url="https://h/i.png")),
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
            "content": "[no result: interrupted]",
            "is_error": True,
        },
        {"type": "image", "source": {"type": "url", "url": "https://h/i.png"}},
        {"type": "text", "text": "by the way"},
    ]


def test_files() -> None:
    def sent(media: Media) -> Any:
        return Talk(WIRE).body(user("x", media))["messages"][0]["content"][0]

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
        user("\n"),
    )
    blocks = [b for m in body["messages"] for b in m["content"]]
    assert all(b["text"].strip() for b in blocks)
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]


def test_tools_that_may_not_be_called_stay_declared() -> None:
    talk = Talk(WIRE)
    body = talk.body(
        user("x"),
        assistant(CALL),
        result("t1", Text("y")),
        tools=TOOLS,
        settings=Settings(tool_choice="none"),
    )
    assert body["tool_choice"] == {"type": "none"}
    assert [t["name"] for t in body["tools"]] == ["read"]
    assert "tools" not in Talk(WIRE, Quirks(tools=False)).body(user("x"), tools=TOOLS)


@pytest.mark.parametrize("wire", [WIRE, "bedrock"])
@pytest.mark.parametrize("effort", ["budget", "adaptive"])
def test_a_model_that_must_call_a_tool_does_not_think_first(wire: str, effort: Any) -> None:
    """The two together are refused."""
    settings = Settings(effort="high", tool_choice="required")
    body = Talk(wire, Quirks(effort=effort)).body(user("x"), tools=TOOLS, settings=settings)
    assert "thinking" not in str(body) and '"any"' in str(body).replace("'", '"')
    free = Talk(wire, Quirks(effort=effort)).body(user("x"), settings=Settings(effort="high"))
    assert "thinking" in str(free)


def test_broken_unicode_is_sent_as_something_legal() -> None:
    message = assistant(ToolCall("t", "read", '{"a": "\\ud800"}'), Text("\ud800"))
    raw = Talk(WIRE).raw(user("\udc00 \x00"), message, result("t", Text("\udfff")))
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
        user("x", *files, Media("image/png", url="https://h/i.png")),
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

"""Answers of Anthropic's wire."""

from __future__ import annotations

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
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.anthropic import read_error
from tests.wire.anthropic_frames import BEGIN, PING, SEEDS, WIRE, delta, ends, sse, start, stop
from tests.wire.talk import Talk, streamed, whole

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
    assert Talk(WIRE).body(user_message("?"), message)["messages"][1]["content"][-1] == {
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
    sent = Talk(WIRE).body(user_message("?"), message)["messages"][1]["content"]
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
    assert read_error(frame, {}) == (type_, "Sorry.", "")
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

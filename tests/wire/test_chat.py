"""The chat wire: every shape of answer servers send, and requests every server takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.errors import Kind, ProviderError
from hermes.core.events import StreamEvent, TextDelta, ThinkingDelta
from hermes.core.message import (
    Media,
    Message,
    Part,
    Target,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
    Usage,
)
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.provider_spec import Quirks
from hermes.llm.response_builder import ResponseBuilder
from hermes.llm.wire import chat, sse
from hermes.llm.wire.body_reader import BodyReader
from tests.wire.talk import body_reader

TARGET = Target("p", "m", "chat")
Json = dict[str, Any]


def chunk(delta: Json | None = None, finish: str | None = None, **rest: Any) -> Json:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "x", "object": "chat.completion.chunk", "choices": choices, **rest}


def events(*values: Json | str, done: bool = True) -> bytes:
    lines = [v if isinstance(v, str) else "data: " + json.dumps(v) for v in values]
    return "".join(f"{line}\n\n" for line in (*lines, *(["data: [DONE]"] if done else []))).encode()


class Read:
    """An answer decoded from a body, streamed or whole."""

    def __init__(self, body: bytes, *, size: int = 0, whole: bool = False) -> None:
        self.answer = ResponseBuilder()
        self.decoder = chat.Decoder(self.answer, Quirks())
        self.events: list[StreamEvent] = []
        kind = "application/json" if whole else chat.STREAM_TYPE
        reader = BodyReader(self.decoder, kind, chat.STREAM_TYPE, "h")
        for i in range(0, len(body), size or len(body) or 1):
            reader.feed(body[i : i + (size or len(body))])
            self.events += self.answer.drain_events()
        reader.close()
        self.events += self.answer.finish_events()
        self.message = self.answer.build_message(TARGET)
        self.stop = self.answer.stop


def stream(*values: Json | str, done: bool = True) -> Read:
    """Decoded in one piece; byte by byte must give the same."""
    body = events(*values, done=done)
    read, slow = Read(body), Read(body, size=1)
    assert read.message == slow.message
    assert read.decoder.activity == slow.decoder.activity
    return read


def whole(message: Json, finish: str | None = "stop", **rest: Any) -> Read:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = {"id": "x", "object": "chat.completion", "choices": [choice], **rest}
    return Read(json.dumps(body).encode(), whole=True)


def failure(body: bytes, *, is_whole: bool = False) -> Any:
    with pytest.raises(ProviderError) as caught:
        Read(body, whole=is_whole)
    return caught.value.failure


# -- text and its end --------------------------------------------------------------------------


def test_text_comes_once_per_read_and_whole_in_the_message() -> None:
    read = stream(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, "stop"),
        chunk(usage={"prompt_tokens": 3, "completion_tokens": 2}),
    )
    assert read.events == [TextDelta("Hello")]
    assert read.message.parts == (Text("Hello"),)
    assert read.stop == "end"
    assert read.message.usage == Usage(3, 2)


@pytest.mark.parametrize(
    ("reasons", "done", "stop"),
    [
        (["stop"], True, "end"),
        (["stop"], False, "end"),
        (["length"], True, "length"),
        (["length", None], True, "length"),
        (["stop", "stop"], True, "end"),
        ([""], True, "end"),
        ([], True, "end"),
        ([], False, "died"),
        ([None], False, "died"),
        (["content_filter"], True, "filtered"),
        (["tool_calls"], True, "end"),
        (["something_new"], True, "end"),
        (["MAX_TOKENS"], True, "length"),
    ],
)
def test_how_a_text_ends(reasons: list[str | None], done: bool, stop: str) -> None:
    last = [chunk({}, reason) for reason in reasons]
    assert stream(chunk({"content": "hi"}), *last, done=done).stop == stop


def test_the_last_word_is_known_before_the_stream_ends() -> None:
    decoder = chat.Decoder(ResponseBuilder(), Quirks())
    decoder.feed(events(chunk({"content": "hi"}), done=False))
    assert not decoder.ended
    decoder.feed(events(chunk({}, "stop"), done=False))
    assert decoder.ended


def test_a_broken_off_answer_is_the_providers_failure() -> None:
    assert failure(events(chunk({"content": "hi"}), chunk({}, "error"))).kind is Kind.SERVER


def test_a_full_window_without_an_answer_is_an_overflow() -> None:
    full = chunk({}, "model_context_window_exceeded")
    assert failure(events(full)).kind is Kind.CONTEXT_OVERFLOW
    assert stream(chunk({"content": "hi"}), full).stop == "length"


def test_done_twice_and_data_behind_it_are_ignored() -> None:
    tail = ["data: [DONE]", chunk({"content": "ghost"})]
    read = stream(chunk({"content": "a"}), chunk({}, "stop"), "data: [DONE]", *tail)
    assert read.message.text == "a"


def test_a_last_event_without_blank_line_counts() -> None:
    body = events(chunk({"content": "a"})) + b"data: " + json.dumps(chunk({}, "length")).encode()
    read = Read(body.replace(b"data: [DONE]\n\n", b""))
    assert (read.message.text, read.stop) == ("a", "length")


def test_garbage_is_skipped_and_comments_do_not_count_as_activity() -> None:
    read = stream(
        ": keep-alive",
        "data: {broken",
        "nonsense",
        "data:",
        chunk({"content": "a"}),
        'data: "a string"',
        "data: 7",
        chunk({"content": "b"}),
        {"choices": "none"},
        {"choices": [None, 3]},
        {"choices": [{"delta": "text"}]},
        chunk({}, "stop"),
    )
    assert read.message.text == "ab"
    assert read.decoder.skipped == 2
    quiet = Read(b": ping\n\n: ping\n\n")
    assert (quiet.decoder.activity, quiet.stop) == (0, "died")


def test_odd_json_that_is_still_meant() -> None:
    read = stream(
        'data: {"choices":[{"delta":{"content":"a\\ud800b"}}],"x":NaN}',
        'data: {"choices":[{"delta":{"content":"\\u0000!"}}]}',
        chunk({}, "stop", created=10**40),
    )
    assert read.message.text == "a\ufffdb\ufffd!"
    assert Read(b"data: " + '{"choices":[{"delta":{"content":"\xff"}}]}'.encode("latin-1")).stop


def test_empty_fields_mean_nothing() -> None:
    nothing = {
        "content": None,
        "refusal": "",
        "tool_calls": [],
        "reasoning": "",
        "reasoning_details": [],
        "function_call": {"name": "", "arguments": ""},
        "audio": {"id": "", "data": ""},
        "annotations": [],
    }
    read = stream(chunk(nothing), chunk({**nothing, "tool_calls": None}), chunk({}, "stop"))
    assert read.message.parts == ()
    assert read.stop == "end"
    assert whole(nothing, "").message.parts == ()


# -- reasoning ---------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_under_its_names(field: str) -> None:
    read = stream(
        chunk({field: "Let me"}), chunk({field: " see"}), chunk({"content": "4"}), chunk({}, "stop")
    )
    assert read.events == [ThinkingDelta("Let me see"), TextDelta("4")]
    assert read.message.parts == (Thinking("Let me see", {"field": field}), Text("4"))
    assert whole({field: "Let me see", "content": "4"}).message.parts == read.message.parts


def test_the_same_words_in_two_fields_count_once_and_details_come_back_whole() -> None:
    def both(text: str, **more: Any) -> Json:
        detail = {"type": "reasoning.text", "text": text, "format": "f", "index": 0, **more}
        return chunk({"content": "", "reasoning": text, "reasoning_details": [detail]})

    signature = {"type": "reasoning.text", "signature": "sig", "format": "f", "index": 0}
    read = stream(
        both("", signature=""),
        both("This is "),
        both("easy."),
        chunk({"content": "", "reasoning": None, "reasoning_details": [signature]}),
        chunk({"content": "4"}),
        chunk({}, "stop"),
    )
    thought = read.message.parts[0]
    assert isinstance(thought, Thinking) and thought.extra is not None
    assert thought.text == "This is easy."
    assert thought.extra["reasoning_details"] == [{**signature, "text": "This is easy."}]


def test_reasoning_under_two_names_at_once_counts_once() -> None:
    both = {"reasoning": "hm", "reasoning_content": "hm", "content": ""}
    assert stream(chunk(both), chunk({"content": "4"}, "stop")).message.thinking == "hm"
    assert whole({**both, "content": "4"}).message.thinking == "hm"


def test_details_that_follow_the_same_words_count_once() -> None:
    detail = {"type": "reasoning.text", "text": "I see.", "signature": "s", "index": 0}
    read = stream(
        chunk({"reasoning": "I "}),
        chunk({"reasoning": "see."}),
        chunk({"content": "ok", "reasoning_details": [detail]}, "stop"),
    )
    (thought, _) = read.message.parts
    assert isinstance(thought, Thinking) and thought.text == "I see."
    assert thought.extra == {"field": "reasoning", "reasoning_details": [detail]}


def test_details_alone_are_shown_and_encrypted_ones_kept() -> None:
    details = [
        {"type": "reasoning.summary", "summary": "Sum", "index": 0},
        {"type": "reasoning.encrypted", "data": "opaque", "index": 0, "id": "r1"},
        {"type": "reasoning.encrypted", "data": "opaque2", "index": 0, "id": "r1"},
    ]
    extra = {"field": "reasoning_details", "reasoning_details": details}
    read = whole({"content": "4", "reasoning": None, "reasoning_details": details})
    assert read.message.parts == (Thinking("Sum", extra), Text("4"))
    streamed = stream(
        chunk({"reasoning_details": [{**details[0], "summary": "Su"}]}),
        chunk({"reasoning_details": [{**details[0], "summary": "m"}]}),
        chunk({"reasoning_details": details[1:]}),
        chunk({"content": "4"}, "stop"),
    )
    assert streamed.message.parts == read.message.parts


def test_details_interleaved_by_index_stay_apart() -> None:
    def piece(index: int, text: str) -> Json:
        return chunk(
            {"reasoning_details": [{"type": "reasoning.text", "text": text, "index": index}]}
        )

    read = stream(piece(0, "a"), piece(1, "x"), piece(0, "b"), piece(1, "y"), chunk({}, "stop"))
    extra = read.message.parts[0].extra  # type: ignore[union-attr]
    assert [d["text"] for d in extra["reasoning_details"]] == ["ab", "xy"]  # type: ignore[index]


def test_content_as_a_list_of_thinking_and_text() -> None:
    def think(*texts: str) -> Json:
        inner = [{"type": "text", "text": t} for t in texts]
        return {"content": [{"type": "thinking", "thinking": inner}]}

    read = stream(
        chunk({"content": ""}),
        chunk(think("Okay", ", ")),
        chunk(think()),
        chunk(think("so")),
        chunk({"content": [{"type": "text", "text": "The "}, {"type": "reference", "ids": [1]}]}),
        chunk({"content": "answer"}),
        chunk({}, "stop"),
    )
    assert read.message.parts == (Thinking("Okay, so", {"field": "content"}), Text("The answer"))


def test_of_several_choices_one_is_heard() -> None:
    def of(index: int, delta: Json, finish: str | None = None) -> Json:
        return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}

    both = {"choices": [*of(1, {"content": "y"})["choices"], *of(0, {"content": "b"})["choices"]]}
    frames = [
        of(0, {"role": "assistant", "content": "a"}),
        of(1, {"role": "assistant", "content": "x"}),
        both,
        of(1, {}, "length"),
        of(0, {}, "stop"),
    ]
    for size in (1, len(events(*frames))):
        read = Read(events(*frames), size=size)
        assert (read.message.text, read.stop) == ("ab", "end")
    only = Read(events(of(1, {"content": "x"}), of(1, {"content": "y"}), of(1, {}, "length")))
    assert (only.message.text, only.stop) == ("xy", "length")


def test_text_in_unusual_places_is_not_lost() -> None:
    read = stream(
        chunk({"content": ["a", {"text": "b"}]}),
        chunk({"content": None, "audio": {"id": "1", "transcript": "c"}}),
        chunk({"audio": {"transcript": "d"}}, "stop"),
    )
    assert read.message.text == "abcd"
    assert whole({"content": None, "audio": {"transcript": "said"}}).message.text == "said"


def test_tags_in_the_content_are_reasoning() -> None:
    read = stream(
        chunk({"content": "<thi"}), chunk({"content": "nk>a</think>b"}), chunk({}, "stop")
    )
    assert read.message.parts == (Thinking("a"), Text("b"))


def test_refusal_is_filtered_with_the_words_of_the_provider() -> None:
    read = stream(chunk({"refusal": "I can't "}), chunk({"refusal": "do that."}), chunk({}, "stop"))
    assert (read.stop, read.answer.detail) == ("filtered", "I can't do that.")
    assert read.message.parts == ()
    assert whole({"content": None, "refusal": "No."}).stop == "filtered"
    assert stream(chunk({"content": "", "refusal": "No."}), chunk({}, "stop")).stop == "filtered"


# -- tool calls --------------------------------------------------------------------------------


def call(
    index: int | None = None, id: str = "", name: str = "", args: Any = None, **e: Any
) -> Json:
    function = {k: v for k, v in (("name", name), ("arguments", args)) if v or v == ""}
    out = {"index": index, "id": id, "function": function, **e}
    return {"tool_calls": [{k: v for k, v in out.items() if v is not None and v != ""}]}


def calls(*fragments: Json) -> list[tuple[str, str, str]]:
    read = stream(*(chunk(f) for f in fragments), chunk({}, "tool_calls"))
    assert read.stop == "tool_use"
    return [(c.id, c.name, c.args) for c in read.message.calls]


def test_parallel_calls_are_assembled_by_index() -> None:
    assert calls(
        call(0, "a", "read", ""),
        call(1, "b", "list", ""),
        call(0, args='{"p"'),
        call(1, args='{"d":'),
        call(0, args=":1}"),
        call(1, args="2}"),
    ) == [("a", "read", '{"p":1}'), ("b", "list", '{"d":2}')]


def test_a_name_in_every_chunk_is_one_name() -> None:
    assert calls(
        call(0, "a", "read", ""), call(0, "a", "read", '{"p":'), call(0, "a", "read", "1}")
    ) == [("a", "read", '{"p":1}')]


def test_ids_that_change_within_a_call_are_one_call() -> None:
    assert calls(call(0, "r1", "read", '{"p":'), call(0, "r2", "read", "1}")) == [
        ("r1", "read", '{"p":1}')
    ]


def test_one_index_for_all_calls() -> None:
    assert calls(
        call(0, "a", "read", '{"p":1}'), call(0, "b", "read", '{"p":2}'), call(0, "c", "list", "{}")
    ) == [("a", "read", '{"p":1}'), ("b", "read", '{"p":2}'), ("c", "list", "{}")]


def test_one_index_for_calls_whose_arguments_have_not_begun() -> None:
    assert calls(call(0, "a", "read", ""), call(0, "b", "list", "")) == [
        ("a", "read", ""),
        ("b", "list", ""),
    ]


def test_calls_without_index() -> None:
    assert calls(
        call(None, "a", "read", '{"p":'),
        call(None, args="1}"),
        call(None, "b", "list", "{"),
        call(None, "b", args="}"),
    ) == [("a", "read", '{"p":1}'), ("b", "list", "{}")]


def test_calls_with_neither_index_nor_id() -> None:
    assert calls(
        call(None, "", "read", '{"p":'),
        call(None, "", "read", "1}"),
        call(None, "", "read", "{}"),
        call(None, "", "list", ""),
    ) == [("", "read", '{"p":1}'), ("", "read", "{}"), ("", "list", "")]


def test_arguments_missing_null_or_an_object() -> None:
    assert calls(call(0, "a", "f"), call(1, "b", "g", {"x": [1]}), call(2, "c", "h", "")) == [
        ("a", "f", ""),
        ("b", "g", '{"x":[1]}'),
        ("c", "h", ""),
    ]
    read = whole(
        {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": None}}]}, "stop"
    )
    assert read.message.calls == (ToolCall("a", "f"),)


def test_the_old_function_call() -> None:
    read = stream(
        chunk({"function_call": {"name": "f", "arguments": ""}}),
        chunk({"function_call": {"arguments": '{"a":'}}),
        chunk({"function_call": {"arguments": "1}"}}, "function_call"),
    )
    assert read.message.calls == (ToolCall("", "f", '{"a":1}'),)
    assert whole({"function_call": {"name": "f", "arguments": "{}"}}).stop == "tool_use"


def test_extras_of_a_call_are_kept_and_fillers_are_not() -> None:
    extra = {"google": {"thought_signature": "s"}}
    fragment = {
        "index": 0,
        "id": "a",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "custom": {"name": "", "input": ""},
        "note": None,
        "list": [],
        "extra_content": extra,
    }
    read = stream(chunk({"tool_calls": [fragment]}), chunk({}, "tool_calls"))
    assert read.message.calls == (ToolCall("a", "f", "{}", {"extra_content": extra}),)


def test_what_the_server_ran_itself_is_no_call() -> None:
    read = stream(
        chunk({"executed_tools": [{"type": "search", "index": 0, "arguments": "{}"}]}),
        chunk({"tool_calls": [{"index": 0, "type": "custom", "custom": {"name": "x"}}]}),
        chunk({"content": "found"}, "stop"),
    )
    assert read.message.calls == ()
    assert read.stop == "end"


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "", None, "content_filter"])
def test_calls_win_over_the_finish_reason(finish: str | None) -> None:
    read = stream(chunk({"content": "ok"}), chunk(call(0, "a", "f", "{}")), chunk({}, finish))
    assert read.stop == "tool_use"
    assert read.message.parts == (Text("ok"), ToolCall("a", "f", "{}"))


@pytest.mark.parametrize(
    ("args", "stop"), [('{"a":"x', "length"), ("", "length"), ("{}", "tool_use")]
)
def test_a_call_cut_by_the_limit_says_so(args: str, stop: str) -> None:
    assert stream(chunk(call(0, "a", "f", args)), chunk({}, "length")).stop == stop


def test_a_stream_that_breaks_off_in_a_call_died() -> None:
    read = stream(chunk(call(0, "a", "write_file", '{"p":')), done=False)
    assert read.stop == "died"
    assert read.answer.call_names == ("write_file",)


def test_complete_messages_number_calls_by_place() -> None:
    same = [{"id": i, "index": 0, "function": {"name": "f", "arguments": "{}"}} for i in "ab"]
    assert [c.id for c in whole({"content": None, "tool_calls": same}).message.calls] == ["a", "b"]


# -- usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5}, Usage(10, 5)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 2},
                "cost": 0.5,
            },
            Usage(10, 5, 4, 3, 2, 0.5),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 8, "cost": 0},
            Usage(9, 1, 8, cost=0),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 1, "num_cached_tokens": 7}, Usage(9, 1, 7)),
        ({"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 6}, Usage(9, 1, 6)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 0, "cache_creation_input_tokens": 6},
            },
            Usage(9, 1, 0, 6),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 1,
                "cache_read_input_tokens": 5,
                "cache_creation_input_tokens": 2,
            },
            Usage(9, 1, 5, 2),
        ),
        (
            {
                "input_tokens": 9,
                "output_tokens": 3,
                "input_tokens_details": {"cached_tokens": 5},
                "output_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(9, 3, 5, 0, 2),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 1,
                "prompt_tokens_details": None,
                "completion_tokens_details": None,
            },
            Usage(9, 1),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 1,
                "total_tokens": 20,
                "completion_tokens_details": {"reasoning_tokens": 10},
            },
            Usage(9, 11, reasoning=10),
        ),
    ],
)
def test_usage_under_all_its_names(usage: Json, expected: Usage) -> None:
    assert stream(chunk({"content": "x"}, "stop"), chunk(usage=usage)).message.usage == expected
    assert whole({"content": "x"}, usage=usage).message.usage == expected
    assert (
        stream(
            chunk({"content": "x"}, "stop"), chunk({"content": ""}, x_groq={"usage": usage})
        ).message.usage
        == expected
    )
    inside = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop", "usage": usage}
    assert stream({"choices": [inside]}).message.usage == expected


def test_usage_may_come_early_and_null_takes_nothing_back() -> None:
    read = stream(
        chunk({"content": "a"}, usage={"prompt_tokens": 1, "completion_tokens": 1}),
        chunk({"content": "b"}, usage=None),
        chunk({}, "stop", usage={"prompt_tokens": None, "completion_tokens": 2}),
        chunk(moderation={"flagged": False}),
    )
    assert read.message.usage == Usage(1, 2)
    assert read.message.text == "ab"


@pytest.mark.parametrize("bad", [-5, 10**15, "many", True])
def test_impossible_usage_is_estimated(bad: Any) -> None:
    usage = {"prompt_tokens": bad, "completion_tokens": bad}
    read = stream(chunk({"content": "x" * 40}, "stop"), chunk(usage=usage))
    assert read.message.usage == Usage(0, 11, estimated=True)


# -- errors ------------------------------------------------------------------------------------

OVERFLOW = "This model's maximum context length is 8192 tokens."


def test_error_frames_raise_with_the_providers_words_and_keep_what_came() -> None:
    error = {"message": OVERFLOW, "type": "invalid_request_error", "code": "c", "status_code": 400}
    body = events(
        chunk({"content": "maybe"}),
        "event: error\ndata: " + json.dumps({"error": error}),
        done=False,
    )
    answer = ResponseBuilder()
    decoder = chat.Decoder(answer, Quirks())
    with pytest.raises(ProviderError) as caught:
        decoder.feed(body)
    failure = caught.value.failure
    assert (failure.kind, failure.status, failure.code) == (Kind.CONTEXT_OVERFLOW, 400, "c")
    assert failure.message == OVERFLOW
    assert answer.build_message(TARGET).text == "maybe"


@pytest.mark.parametrize(
    "frame",
    [
        {**chunk({"content": ""}), "error": {"code": 429, "message": "slow down"}},
        {"error": {"code": "429", "message": "slow down"}},
        {"error": {"status": 429, "message": "slow down"}},
        {"error": {"http_status_code": 429, "message": "slow down"}},
        {"object": "error", "message": "slow down", "code": 429},
        {"error": "slow down", "code": 429},
        {"base_resp": {"status_code": 429, "status_msg": "slow down"}},
    ],
)
def test_in_band_errors_of_all_shapes(frame: Json) -> None:
    found = failure(events(chunk({"content": "a"}), frame))
    assert found.kind is Kind.RATE_LIMITED
    assert "slow down" in found.message
    assert failure(json.dumps({**frame, "choices": None}).encode(), is_whole=True) == found


def test_an_error_inside_the_choice() -> None:
    error = {"code": 429, "message": "slow down"}
    choice = {"finish_reason": "error", "error": error}
    for where in ("delta", "message"):
        frame = {"choices": [{**choice, where: {"content": "a"}}]}
        assert failure(events(frame)).kind is Kind.RATE_LIMITED
        assert failure(json.dumps(frame).encode(), is_whole=True).kind is Kind.RATE_LIMITED


def test_an_error_beside_the_usage() -> None:
    stopped = {**chunk({}), "x_groq": {"id": "1", "error": OVERFLOW}}
    assert failure(events(chunk({"content": "a"}), stopped)).kind is Kind.CONTEXT_OVERFLOW


def test_nothing_is_nested_too_deeply() -> None:
    deep = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"choices":[]}'
    read = Read(b"data: " + deep + b"\n\n" + events(chunk({"content": "a"}, "stop")))
    assert (read.message.text, read.decoder.skipped) == ("a", 1)


def test_the_upstreams_own_words_are_kept() -> None:
    error = {"code": 400, "message": "Provider returned error", "metadata": {"raw": OVERFLOW}}
    assert failure(events({"error": error})).kind is Kind.CONTEXT_OVERFLOW


def test_harmless_frames_are_no_errors() -> None:
    read = stream(
        {"error": None, **chunk({"content": "a"})},
        {"base_resp": {"status_code": 0, "status_msg": ""}, **chunk({"content": "b"})},
        {"id": "x", "type": "ping"},
        {"base_resp": {"status_code": 0, "status_msg": "ok"}},
        chunk({}, "stop", error={}),
    )
    assert read.message.text == "ab"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "m", "type": "t", "code": "c", "param": "p"}}, ("c", "m", "p")),
        ({"error": {"message": "m", "type": "t", "code": None, "param": None}}, ("t", "m", "")),
        ({"error": {"message": "m", "code": 400}}, ("400", "m", "")),
        ([{"error": {"message": "m", "code": 1}}], ("1", "m", "")),
        ({"errors": [{"message": "m", "code": 10000}]}, ("10000", "m", "")),
        ({"detail": "Not Found"}, ("", "Not Found", "")),
        ({"detail": [{"msg": "x"}]}, ("", '[{"msg":"x"}]', "")),
        ({"message": "Unauthorized"}, ("", "Unauthorized", "")),
        ({"error": {}}, ("", "", "")),
        ({"id": "x", "type": "ping"}, ("", "", "")),
        ({}, ("", "", "")),
        ("text", ("", "", "")),
        (None, ("", "", "")),
    ],
)
def test_error_bodies(body: Any, expected: tuple[str, str, str]) -> None:
    assert chat.error(body, {}) == expected


# -- bodies that are not what was asked for ----------------------------------------------------


def test_a_json_body_read_as_a_stream_and_a_stream_read_as_a_body() -> None:
    body = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    for data in (
        json.dumps(body).encode(),
        b"\xef\xbb\xbf \n" + json.dumps(body, indent=1).encode(),
    ):
        read = Read(data, size=3)
        assert (read.message.text, read.stop) == ("hi", "end")
        assert read.events == [TextDelta("hi")]
    streamed = b": hello\n\n" + events(chunk({"content": "hi"}, "stop"))
    assert Read(streamed, whole=True).message.text == "hi"
    framed = stream(body)
    assert (framed.message.text, framed.stop) == ("hi", "end")


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("garbage", [b"<oops>", b"{broken", b"[1] warning: metadata:"])
def test_garbage_before_a_stream_does_not_hold_it_up(garbage: bytes, size: int) -> None:
    data = garbage + b"\n" + events(chunk({"content": "hel"}), chunk({"content": "lo"}, "stop"))
    answer = ResponseBuilder()
    reader = body_reader("chat", answer)
    end = data.index(b'"lo"')
    for i in range(0, end, size):
        reader.feed(data[i : min(i + size, end)])
    assert answer.drain_events() == [TextDelta("hel")]
    reader.feed(data[end:])
    reader.close()
    assert (answer.build_message(TARGET).text, answer.stop) == ("hello", "end")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html><body>Sign in</body></html>", Kind.NOT_API),
        (b"Not found", Kind.NOT_API),
        (b"[]", Kind.NOT_API),
        (b'{"status":"ok"}', Kind.NOT_API),
        (b'{"choices":[{"mess', Kind.NETWORK),
        (b'{"error":{"message":"no such key","code":"invalid_api_key"}}', Kind.AUTH),
    ],
)
def test_bodies_that_are_no_answer(body: bytes, kind: Kind) -> None:
    assert failure(body, is_whole=True).kind is kind
    if body.startswith((b"<", b"{", b"[")):
        assert failure(body).kind is kind


def test_an_empty_document_is_no_answer() -> None:
    with pytest.raises(ProviderError) as caught:
        chat.Decoder(ResponseBuilder(), Quirks()).whole(b"")
    assert caught.value.failure.kind is Kind.NOT_API


def test_an_endless_plain_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.llm.wire.body_reader.MAX_DOCUMENT", 1000)
    assert sse.MAX_EVENT > 1000
    assert failure(b"{" + b" " * 2000).kind is Kind.ANSWER_TOO_LARGE


KEYS = (
    "choices delta message content tool_calls function name arguments index id type text usage "
    "error code finish_reason reasoning reasoning_details prompt_tokens x_groq"
).split()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "stop", "error"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=4))
@settings(max_examples=150, deadline=None)
def test_no_json_can_crash_the_decoder(values: list[Any]) -> None:
    body = b"".join(b"data: " + json.dumps(v).encode() + b"\n\n" for v in values)
    for data, is_whole in ((body, False), (json.dumps(values[:1]).encode()[1:-1], True)):
        answer = ResponseBuilder()
        decoder = chat.Decoder(answer, Quirks())
        try:
            if is_whole:
                decoder.whole(data)
            else:
                decoder.feed(data)
                decoder.close()
        except ProviderError:
            pass
        answer.finish_events()
        answer.build_message(TARGET)


# -- requests ----------------------------------------------------------------------------------

TOOL = ToolSpec("read", "Reads.", {"type": "object", "properties": {"p": {"type": "string"}}})


PLAIN = Quirks()
DEFAULTS = Settings()


def body(
    *groups: Message,
    quirks: Quirks = PLAIN,
    settings: Settings = DEFAULTS,
    system: str = "sys",
    tools: tuple[ToolSpec, ...] = (),
    stream: bool = True,
) -> Json:
    encoder = chat.Encoder(TARGET, quirks)
    for group in groups[:-1]:
        encoder.push(group)
    raw = encoder.body(groups[-1:], system=system, tools=tools, settings=settings, stream=stream)
    out: Json = json.loads(raw)
    return out


def user(*parts: Part) -> Message:
    return Message("user", parts)


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts)


HI = user(Text("hi"))


def test_the_envelope() -> None:
    assert body(HI) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "system", "content": "sys"}, {"role": "user", "content": "hi"}],
    }
    settings = Settings(max_output=9, temperature=0.5, stop=("END",))
    full = body(HI, settings=settings, tools=(TOOL,), stream=False, system="")
    function = {"name": "read", "description": "Reads.", "parameters": TOOL.parameters}
    assert full == {
        "model": "m",
        "stream": False,
        "max_tokens": 9,
        "temperature": 0.5,
        "stop": ["END"],
        "tools": [{"type": "function", "function": function}],
        "messages": [{"role": "user", "content": "hi"}],
    }


def test_quirks_of_the_envelope() -> None:
    quirks = Quirks(
        system_role="developer",
        max_tokens_field="max_completion_tokens",
        max_tokens_default=32000,
        usage_in_stream=False,
        tools=False,
        drop=("temperature", "provider.order", "model"),
        body={"provider": {"order": ["a"], "only": ["b"]}},
    )
    out = body(HI, quirks=quirks, settings=Settings(temperature=1.0), tools=(TOOL,))
    assert out == {
        "model": "m",
        "stream": True,
        "max_completion_tokens": 32000,
        "provider": {"only": ["b"]},
        "messages": [{"role": "developer", "content": "sys"}, {"role": "user", "content": "hi"}],
    }
    assert "tools" not in body(HI, tools=(TOOL,), settings=Settings(tool_choice="none"))
    spec = ToolSpec(
        "t", "", {"type": "object", "properties": {"d": {"type": "string", "format": "x"}}}
    )
    tool = body(HI, quirks=Quirks(schema="no_formats"), tools=(spec,))["tools"][0]["function"]
    assert tool == {
        "name": "t",
        "parameters": {"type": "object", "properties": {"d": {"type": "string"}}},
    }


@pytest.mark.parametrize(
    ("quirks", "effort", "fields"),
    [
        (Quirks(), "high", {}),
        (Quirks(effort="effort"), None, {}),
        (Quirks(effort="effort"), "high", {"reasoning_effort": "high"}),
        (Quirks(effort="object"), "low", {"reasoning": {"effort": "low"}}),
        (Quirks(effort="object"), "none", {"reasoning": {"enabled": False}}),
        (Quirks(effort="think"), "none", {"think": False, "reasoning_effort": "none"}),
        (Quirks(effort="think"), "low", {"reasoning_effort": "low"}),
        (
            Quirks(effort="effort", thinking_switch="always"),
            "low",
            {"reasoning_effort": "low", "thinking": {"type": "enabled"}},
        ),
        (
            Quirks(effort="effort", thinking_switch="always"),
            "none",
            {"thinking": {"type": "disabled"}},
        ),
        (Quirks(thinking_switch="always"), None, {"thinking": {"type": "enabled"}}),
        (Quirks(thinking_switch="asked"), None, {}),
        (Quirks(thinking_switch="asked"), "high", {"thinking": {"type": "enabled"}}),
        (Quirks(thinking_switch="asked"), "none", {"thinking": {"type": "disabled"}}),
        (
            Quirks(effort="effort", thinking_switch="alone"),
            "low",
            {"reasoning_effort": "low"},
        ),
        (
            Quirks(effort="effort", thinking_switch="alone"),
            "none",
            {"thinking": {"type": "disabled"}},
        ),
        (Quirks(effort="budget"), "low", {}),
    ],
)
def test_reasoning_effort(quirks: Quirks, effort: Any, fields: Json) -> None:
    out = body(HI, quirks=quirks, settings=Settings(effort=effort))
    known = ("reasoning_effort", "reasoning", "think", "thinking")
    assert {k: v for k, v in out.items() if k in known} == fields


def test_tool_calls_and_results() -> None:
    args = '{"p" : "a",\n"q":1}'
    out = body(
        HI,
        assistant(
            Text("Let me "), Text("look."), ToolCall("c1", "read", args), ToolCall("c2", "list")
        ),
        user(
            ToolReturn("c1", "read", (Text("one "), Text("two"))),
            ToolReturn("c2", "list"),
            Text("and"),
            Text("then"),
        ),
    )
    assert out["messages"][2:] == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read", "arguments": args}},
                {"id": "c2", "type": "function", "function": {"name": "list", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one two"},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
        {"role": "user", "content": "and\n\nthen"},
    ]
    silent = body(HI, assistant(ToolCall("c", "f", "{}")), user(ToolReturn("c", "f")))
    assert silent["messages"][2]["content"] is None


@pytest.mark.parametrize("args", ['{"a":', "[1]", '"x"', "not json", "null", '{"a":"\x01"}'])
def test_arguments_that_are_no_object_are_told_legally(args: str) -> None:
    out = body(HI, assistant(ToolCall("c", "f", args)), user(ToolReturn("c", "f")))
    sent = out["messages"][2]["tool_calls"][0]["function"]["arguments"]
    value = json.loads(sent)
    assert isinstance(value, dict) and value


def test_extras_of_a_call_go_back() -> None:
    extra = {"extra_content": {"google": {"thought_signature": "s"}}}
    out = body(HI, assistant(ToolCall("c", "f", "{}", extra)), user(ToolReturn("c", "f")))
    assert out["messages"][2]["tool_calls"][0]["extra_content"] == extra["extra_content"]


@pytest.mark.parametrize(
    ("parts", "quirks", "fields"),
    [
        ((Thinking("why", {"field": "reasoning"}),), Quirks(), {"reasoning": "why"}),
        (
            (
                Thinking("a", {"field": "reasoning_content"}),
                Thinking("b", {"field": "reasoning_content"}),
            ),
            Quirks(),
            {"reasoning_content": "ab"},
        ),
        (
            (Thinking("why", {"field": "reasoning"}),),
            Quirks(thinking_field="reasoning_content"),
            {},
        ),
        ((Thinking("from a tag"),), Quirks(), {}),
        (
            (Thinking("why", {"field": "reasoning", "reasoning_details": [{"type": "x"}]}),),
            Quirks(),
            {"reasoning_details": [{"type": "x"}]},
        ),
    ],
)
def test_reasoning_goes_back_where_it_came(
    parts: tuple[Part, ...], quirks: Quirks, fields: Json
) -> None:
    out = body(HI, assistant(*parts, Text("yes")), HI, quirks=quirks)
    assert out["messages"][2] == {"role": "assistant", "content": "yes", **fields}


def test_reasoning_in_a_content_list_goes_back_in_one() -> None:
    thought = Thinking("why", {"field": "content"})
    inner = {"type": "thinking", "thinking": [{"type": "text", "text": "why"}]}
    out = body(HI, assistant(thought, Text("yes")), HI)
    assert out["messages"][2]["content"] == [inner, {"type": "text", "text": "yes"}]


def test_where_calls_must_carry_reasoning_every_call_does() -> None:
    thought = Thinking("why", {"field": "reasoning"})
    for said, sent in (((), ""), ((thought,), "why")):
        out = body(
            HI,
            assistant(*said, ToolCall("c", "f", "{}")),
            user(ToolReturn("c", "f")),
            quirks=Quirks(thinking_field="reasoning_content"),
        )
        assert out["messages"][2]["reasoning_content"] == sent


def test_images_and_files() -> None:
    out = body(
        user(
            Text("see"),
            Media("image/png", b"\x89P"),
            Media("image/png", url="https://x/y.png"),
            Media("application/pdf", b"%PDF", name="a.pdf"),
            Media("audio/mpeg", b"mp3"),
            Media("video/mp4", b"mp4", name="v.mp4"),
        )
    )
    assert out["messages"][1]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVA="}},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        },
        {"type": "input_audio", "input_audio": {"data": "bXAz", "format": "mp3"}},
        {"type": "text", "text": "[v.mp4 (video/mp4) cannot be shown to this model]"},
    ]
    result = ToolReturn("c", "f", (Text("shot"), Media("image/png", b"\x89P")))
    inside = body(HI, assistant(ToolCall("c", "f", "{}")), user(result))["messages"][3]
    assert [p["type"] for p in inside["content"]] == ["text", "image_url"]


def test_bad_unicode_never_reaches_the_wire() -> None:
    out = body(HI, assistant(Text("a\ud800")), user(Text("b\x00c")), system="s\udfff")
    assert [m["content"] for m in out["messages"]] == ["s\ufffd", "hi", "a\ufffd", "b\ufffdc"]


def test_consecutive_requests_share_their_prefix_byte_for_byte() -> None:
    encoder = chat.Encoder(TARGET, Quirks())
    groups: list[Message] = []
    last = b""
    for i in range(20):
        groups.append(user(Text(f"question {i}")) if i % 2 == 0 else assistant(Text(f"answer {i}")))
        if i % 2 == 0:
            raw = encoder.body(
                groups[i:], system="sys", tools=(TOOL,), settings=Settings(), stream=True
            )
            assert raw.startswith(last)
            assert len(json.loads(raw)["messages"]) == i + 2
            last = raw.removesuffix(b"]}")
        encoder.push(groups[i])


def test_cache_markers_sit_on_the_system_prompt_and_the_last_three_messages() -> None:
    def marked(out: Json) -> list[int]:
        found = []
        for i, message in enumerate(out["messages"]):
            assert "cache_control" not in message
            if isinstance(message["content"], list):
                assert message["content"][-1]["cache_control"] == {"type": "ephemeral"}
                found.append(i)
        return found

    calling = assistant(ToolCall("c", "f", "{}"))
    answered = user(ToolReturn("c", "f", (Text("result"),)))
    groups = [HI, assistant(Text("a")), HI, calling, answered]
    quirks = Quirks(cache="envelope")
    assert marked(body(*groups, quirks=quirks)) == [0, 2, 3, 5]
    assert marked(body(HI, quirks=quirks)) == [0, 1]
    plain = Quirks(cache="envelope", cache_results=False)
    assert marked(body(*groups, quirks=plain)) == [0, 1, 2, 3]
    assert marked(body(*groups)) == []
    many = [g for i in range(30) for g in (HI, assistant(Text(str(i))))] + [HI]
    out = body(*many, quirks=quirks)
    assert marked(out) == [0, 59, 60, 61]
    assert len(out["messages"]) == 62


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("https://h/v1", "https://h/v1/chat/completions"),
        ("https://h/v1/", "https://h/v1/chat/completions"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        ("https://h/d?api-version=1", "https://h/d/chat/completions?api-version=1"),
    ],
)
def test_url(base: str, expected: str) -> None:
    assert chat.url(base, "m", stream=True) == expected

"""Answers of the chat wire: text, reasoning and usage in every shape servers send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes.core.errors import Kind
from hermes.core.events import TextDelta, ThinkingDelta
from hermes.core.message import (
    Text,
    Thinking,
    Usage,
)
from tests.wire.chat_frames import Json, Read, chunk, events, stream, whole

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


def test_a_broken_off_answer_is_the_providers_failure() -> None:
    assert Read.failure(events(chunk({"content": "hi"}), chunk({}, "error"))).kind is Kind.SERVER


def test_a_full_window_without_an_answer_is_an_overflow() -> None:
    full = chunk({}, "model_context_window_exceeded")
    assert Read.failure(events(full)).kind is Kind.CONTEXT_OVERFLOW
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

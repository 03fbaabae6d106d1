"""Answers of the responses wire: items in any order and state of completion."""

from __future__ import annotations

import json

import pytest

from hermes.core.errors import Kind
from hermes.core.events import CallBegan, TextDelta, ThinkingDelta
from hermes.core.message import (
    Native,
    Text,
    Thinking,
    ToolCall,
)
from tests.wire.responses_frames import (
    COUNTED,
    Json,
    Read,
    added,
    delta,
    done,
    end,
    ev,
    frames,
    function,
    message,
    reasoning,
    stream,
    whole,
)
from tests.wire.talk import encode_groups, user

HI = user(Text("hi"))

# -- the ordinary course -----------------------------------------------------------------------


def test_text_comes_once_per_read_and_usage_with_the_terminal_frame() -> None:
    read = stream(
        ev("created", None, response={"status": "in_progress", "usage": None, "tools": [1]}),
        added(message()),
        ev("content_part.added", 0, part={"type": "output_text", "text": ""}),
        delta("Hel"),
        delta("lo"),
        ev("output_text.done", 0, content_index=0, text="Hello"),
        ev("content_part.done", 0, content_index=0, part={"type": "output_text", "text": "Hello"}),
        done(message("Hello")),
        end(),
    )
    assert read.events == [TextDelta("Hello")]
    assert read.parts == (Text("Hello"),)
    assert (read.stop, read.message.usage) == ("end", COUNTED)


def test_a_call_between_text_and_reasoning() -> None:
    read = stream(
        added(reasoning()),
        ev("reasoning_summary_text.delta", 0, summary_index=0, delta="Need "),
        ev("reasoning_summary_text.delta", 0, summary_index=0, delta="a file"),
        ev("reasoning_summary_text.delta", 0, summary_index=1, delta="Then"),
        done(reasoning("Need a file", "Then", encrypted_content="blob")),
        added(message(), 1),
        delta("Reading.", 1),
        done(message("Reading.", phase="commentary"), 1),
        added(function("c1", ""), 2),
        ev("function_call_arguments.delta", 2, delta='{"p"'),
        ev("function_call_arguments.delta", 2, delta=":1}"),
        ev("function_call_arguments.done", 2, arguments='{"p":1}'),
        done(function("c1", '{"p":1}', namespace="files"), 2),
        end(),
    )
    extra = {
        "summary": [
            {"type": "summary_text", "text": "Need a file"},
            {"type": "summary_text", "text": "Then"},
        ],
        "encrypted_content": "blob",
    }
    assert read.parts == (
        Thinking("Need a file\n\nThen", extra),
        Text("Reading.", {"phase": "commentary"}),
        ToolCall("c1", "read", '{"p":1}', {"namespace": "files"}),
    )
    assert read.stop == "tool_use"
    assert read.events == [
        ThinkingDelta("Need a file\n\nThen"),
        TextDelta("Reading."),
        CallBegan("read"),
    ]
    same = whole(
        reasoning("Need a file", "Then", encrypted_content="blob"),
        message("Reading.", phase="commentary"),
        function("c1", '{"p":1}', namespace="files"),
    )
    assert (same.parts, same.stop, same.message.usage) == (read.parts, "tool_use", COUNTED)


@pytest.mark.parametrize("line_order", ["data first", "no name", "done at the end"])
def test_framing_is_free(line_order: str) -> None:
    values = [added(message()), delta("hi"), done(message("hi")), end()]
    out = ""
    for value in values:
        data = f"data: {json.dumps(value)}\n"
        out += data + f"event: {value['type']}\n\n" if line_order == "data first" else data + "\n"
    if line_order == "done at the end":
        out += "data: [DONE]\n\ndata: [DONE]\n\ndata: " + json.dumps(delta("ghost")) + "\n\n"
    assert Read(out.encode()).parts == (Text("hi"),)


# -- completeness ------------------------------------------------------------------------------


def test_everything_from_item_done_alone() -> None:
    read = stream(done(reasoning("why")), done(message("a", "b"), 1), done(function(), 2), end())
    assert [type(p) for p in read.parts] == [Thinking, Text, ToolCall]
    assert read.message.text == "ab"
    assert read.events[:2] == [ThinkingDelta("why"), TextDelta("ab")]


def test_everything_from_deltas_alone() -> None:
    read = stream(added(message()), delta("hi"), end())
    assert read.parts == (Text("hi"),)
    bare = stream(delta("hi"), end())
    assert (bare.parts, bare.stop) == ((Text("hi"),), "end")


def test_items_are_ordered_by_index_and_ids_mean_nothing() -> None:
    read = stream(
        added(reasoning(id="tmp1")),
        added(message(id="tmp2"), 1),
        delta("4", 1),
        done(message("4", id="tmp2"), 1),
        ev("reasoning_text.delta", 0, content_index=0, delta="two and two"),
        done(reasoning(id="tmp1", content=[{"type": "reasoning_text", "text": "two and two"}]), 0),
        end(
            output=[
                reasoning(id="x", content=[{"type": "reasoning_text", "text": "two and two"}]),
                message("4", id="y"),
            ]
        ),
    )
    assert [type(p) for p in read.parts] == [Thinking, Text]
    assert read.message.thinking == "two and two"
    assert read.message.text == "4"


def test_an_item_never_done_is_taken_from_the_terminal_frame() -> None:
    listing = {"type": "mcp_list_tools", "id": "l", "server_label": "s", "tools": [{"name": "t"}]}
    read = stream(
        added({**listing, "tools": []}),
        added(message(), 1),
        delta("ok", 1),
        done(message("ok"), 1),
        end(output=[listing, message("ok")]),
    )
    assert read.parts == (Native(listing), Text("ok"))
    without = stream(added({**listing, "tools": []}), done(message("ok"), 1), end())
    assert without.parts == (Text("ok"),)


def test_a_terminal_frame_that_does_not_fit_the_stream_adds_nothing() -> None:
    read = stream(
        added(message(), 1), delta("ok", 1), done(message("ok"), 1), end(output=[message("ok")])
    )
    assert read.parts == (Text("ok"),)


def test_a_terminal_frame_alone_is_an_answer() -> None:
    assert stream(end(output=[message("hi"), function()])).parts == (
        Text("hi"),
        ToolCall("c1", "read", "{}"),
    )


@pytest.mark.parametrize("at", [0, None])
def test_one_index_for_all_items_or_none(at: int | None) -> None:
    read = stream(
        added(reasoning(), at),
        ev("reasoning_summary_text.delta", at, delta="why"),
        done(reasoning("why"), at),
        added(function("a", ""), at),
        ev("function_call_arguments.delta", at, delta='{"x":1}'),
        done(function("a", '{"x":1}'), at),
        added(function("b", ""), at),
        ev("function_call_arguments.delta", at, delta='{"x":2}'),
        done(function("b", '{"x":2}'), at),
        end(),
    )
    assert [c.args for c in read.message.calls] == ['{"x":1}', '{"x":2}']
    assert read.message.thinking == "why"


def test_calls_with_one_index_and_one_id_are_two() -> None:
    read = stream(
        *(e for x in "12" for e in (added(function("c", "")), done(function("c", f'{{"x":{x}}}')))),
        end(),
    )
    assert [c.args for c in read.message.calls] == ['{"x":1}', '{"x":2}']


def test_reasoning_that_is_never_done_keeps_its_place() -> None:
    read = stream(
        done(message("4"), 1),
        ev("reasoning_text.delta", 0, content_index=0, delta="two and two"),
        end(),
    )
    assert read.parts == (Thinking("two and two"), Text("4"))


def test_a_stream_without_terminal_frame_is_complete_when_it_has_content() -> None:
    assert stream(added(message()), delta("hi")).stop == "end"
    read = stream(added(function("c", "")), ev("function_call_arguments.done", 0, arguments="{}"))
    assert (read.stop, read.message.calls[0].args) == ("tool_use", "{}")
    assert read.message.usage is not None and read.message.usage.estimated


def test_a_stream_that_ends_inside_a_call_died() -> None:
    read = stream(
        delta("text", 0),
        added(function("c", ""), 1),
        ev("function_call_arguments.delta", 1, delta='{"a'),
    )
    assert read.stop == "died"
    assert read.answer.call_names == ("read",)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [ev("created", None, response={})],
        [done(reasoning("only thoughts"))],
        [done({"type": "web_search_call", "id": "w"})],
        [added(message())],
    ],
)
def test_neither_terminal_frame_nor_content_is_a_failure(values: list[Json]) -> None:
    found = Read.failure(frames(*values))
    assert found.kind is Kind.NO_TERMINAL
    assert "did not emit a terminal response" in found.message


# -- what is not ours to run -------------------------------------------------------------------


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "id": "w", "action": {"query": "q"}},
        {"type": "mcp_call", "id": "m", "name": "ask", "arguments": "{}", "output": "x"},
        {"type": "code_interpreter_call", "id": "c", "code": "1+1"},
        {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}},
        {"type": "compaction", "id": "k", "encrypted_content": "blob"},
        {"type": "brand_new_item", "id": "n", "name": "f", "call_id": "z", "arguments": "{}"},
    ],
)
def test_the_providers_own_items_are_kept_and_are_no_calls(item: Json) -> None:
    read = stream(
        added(item),
        ev("mcp_call_arguments.delta", 0, delta='{"a"'),
        ev("code_interpreter_call_code.delta", 0, delta="1+1"),
        ev("function_call_arguments.delta", 0, delta='{"stray"'),
        done(item),
        done(message("ok"), 1),
        end(),
    )
    assert read.parts == (Native(item), Text("ok"))
    assert read.stop == "end"
    assert whole(item, message("ok")).parts == read.parts


def test_reasoning_with_nothing_readable_is_kept_for_replay_only() -> None:
    blob = reasoning(encrypted_content="blob")
    read = stream(added(reasoning()), done(blob), done(message("ok"), 1), end())
    assert read.parts == (Thinking("", {"summary": [], "encrypted_content": "blob"}), Text("ok"))
    assert read.events == [TextDelta("ok")]
    assert stream(done(reasoning()), done(message("ok"), 1), end()).parts == (Text("ok"),)


def test_open_reasoning_goes_back_under_its_id_and_sealed_reasoning_without() -> None:
    content = [{"type": "reasoning_text", "text": "open"}]
    read = stream(
        done(reasoning(content=content)),
        done(reasoning(encrypted_content="blob"), 1),
        done(message("ok"), 2),
        end(),
    )
    assert encode_groups("responses", HI, read.message, HI)["input"][1:3] == [
        {"type": "reasoning", "summary": [], "content": content, "id": "rs1"},
        {"type": "reasoning", "summary": [], "encrypted_content": "blob"},
    ]


def test_summary_and_content_of_one_item_count_once() -> None:
    content = [{"type": "reasoning_text", "text": "long"}]
    read = stream(
        ev("reasoning_summary_text.delta", 0, summary_index=0, delta="short"),
        ev("reasoning_text.delta", 0, content_index=0, delta="long"),
        done(reasoning("short", content=content)),
        done(message("ok"), 1),
        end(),
    )
    assert read.message.thinking == "short"
    assert whole(reasoning("short", content=content), message("ok")).message.thinking == "long"


# -- endings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "stop"),
    [
        (end(), "end"),
        (end("incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (end("incomplete", incomplete_details={"reason": "content_filter"}), "filtered"),
        (end("incomplete", incomplete_details=None), "end"),
        (end("cancelled"), "died"),
    ],
)
def test_how_a_text_ends(last: Json, stop: str) -> None:
    assert stream(added(message()), delta("hi"), last).stop == stop


def test_a_refusal_is_filtered_with_its_words() -> None:
    refusal = {"type": "message", "content": [{"type": "refusal", "refusal": "I won't."}]}
    read = stream(
        added(message()),
        ev("refusal.delta", 0, content_index=0, delta="I "),
        ev("refusal.delta", 0, content_index=0, delta="won't."),
        ev("refusal.done", 0, content_index=0, refusal="I won't."),
        done(refusal),
        end(),
    )
    assert (read.stop, read.answer.detail, read.parts) == ("filtered", "I won't.", ())
    assert whole(refusal).answer.detail == "I won't."
    short = stream(
        ev("refusal.delta", 0, content_index=0, delta="I "),
        ev("refusal.done", 0, content_index=0, refusal="I won't."),
    )
    assert (short.stop, short.answer.detail) == ("filtered", "I won't.")

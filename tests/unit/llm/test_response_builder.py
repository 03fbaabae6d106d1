"""Answer: fragments in any order become display events per read and one message at the end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.errors import Kind, ProviderError
from hermes.core.events import CallBegan, StreamEvent, TextDelta, ThinkingDelta
from hermes.core.message import Native, Target, Text, Thinking, ToolCall, Usage
from hermes.llm.response_builder import MAX_CALLS, ResponseBuilder

TARGET = Target("p", "m", "chat")


def shown(events: list[StreamEvent]) -> tuple[str, str]:
    text = "".join(e.text for e in events if isinstance(e, TextDelta))
    return text, "".join(e.text for e in events if isinstance(e, ThinkingDelta))


def test_one_read_is_one_event_per_kind_and_order_is_kept() -> None:
    answer = ResponseBuilder()
    answer.add_thinking("r", "let ")
    answer.add_thinking("r", "me see")
    answer.add_text("t", "Hel")
    answer.add_text("t", "lo")
    assert answer.drain_events() == [ThinkingDelta("let me see"), TextDelta("Hello")]
    assert answer.drain_events() == []
    answer.add_text("t", "!")
    assert answer.finish_events() == [TextDelta("!")]
    assert answer.build_message(TARGET).parts == (Thinking("let me see"), Text("Hello!"))
    assert answer.build_message(TARGET).origin == TARGET


def test_a_call_is_announced_once_behind_the_text_before_it() -> None:
    answer = ResponseBuilder()
    answer.add_text("t", "Reading.")
    answer.add_call(0, id="c1")
    answer.add_call(0, name="read_file")
    answer.add_call(0, name="read_file", args='{"path":')
    answer.add_call(0, name="read_file", args='"a"}')
    assert answer.drain_events() == [TextDelta("Reading."), CallBegan("read_file")]
    assert answer.finish_events() == []
    assert answer.build_message(TARGET).calls == (ToolCall("c1", "read_file", '{"path":"a"}'),)
    assert answer.call_names == ("read_file",)


def test_parts_stand_where_they_are_placed_not_where_they_came() -> None:
    answer = ResponseBuilder()
    answer.add_text("b", "second")
    answer.set_order("b", (1, 0))
    answer.add_thinking("a", "first")
    answer.set_order("a", (0, 0))
    answer.set_native("c", {"type": "search"})
    answer.set_order("c", (2, 0))
    assert answer.build_message(TARGET).parts == (
        Thinking("first"),
        Text("second"),
        Native({"type": "search"}),
    )


def test_texts_side_by_side_are_one_text_unless_one_carries_extras() -> None:
    answer = ResponseBuilder()
    answer.add_text(0, "a cited ")
    answer.add_text(1, "passage")
    answer.add_text(2, " and ")
    answer.add_text(3, "final")
    answer.add_extra(3, "text", phase="final_answer")
    message = answer.build_message(TARGET)
    assert message.parts == (Text("a cited passage and "), Text("final", {"phase": "final_answer"}))
    assert message.text == "a cited passage and final"


def test_one_index_for_two_kinds_keeps_both() -> None:
    answer = ResponseBuilder()
    answer.add_text(0, "text")
    answer.add_call(0, id="c", name="f", args="{}")
    assert answer.build_message(TARGET).parts == (Text("text"), ToolCall("c", "f", "{}"))


def test_closing_frames_complete_what_deltas_left_out() -> None:
    answer = ResponseBuilder()
    answer.add_text("t", "Hel")
    answer.drain_events()
    answer.complete_part("t", "text", "Hello")
    assert answer.drain_events() == [TextDelta("lo")]
    answer.complete_part("t", "text", "Hello")
    assert answer.drain_events() == []
    answer.complete_part("u", "thinking", "never streamed")
    assert answer.drain_events() == [ThinkingDelta("never streamed")]
    answer.complete_part("t", "text", "Goodbye")
    assert answer.build_message(TARGET).text == "Goodbye"
    answer.add_call("c", id="1", name="f", args='{"a"')
    answer.set_args("c", '{"a":1}')
    assert answer.build_message(TARGET).calls[0].args == '{"a":1}'


def test_tags_leave_the_text_once_and_alike_on_screen_and_in_the_message() -> None:
    answer = ResponseBuilder()
    events: list[StreamEvent] = []
    for piece in ("<thi", "nk>why</th", "ink>\n\nAn", "swer <b", ">"):
        answer.add_text("t", piece)
        events += answer.drain_events()
    events += answer.finish_events()
    assert shown(events) == ("Answer <b>", "why")
    assert answer.build_message(TARGET).parts == (Thinking("why"), Text("Answer <b>"))


def test_a_call_ends_an_open_tag() -> None:
    answer = ResponseBuilder()
    answer.add_text("t", "The <think> tag")
    answer.add_extra("t", "text", phase="commentary")
    answer.add_call("c", id="1", name="f", args="{}")
    assert shown(answer.drain_events()) == ("The <think> tag", "")
    assert answer.build_message(TARGET).parts == (
        Text("The <think> tag", {"phase": "commentary"}),
        ToolCall("1", "f", "{}"),
    )


TEXT = st.lists(
    st.sampled_from(["<think>", "</think>", "<th", "ink>", "\n", " ", "a", "b", "<", "`", "é"]),
    max_size=15,
).map("".join)


@given(TEXT, st.lists(st.integers(0, 60), max_size=8), st.lists(st.booleans(), min_size=9))
@settings(max_examples=150, deadline=None)
def test_what_was_shown_is_what_is_stored(text: str, marks: list[int], reads: list[bool]) -> None:
    points = sorted({min(m, len(text)) for m in marks})
    answer = ResponseBuilder()
    events: list[StreamEvent] = []
    cuts = zip([0, *points], [*points, len(text)], strict=True)
    for (a, b), drain in zip(cuts, reads, strict=False):
        answer.add_text("t", text[a:b])
        if drain:
            events += answer.drain_events()
    events += answer.finish_events()
    message = answer.build_message(TARGET)
    stored = "".join(p.text for p in message.parts if isinstance(p, Thinking))
    assert shown(events) == (message.text, stored)


def test_usage_is_cumulative_field_by_field() -> None:
    answer = ResponseBuilder()
    answer.count_usage(input=5, output=1, cost=0)
    answer.count_usage(input=None, output=9, reasoning=4)
    answer.count_usage(cache_read=2, cost=0.25)
    assert answer.usage == Usage(5, 9, cache_read=2, reasoning=4, cost=0.25)


@pytest.mark.parametrize("bad", [-1, 10**12, float("nan"), float("inf"), "7", True, {}])
def test_impossible_usage_is_left_out_and_estimated(bad: object) -> None:
    answer = ResponseBuilder()
    answer.request_size = 400
    answer.add_text("t", "x" * 40)
    answer.count_usage(input=bad, output=bad)
    usage = answer.build_message(TARGET).usage
    assert usage == Usage(100, 11, estimated=True)
    assert answer.usage == usage


def test_missing_usage_is_estimated_only_when_something_came() -> None:
    answer = ResponseBuilder()
    answer.request_size = 400
    assert answer.build_message(TARGET).usage == Usage()
    answer.add_text("t", "hello")
    assert answer.build_message(TARGET).usage == Usage(100, 2, estimated=True)
    reported = ResponseBuilder()
    reported.add_text("t", "hello")
    reported.count_usage(input=3, output=1)
    assert reported.build_message(TARGET).usage == Usage(3, 1)


def test_the_cap_holds_for_text_reasoning_and_arguments() -> None:
    def fill(how: str) -> ResponseBuilder:
        answer = ResponseBuilder(max_size=10_000)
        with pytest.raises(ProviderError) as caught:
            for _ in range(11):
                if how == "call":
                    answer.add_call("s", name="f", args="x" * 1000)
                else:
                    getattr(answer, f"add_{how}")("s", "x" * 1000)
        assert caught.value.failure.kind is Kind.ANSWER_TOO_LARGE
        assert answer.stop == "died"
        return answer

    assert len(fill("text").build_message(TARGET).text) >= 10_000
    fill("thinking")
    fill("call")
    many = ResponseBuilder()
    with pytest.raises(ProviderError):
        for i in range(MAX_CALLS + 1):
            many.add_call(i, name="f")


def test_nul_never_leaves() -> None:
    answer = ResponseBuilder()
    answer.add_text("t", "a\x00b")
    answer.add_call("c", id="i\x00", name="f\x00", args="{}")
    assert answer.drain_events()[0] == TextDelta("a\ufffdb")
    text, call = answer.build_message(TARGET).parts
    assert text == Text("a\ufffdb")
    assert call == ToolCall("i\ufffd", "f\ufffd", "{}")


def test_empty_means_nothing_of_the_models_own() -> None:
    answer = ResponseBuilder()
    assert answer.is_empty
    answer.set_native("n", {"type": "x"})
    assert answer.is_empty
    answer.add_thinking("t", "hm")
    assert not answer.is_empty
    assert answer.drain_events() == [ThinkingDelta("hm")]

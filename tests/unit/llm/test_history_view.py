"""Any history, however odd, becomes one every API accepts."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.history import History
from hermes.core.message import (
    Media,
    Message,
    Native,
    Part,
    Target,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
    user_message,
)
from hermes.llm.history_view import BEGINNING, NO_IMAGES, NO_RESULT, STEER, HistoryView
from hermes.llm.provider_spec import Quirks

HERE = Target("here", "model", "chat")
THERE = Target("there", "model", "chat")
PLAIN = Quirks()

texts = st.sampled_from(["", " ", "hello", "more"])
ids = st.sampled_from(["a", "b", "c", "", "call_0", "call_0_2", "x" * 80, "été"])
extras = st.sampled_from([None, None, {"key": "v"}])
images = st.just(Media("image/png", b"png"))
calls = st.builds(ToolCall, ids, st.sampled_from(["read", "write"]), st.just("{}"), extras)
contents = st.lists(st.builds(Text, texts) | images, max_size=2).map(tuple)
returns = st.builds(ToolReturn, ids, st.just("read"), contents, st.booleans())
said = st.builds(Text, texts, extras)
thoughts = st.builds(Thinking, texts, extras)
natives = st.just(Native({"type": "search"}))
parts = said | thoughts | natives | calls | returns | images


def of(role: str, inner: st.SearchStrategy[Any], **more: Any) -> st.SearchStrategy[Message]:
    lists = st.lists(inner, max_size=4).map(tuple)
    return st.builds(Message, st.just(role), lists, **more)


messages = (
    of("user", said | images)
    | of("user", said, kind=st.just("steer"))
    | of(
        "assistant", said | thoughts | natives | calls, origin=st.sampled_from([HERE, THERE, None])
    )
    | of("tool", returns)
    | of("user", parts)
    | of("assistant", parts, origin=st.just(HERE))
)
marks = st.sampled_from(["", "data-0a1b2c"])
histories = st.lists(messages, max_size=14)
quirks = st.builds(
    Quirks,
    media=st.booleans(),
    media_in_tool_result=st.booleans(),
    thinking_replay=st.sampled_from(["keep", "drop"]),
    call_id=st.sampled_from(["any", "word64", "alnum9"]),
    tools=st.sampled_from([True, True, False]),
)


def groups(
    history: list[Message], q: Quirks = PLAIN, tail: tuple[Message, ...] = (), mark: str = ""
) -> Any:
    out: list[Message] = []
    view = HistoryView(HERE, q, out.append)
    view.add_new_messages(History(history, mark=mark))
    return out + view.pending_groups(tail)


def returned(group: Message) -> list[ToolReturn]:
    return [p for p in group.parts if isinstance(p, ToolReturn)]


@settings(deadline=None)
@given(histories, quirks, marks)
def test_any_history_is_legal(history: list[Message], q: Quirks, mark: str) -> None:
    found = groups(history, q, mark=mark)
    for i, group in enumerate(found):
        assert group.role == ("user", "assistant")[i % 2]
        assert group.parts
        allowed = (Text, ToolReturn, Media) if i % 2 == 0 else (Text, Thinking, ToolCall, Native)
        assert all(isinstance(p, allowed) for p in group.parts)
        results = returned(group)
        assert list(group.parts[: len(results)]) == results
        before = found[i - 1].calls if i else ()
        assert [r.call_id for r in results] == [c.id for c in before]
        assert [r.name for r in results] == [c.name for c in before]
    assert not found or not found[-1].calls
    made = [c.id for g in found for c in g.calls]
    assert len(set(made)) == len(made)
    assert all(made)
    if q.call_id == "word64":
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", id) for id in made)
    if q.call_id == "alnum9":
        assert all(re.fullmatch(r"[a-zA-Z0-9]{9}", id) for id in made)
    everything = [p for g in found for p in g.parts]
    everything += [p for g in found for r in returned(g) for p in r.content]
    if not q.media:
        assert not any(isinstance(p, Media) for p in everything)
    if not q.media_in_tool_result:
        assert not any(isinstance(p, Media) for g in found for r in returned(g) for p in r.content)
    if not q.tools:
        assert not any(isinstance(p, ToolCall | ToolReturn) for p in everything)


@settings(deadline=None)
@given(histories, quirks, st.lists(st.integers(1, 4), max_size=14), histories, marks)
def test_advancing_in_steps_gives_the_same(
    history: list[Message], q: Quirks, steps: list[int], tail: list[Message], mark: str
) -> None:
    out: list[Message] = []
    view = HistoryView(HERE, q, out.append)
    growing = History(mark=mark)
    rest = list(history)
    for step in [*steps, len(rest)]:
        for message in rest[:step]:
            growing.append(message)
        del rest[:step]
        view.add_new_messages(growing)
        closed = list(out)
        # Looking does not change anything, and what was closed stays as it is.
        view.pending_groups(tuple(tail))
        assert closed + view.pending_groups() == groups(growing.messages, q, mark=mark)
        assert out == closed
    assert out + view.pending_groups(tuple(tail)) == groups([*history, *tail], q, mark=mark)


@settings(deadline=None)
@given(histories)
def test_what_the_user_said_is_sent_once_and_in_order(history: list[Message]) -> None:
    marked = [
        Message(m.role, (*m.parts, Text(f"<{i}>")), m.kind) if m.role == "user" else m
        for i, m in enumerate(history)
    ]
    sent = "".join(p.text for g in groups(marked) for p in flat(g) if isinstance(p, Text))
    guided = [f"<{i}>" for i, m in enumerate(marked) if m.role == "user"]
    assert sorted(re.findall(r"<\d+>", sent)) == sorted(guided)
    plain = [f"<{i}>" for i, m in enumerate(marked) if m.role == "user" and m.kind == "normal"]
    assert [m for m in re.findall(r"<\d+>", sent) if m in plain] == plain


def flat(group: Message) -> list[Part]:
    return [p for part in group.parts for p in getattr(part, "content", (part,))]


@settings(deadline=None)
@given(histories)
def test_foreign_state_stays_at_home(history: list[Message]) -> None:
    foreign = [Message(m.role, m.parts, m.kind, THERE) for m in history]
    for group in groups(foreign):
        if group.role == "assistant":
            assert not any(isinstance(p, Thinking | Native) for p in group.parts)
            assert not any(getattr(p, "extra", None) for p in group.parts)


# -- one thing at a time -------------------------------------------------------------------------

A, B = ToolCall("a", "read", "{}"), ToolCall("b", "write", "{}")


def assistant(*inner: Part, origin: Target | None = HERE) -> Message:
    return Message("assistant", inner, origin=origin)


def result(call: ToolCall, text: str, **more: Any) -> Message:
    return Message("tool", (ToolReturn(call.id, call.name, (Text(text),), **more),))


def test_results_come_in_the_order_of_the_calls() -> None:
    found = groups([user_message("go"), assistant(A, B), result(B, "second"), result(A, "first")])
    assert [r.text for r in returned(found[2])] == ["first", "second"]


def test_a_missing_result_says_so_and_an_orphan_is_dropped() -> None:
    stray = result(ToolCall("zzz", "read"), "stray")
    found = groups(
        [user_message("go"), stray, assistant(A, B), stray, result(B, "done"), user_message("next")]
    )
    missing, done = returned(found[2])
    assert (missing.text, missing.error) == (NO_RESULT, True)
    assert (done.text, done.error) == ("done", False)
    assert found[2].parts[2:] == (Text("next"),)


def test_the_first_of_two_results_counts() -> None:
    found = groups([user_message("go"), assistant(A), result(A, "first"), result(A, "again")])
    assert [r.text for r in returned(found[2])] == ["first"]


def test_ids_that_repeat_stay_paired_within_their_group() -> None:
    found = groups(
        [
            user_message("go"),
            assistant(A),
            result(A, "one"),
            assistant(A, A),
            result(A, "two"),
            result(A, "three"),
        ]
    )
    pairs = [
        [(c.id, r.call_id, r.text) for c, r in zip(g.calls, returned(n), strict=True)]
        for g, n in pairwise(found)
        if g.calls
    ]
    assert pairs == [
        [("a", "a", "one")],
        [("a_2", "a_2", "two"), ("a_3", "a_3", "three")],
    ]


def test_calls_of_answers_in_a_row_are_answered_together() -> None:
    found = groups(
        [
            user_message("go"),
            assistant(A),
            assistant(B),
            result(A, "one"),
            result(B, "two"),
            user_message("and?"),
        ]
    )
    assert [g.role for g in found] == ["user", "assistant", "user"]
    assert [r.text for r in returned(found[2])] == ["one", "two"]


def test_guidance_ends_the_last_result_whichever_came_last() -> None:
    steer = user_message("be quick", kind="steer")
    for order in ([A, B], [B, A]):
        done = [result(c, f"result of {c.id}") for c in order]
        for history in ([*done, steer], [done[0], steer, done[1]], [steer, *done]):
            found = groups([user_message("go"), assistant(A, B), *history])
            first, last = returned(found[2])
            assert first.text == "result of a"
            assert last.text == f"result of b{STEER}be quick"
            assert len(found[2].parts) == 2


def test_guidance_of_several_messages_is_one_and_follows_an_image() -> None:
    picture = Media("image/png", b"png")
    seen = Message("tool", (ToolReturn("a", "read", (picture,)),))
    steers = [user_message("one", kind="steer"), user_message("two", kind="steer")]
    found = groups([user_message("go"), assistant(A), seen, *steers])
    assert returned(found[2])[0].content == (picture, Text(f"{STEER}one\ntwo"))
    # The next result does not carry it again.
    found = groups(
        [user_message("go"), assistant(A), seen, *steers, assistant(B), result(B, "plain")]
    )
    assert returned(found[4])[0].text == "plain"


def test_guidance_without_a_call_is_an_ordinary_message() -> None:
    found = groups(
        [user_message("go"), assistant(Text("done")), user_message("be quick", kind="steer")]
    )
    assert found[2].parts == (Text("be quick"),)


def test_reasoning_alone_is_not_sent_and_neighbours_join() -> None:
    found = groups(
        [user_message("a"), assistant(Thinking("hm")), user_message("b"), assistant(Text(" \n"))]
    )
    assert found == [Message("user", (Text("a"), Text("b")))]


@pytest.mark.parametrize("origin", [HERE, THERE])
def test_blank_text_beside_a_call_is_not_sent(origin: Target) -> None:
    made = Message("assistant", (Text("\n\n"), ToolCall("a", "read", "{}")), origin=origin)
    _, answer, _ = groups([user_message("hi"), made])
    assert [type(p) for p in answer.parts] == [ToolCall]


def test_a_long_id_of_another_endpoint_is_shortened_and_ones_own_is_kept() -> None:
    for origin, most in ((HERE, 100), (THERE, 40)):
        made = Message("assistant", (ToolCall("x" * 100, "read", "{}"),), origin=origin)
        done = Message("tool", (ToolReturn("x" * 100, "read", (Text("found"),)),))
        _, answer, results = groups([user_message("hi"), made, done])
        (back,) = returned(results)
        assert back.call_id == answer.calls[0].id and len(back.call_id) <= most
        assert back.content == (Text("found"),)


def test_a_history_that_starts_with_an_answer_gets_a_beginning() -> None:
    found = groups([assistant(Text("hi"))])
    assert found[0] == Message("user", (Text(BEGINNING),))


def test_the_tail_belongs_to_one_request() -> None:
    out: list[Message] = []
    view = HistoryView(HERE, Quirks(), out.append)
    view.add_new_messages(History([user_message("go"), assistant(Text("begun"))]))
    tail = (assistant(Text(" and")), user_message("continue"))
    assert view.pending_groups(tail) == [
        Message("assistant", (Text("begun"), Text(" and"))),
        Message("user", (Text("continue"),)),
    ]
    assert view.pending_groups() == [Message("assistant", (Text("begun"),))]


def test_images_move_or_go_where_the_endpoint_wants_it() -> None:
    picture = Media("image/png", b"png")
    history = [
        user_message("look", picture),
        assistant(A),
        Message("tool", (ToolReturn("a", "read", (Text("here:"), picture)),)),
        user_message("well?"),
    ]
    found = groups(history, Quirks(media_in_tool_result=False))
    returns_, *rest = found[2].parts
    assert isinstance(returns_, ToolReturn)
    assert all(isinstance(p, Text) for p in returns_.content)
    assert rest == [picture, Text("well?")]
    found = groups(history, Quirks(media=False))
    assert found[0].parts == (Text(NO_IMAGES), Text("look"))
    assert returned(found[2])[0].text == f"here:{NO_IMAGES}"


def test_a_model_without_tools_is_told_what_was_called() -> None:
    found = groups(
        [user_message("go"), assistant(ToolCall("a", "read", '{"p":1}')), result(A, "42")],
        Quirks(tools=False),
    )
    assert "read" in found[1].text
    assert '{"p":1}' in found[1].text
    assert "42" in found[2].text


@pytest.mark.parametrize("repeats", [400])
def test_many_equal_ids_cost_no_more_than_many_others(repeats: int) -> None:
    history: list[Message] = [user_message("go")]
    for n in range(repeats):
        history += [assistant(A), result(A, str(n))]
    found = groups(history)
    made = [c.id for g in found for c in g.calls]
    assert len(set(made)) == repeats
    results = [r.text for g in found for r in returned(g)]
    assert results == [str(n) for n in range(repeats)]

"""Tool calls of the chat wire, however a server numbers their fragments."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.core.message import (
    Text,
    ToolCall,
)
from tests.wire.chat_frames import Json, chunk, stream, whole


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


def test_a_stream_that_breaks_off_in_a_call_died() -> None:
    read = stream(chunk(call(0, "a", "write_file", '{"p":')), done=False)
    assert read.stop == "died"
    assert read.answer.call_names == ("write_file",)


def test_complete_messages_number_calls_by_place() -> None:
    same = [{"id": i, "index": 0, "function": {"name": "f", "arguments": "{}"}} for i in "ab"]
    assert [c.id for c in whole({"content": None, "tool_calls": same}).message.calls] == ["a", "b"]

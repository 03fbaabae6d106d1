"""Calls of models that do not call natively: forced into a schema, or written into the text."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.agent.json_repair import parse_arguments
from hermes.core.message import Message, Target, Text, ToolCall, ToolReturn, user_message
from hermes.core.provider import Settings, ToolSpec
from hermes.core.text import replace_invalid
from hermes.llm.provider_spec import Quirks
from hermes.llm.response_builder import ResponseBuilder
from hermes.llm.wire import chat
from hermes.llm.wire.request_fields import RequestHead

TARGET = Target("lab", "small", "chat")
NAMES = {"terminal": ("command", "pty"), "read_file": ("path", "limit")}
TOOLS = (
    ToolSpec(
        "terminal",
        "Run. Long text.",
        {
            "type": "object",
            "properties": {"command": {"type": "string"}, "pty": {"type": "boolean"}},
            "required": ["command"],
        },
    ),
    ToolSpec("todo", "Keep a list. More.", {"type": "object", "properties": {}}),
)
SCHEMA = Quirks(calling="schema", favourites=("terminal",))


def heard(
    pieces: list[str],
    calling: str,
    offered: dict[str, tuple[str, ...]] = NAMES,
    finish: str = "stop",
) -> Message:
    answer = ResponseBuilder()
    answer.offered_tools = offered
    decoder = chat.Decoder(answer, Quirks(calling=calling))  # type: ignore[arg-type]
    for piece in pieces:
        frame = {"choices": [{"delta": {"content": piece}}]}
        decoder.feed(b"data: " + json.dumps(frame).encode() + b"\n\n")
    decoder.feed(
        b'data: {"choices":[{"delta":{},"finish_reason":"%s"}]}\n\ndata: [DONE]\n\n'
        % finish.encode()
    )
    decoder.close()
    answer.finish_events()
    return answer.build_message(TARGET)


def parts(message: Message) -> tuple[str, list[tuple[str, Any]]]:
    calls = [p for p in message.parts if isinstance(p, ToolCall)]
    return message.text, [(c.name, parse_arguments(c.args)) for c in calls]


def cuts(text: str, at: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(min(a, len(text)) for a in at)})
    return [text[a:b] for a, b in pairwise(edges)] or [""]


# -- schema ----------------------------------------------------------------------------------


@given(st.text(max_size=60), st.lists(st.integers(0, 200), max_size=12), st.booleans())
@settings(max_examples=150, deadline=None)
def test_an_answer_is_what_the_string_says_however_it_is_cut(
    text: str, at: list[int], ascii_only: bool
) -> None:
    step = {"about": "result", "answer": text} if len(at) % 2 else {"answer": text}
    said = json.dumps(step, ensure_ascii=ascii_only)
    message = heard(cuts(said, at), "schema")
    if "<" not in text:  # reasoning tags are somebody else's test
        assert message.text == replace_invalid(text)
    assert message.stop == "end"


def test_an_answer_streams_before_it_is_complete() -> None:
    answer = ResponseBuilder()
    decoder = chat.Decoder(answer, Quirks(calling="schema"))
    for piece in ('{"ans', 'wer": "Hel', "lo, \\u00", 'e4nd"}'):
        frame = {"choices": [{"delta": {"content": piece}}]}
        decoder.feed(b"data: " + json.dumps(frame).encode() + b"\n\n")
        if "Hel" in piece:
            assert [e.text for e in answer.drain_events()] == ["Hel"]  # type: ignore[union-attr]
    assert "".join(e.text for e in answer.drain_events()) == "lo, änd"  # type: ignore[union-attr]


@given(st.lists(st.integers(0, 80), max_size=8))
@settings(max_examples=60, deadline=None)
def test_a_step_with_a_tool_is_a_call(at: list[int]) -> None:
    about = '"about": "look", ' if len(at) % 2 else ""
    said = "{" + about + '"tool": "terminal", "command": "echo \\"hi\\"\\n"}'
    message = heard(cuts(said, at), "schema")
    assert parts(message) == ("", [("terminal", {"command": 'echo "hi"\n'})])
    assert message.stop == "tool_use"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("Hello there", "Hello there"),
        ('{"other": 1}', '{"other": 1}'),
        ('{"answer": 7}', '{"answer": 7}'),
        ("", ""),
        ('{"answer": "a\\qb"}', "a\\qb"),
        ('{"answer": "line\nbreak"}', "line\nbreak"),
        ('{"answer": "\\ud83d\\ude00"}', "😀"),
        ('{"answer": "\\\\ud83d"}', "\\ud83d"),
    ],
)
def test_what_an_endpoint_did_not_force_is_text(said: str, text: str) -> None:
    assert heard([said], "schema").text == text
    assert heard(list(said), "schema").text == text


def test_a_call_cut_off_is_told_as_cut_and_an_answer_keeps_what_came() -> None:
    begun = '{"about": "look", "tool": "terminal", "comm'
    cut = heard([begun], "schema", finish="length")
    assert cut.stop == "length"
    assert [p.name for p in cut.parts if isinstance(p, ToolCall)] == ["terminal"]
    short = heard(['{"answer": "so far'], "schema", finish="length")
    assert (short.text, short.stop) == ("so far", "length")


def body(messages: list[Message], tools: tuple[ToolSpec, ...] = TOOLS, **kw: Any) -> dict[str, Any]:
    encoder = chat.Encoder(TARGET, kw.pop("quirks", SCHEMA))
    raw = encoder.build_body(
        messages, RequestHead(kw.pop("system", ""), tuple(tools), Settings(**kw), True)
    )
    out: dict[str, Any] = json.loads(raw)
    return out


def test_the_request_forces_an_answer_or_one_of_few_tools() -> None:
    sent = body([user_message("hi")])
    assert "tools" not in sent
    assert sent["temperature"] == 0
    steps = sent["response_format"]["json_schema"]["schema"]["anyOf"]
    assert [list(s["properties"]) for s in steps] == [
        ["about", "answer"],
        ["about", "tool", "command"],
    ]
    assert all(s["additionalProperties"] is False for s in steps)
    assert sent["messages"][-1] == {"role": "user", "content": "hi"}
    assert "todo" not in sent["messages"][0]["content"]


def test_without_tools_only_an_answer_is_possible() -> None:
    for sent in (body([user_message("hi")], ()), body([user_message("hi")], tool_choice="none")):
        schema = sent["response_format"]["json_schema"]["schema"]
        assert list(schema["properties"]) == ["about", "answer"]


def test_a_small_model_that_looked_answers_with_what_it_found() -> None:
    """It would write files or look on and on; a failed look and a change go on."""

    def offers_tools(about: str, result: str, *, small: bool = True) -> bool:
        call = ToolCall("c1", "terminal", '{"command":"ls"}', {"about": about})
        done = ToolReturn("c1", "terminal", (Text(result),))
        groups = [user_message("x"), Message("assistant", (call,)), Message("user", (done,))]
        quirks = Quirks(calling="schema", favourites=("terminal",), small=small)
        encoder = chat.Encoder(TARGET, quirks)
        head = RequestHead("", TOOLS, Settings(), True)
        at_once = json.loads(encoder.build_body(groups, head))
        for group in groups:
            encoder.add_group(group)
        kept = json.loads(encoder.build_body([], head))
        assert kept == at_once
        assert json.loads(encoder.build_body([user_message("and y?")], head))["messages"]
        return "anyOf" in kept["response_format"]["json_schema"]["schema"]

    assert not offers_tools("look", "a.txt")
    assert offers_tools("look", "ls: no such file\n[exit status 2]")
    assert offers_tools("change", "a.txt")
    assert offers_tools("look", "a.txt", small=False)
    said = heard(['{"about": "look", "tool": "terminal", "command": "ls"}'], "schema")
    assert [call.extra for call in said.calls] == [{"about": "look"}]


def test_a_larger_model_is_asked_in_less_than_six_thousand_bytes() -> None:
    needs = {"terminal": ["command"], "read_file": ["path"], "write_file": ["path", "content"]}
    needs["patch"] = ["path", "old_string", "new_string"]
    tools = [
        ToolSpec(
            name,
            "Do it.",
            {
                "type": "object",
                "properties": {n: {"type": "string"} for n in names},
                "required": names,
            },
        )
        for name, names in needs.items()
    ]
    sizes = {
        small: len(json.dumps(body([user_message("hi")], tuple(tools), quirks=quirks)))
        for small in (False, True)
        for quirks in [Quirks(calling="schema", small=small)]
    }
    assert sizes[False] < 6000 < sizes[True] < 12000


def test_examples_show_only_tools_that_are_there() -> None:
    everything = json.dumps(body([user_message("x")], ())["messages"])
    assert "terminal" not in everything
    assert "read_file" not in json.dumps(body([user_message("x")])["messages"])


def test_history_reads_like_the_examples_and_keeps_its_prefix() -> None:
    call = ToolCall("c1", "terminal", '{"command":"ls"}')
    done = ToolReturn("c1", "terminal", (Text("a.txt"),))
    first = [user_message("files?")]
    later = [*first, Message("assistant", (call,)), Message("user", (done,))]
    sent = body(later)["messages"]
    step = '{"about": "look", "tool": "terminal", "command": "ls"}'
    assert sent[-2] == {"role": "assistant", "content": step}
    assert sent[-1] == {"role": "user", "content": "Result of terminal:\na.txt"}
    assert sent[: len(body(first)["messages"])] == body(first)["messages"]
    answered = body([*later, Message("assistant", (Text("It is a.txt."),)), user_message("thanks")])
    said = json.loads(answered["messages"][-2]["content"])
    assert said == {"about": "result", "answer": "It is a.txt."}


def test_what_a_session_adds_stands_behind_what_all_share() -> None:
    plain = body([user_message("x")])["messages"][0]["content"]
    assert body([user_message("x")], system="Speak French.")["messages"][0]["content"].startswith(
        plain
    )


def test_a_model_without_tools_chats_plainly() -> None:
    sent = body([user_message("hi")], quirks=Quirks(calling="schema", tools=False))
    assert "response_format" not in sent
    assert [m["role"] for m in sent["messages"]] == ["user"]


# -- calls in the text -----------------------------------------------------------------------

CALL = '{"name": "terminal", "arguments": {"command": "ls"}}'
ONE = [("terminal", {"command": "ls"})]


@pytest.mark.parametrize(
    ("said", "text", "calls"),
    [
        (f"<tool_call>\n{CALL}\n</tool_call>", "", ONE),
        (f"Let me look.\n<tool_call>{CALL}</tool_call>", "Let me look.\n", ONE),
        (f"<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>", "", ONE * 2),
        (f"<tool_call>{CALL}", "", ONE),
        (f"```json\n{CALL}\n```", "", ONE),
        (f"Sure:\n```json\n{CALL}\n```\nDone.", "Sure:\nDone.", ONE),
        (f"```\n{CALL}\n```", "", ONE),
        (CALL, "", ONE),
        ('{"name": "terminal", "parameters": {"command": "ls"}}', "", ONE),
        ('{"type":"function","function":' + CALL + "}", "", ONE),
        (f"```json\n[{CALL}, {CALL}]\n```", "", ONE * 2),
        (f"<tool_call>\n{CALL}\n{CALL}\n</tool_call>", "", ONE * 2),
        (f"<tool_call>{CALL}{CALL}</tool_call>", "", ONE * 2),
        (f"{CALL[:-2]},}}}} and so on", f"{CALL[:-2]},}}}} and so on", []),
        (f"<tool_call>[{CALL}, 1]</tool_call>", f"<tool_call>[{CALL}, 1]</tool_call>", []),
        (
            "<tool_call>\n<function=terminal>\n<parameter=command>\nls\n</parameter>\n"
            "</function>\n</tool_call>",
            "",
            ONE,
        ),
        (
            "<tool_call><function=launch></function></tool_call>",
            "<tool_call><function=launch></function></tool_call>",
            [],
        ),
        (CALL.replace("terminal", "launch"), CALL.replace("terminal", "launch"), []),
        ('{"name": "terminal", "age": 3}', '{"name": "terminal", "age": 3}', []),
        (f"```python\n{CALL}\n```", f"```python\n{CALL}\n```", []),
        (
            f"```python\nx = '<tool_call>{CALL}</tool_call>'\n```\n",
            f"```python\nx = '<tool_call>{CALL}</tool_call>'\n```\n",
            [],
        ),
        (f"Use `{CALL}` there", f"Use `{CALL}` there", []),
        ("<tool_call>not json</tool_call>", "<tool_call>not json</tool_call>", []),
        ("a ``` b", "a ``` b", []),
        ("```json\n[1, 2]\n```", "```json\n[1, 2]\n```", []),
    ],
)
def test_calls_written_into_the_text(said: str, text: str, calls: list[Any]) -> None:
    for pieces in ([said], list(said)):
        message = heard(pieces, "text")
        assert parts(message) == (text, calls)
        assert message.stop == ("tool_use" if calls else "end")


@pytest.mark.parametrize(
    ("said", "args"),
    [
        ('{"name": "terminal", "arguments": {"command": "ls",}}', '{"command": "ls",}}'),
        ('{"name": "terminal", "arguments": {"command": "ls"}}}', '{"command": "ls"}}}'),
        ('{"name": "terminal", "arguments": {"command": "ls"}', '{"command": "ls"}'),
        ("{'name': 'terminal', 'arguments': {'command': 'ls'}}", "{'command': 'ls'}}"),
    ],
)
def test_a_slip_in_a_written_call_is_left_to_who_repairs_arguments(said: str, args: str) -> None:
    for whole in (f"<tool_call>{said}</tool_call>", f"```json\n{said}\n```"):
        message = heard([whole], "text")
        assert [(c.name, c.args) for c in message.calls] == [("terminal", args)]
        assert parse_arguments(args) == {"command": "ls"}
    cut = f"<tool_call>{said[:-4]}"
    assert heard([cut], "text").calls == ()


PIECES = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "<tool",
        "```",
        "```json\n",
        "\n",
        " ",
        CALL,
        CALL.replace("terminal", "launch"),
        '{"a": 1}',
        "{",
        "}",
        "word",
        "\n```\n",
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join), st.lists(st.integers(0, 300), max_size=10))
@settings(max_examples=200, deadline=None)
def test_cutting_changes_nothing_and_without_tools_text_stays_text(
    said: str, at: list[int]
) -> None:
    assert parts(heard(cuts(said, at), "text")) == parts(heard([said], "text"))
    off = heard(cuts(said, at), "text", {})
    assert parts(off) == (said, [])
    other = heard(cuts(said, at), "text", {"nothing_named_here": ()})
    assert parts(other) == (said, [])


def test_strong_models_are_taken_at_their_word() -> None:
    said = f"<tool_call>{CALL}</tool_call>"
    assert parts(heard([said], "native")) == (said, [])

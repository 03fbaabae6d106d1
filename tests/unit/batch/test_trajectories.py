"""The formats of training data, from messages to lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes.batch.distributions import BUILT_IN, choose_toolsets
from hermes.batch.trajectories import Format, Trajectory, count_calls, format_trajectory
from hermes.core.message import (
    Media,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
    user_message,
)

MESSAGES = (
    user_message("list it"),
    Message(
        "assistant",
        (
            Thinking("two calls"),
            Text(" Looking. \n"),
            ToolCall("a", "terminal", '{"command": "ls"}'),
            ToolCall("b", "read_file", '{"path": "ä"}'),
        ),
    ),
    Message("tool", (ToolReturn("a", "terminal", (Text('{"exit": 0}'),)),)),
    Message("tool", (ToolReturn("b", "read_file", (Text("{no json"),), error=True),)),
    user_message("faster", kind="steer"),
    Message("assistant", (Text(" Done. "),)),
)


def write_line(form: Format, messages: tuple[Message, ...] = MESSAGES) -> dict[str, Any]:
    found = Trajectory(3, "x", "done", messages, "be brief", "m", "2026-01-01", toolsets=("file",))
    line = format_trajectory(found, form, ["terminal", "patch"])
    assert b"\n" not in line
    return dict(json.loads(line))


def test_the_originals_format() -> None:
    line = write_line("hermes")
    turns = [(turn["from"], turn["value"]) for turn in line["conversations"]]
    assert turns[1:] == [
        ("human", "list it"),
        (
            "gpt",
            "<think>\ntwo calls\n</think>\nLooking.\n"
            '<tool_call>\n{"name": "terminal", "arguments": {"command": "ls"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "read_file", "arguments": {"path": "ä"}}\n</tool_call>',
        ),
        (
            "tool",
            '<tool_response>\n{"tool_call_id": "a", "name": "terminal", "content": {"exit": 0}}\n'
            "</tool_response>\n"
            '<tool_response>\n{"tool_call_id": "b", "name": "read_file", "content": "{no json\\n\\n'
            "[OUT-OF-BAND USER MESSAGE — a direct message from the user, delivered mid-turn; not "
            'tool output]\\nfaster\\n[/OUT-OF-BAND USER MESSAGE]"}\n</tool_response>',
        ),
        ("gpt", "<think>\n</think>\nDone."),
    ]
    assert line["prompt_index"] == 3 and line["api_calls"] == 2 and line["completed"]
    assert line["metadata"] == {"batch_num": 0, "timestamp": "2026-01-01", "model": "m"}
    assert line["tool_stats"] == {
        "patch": {"count": 0, "success": 0, "failure": 0},
        "read_file": {"count": 1, "success": 0, "failure": 1},
        "terminal": {"count": 1, "success": 1, "failure": 0},
    }
    assert line["tool_error_counts"] == {"patch": 0, "read_file": 1, "terminal": 0}


def test_results_are_in_the_order_of_the_calls() -> None:
    """They are stored as the calls end."""
    late = (*MESSAGES[:2], MESSAGES[3], MESSAGES[2], *MESSAGES[4:])
    for form in ("openai", "sharegpt"):
        assert write_line(form, late) == write_line(form)
    step = write_line("hermes", late)["conversations"][3]["value"]
    first, second = (json.loads(text) for text in step.splitlines() if text.startswith("{"))
    assert (first["tool_call_id"], second["tool_call_id"]) == ("a", "b")
    assert second["content"].endswith("[/OUT-OF-BAND USER MESSAGE]"), "guidance ends the last one"


@pytest.mark.parametrize(
    ("parts", "value"),
    [
        ((Text("just text \n"),), "<think>\n</think>\njust text"),
        ((Thinking("a\nb"), Text("c")), "<think>\na\nb\n</think>\nc"),
        ((Thinking("\nin tags\n"), Text("c")), "<think>\nin tags\n</think>\nc"),
        (
            (Thinking(" own \n", extra={"field": "reasoning_content"}), Text("c")),
            "<think>\n own \n\n</think>\nc",
        ),
        (
            (Thinking("own", extra={"field": "reasoning_content"}), Thinking("in tags"), Text("c")),
            "<think>\nown\n</think>\nc",
        ),
        ((Text("a <think>b</think> c"),), "a <think>b</think> c"),
        ((), "<think>\n</think>"),
        (
            (ToolCall("a", "patch", "{broken"),),
            '<think>\n</think>\n<tool_call>\n{"name": "patch", "arguments": {}}\n</tool_call>',
        ),
    ],
)
def test_answers_in_the_originals_format(parts: tuple[Part, ...], value: str) -> None:
    line = write_line("hermes", (user_message("p"), Message("assistant", parts)))
    assert line["conversations"][2] == {"from": "gpt", "value": value}


@pytest.mark.parametrize(
    "text",
    ['["cut \\ud83d"]', '{"a": "\\udc00"}', "[" * 100_000, "[" * 100_000 + "]" * 100_000],
    ids=["half", "other half", "open", "deep"],
)
def test_what_models_and_tools_write_stops_no_export(text: str) -> None:
    """A character cut in two, and JSON that no parser takes."""
    asked = Message("assistant", (ToolCall("a", "probe", text),))
    done = Message("tool", (ToolReturn("a", "probe", (Text(text),)),))
    for form in ("hermes", "openai", "sharegpt", "raw"):
        assert write_line(form, (user_message("p"), asked, done))
    value = write_line("hermes", (user_message("p"), asked, done))["conversations"][3]["value"]
    content = json.loads(value.splitlines()[1])["content"]
    assert content == (text if text.startswith("[[") else json.loads(text))
    assert count_calls((asked, done))["probe"].success == 1


@pytest.mark.parametrize("form", ["hermes", "openai", "sharegpt", "raw"])
def test_a_trajectory_is_one_line_for_every_reader(form: Format) -> None:
    text = "".join(map(chr, [*range(0x100), 0x2028, 0x2029]))
    found = Trajectory(3, text, "done", (user_message(text),), text, "m", "2026-01-01")
    line = format_trajectory(found, form, []).decode()
    assert len(line.splitlines()) == 1
    rows = json.loads(line)
    assert text in list(_walk(rows))


def _walk(value: Any) -> Any:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _walk(item)
    else:
        yield value


def test_images_in_the_originals_format() -> None:
    """A result's text stands for it; one without text is named as the original names it."""
    picture = Media("image/png", b"x")
    results = (
        ToolReturn("a", "browser", (Text("a red square"), picture)),
        ToolReturn("b", "browser", (picture,)),
        ToolReturn("c", "browser", ()),
        ToolReturn("d", "browser", (Text(""),)),
    )
    asked = Message("assistant", tuple(ToolCall(id, "browser", "{}") for id in "abcd"))
    line = write_line("hermes", (user_message("p", picture), asked, Message("tool", results)))
    assert line["conversations"][1] == {"from": "human", "value": "p"}
    value = line["conversations"][3]["value"]
    rows = [json.loads(text) for text in value.splitlines() if text.startswith("{")]
    texts = [row["content"] for row in rows]
    assert texts == ["a red square", "[multimodal tool result]", "", ""]


@pytest.mark.parametrize(
    ("text", "is_failure"),
    [
        ('{"error": "it broke"}', True),
        ('{"error": null, "success": true}', False),
        ('{"success": false}', True),
        ("Error: no such thing", True),
        ("no error: here", False),
        ('{"error": torn', False),
        ("", False),
    ],
)
def test_tools_of_others_say_that_they_failed(text: str, *, is_failure: bool) -> None:
    """Built-in ones may print such a text although they did what they were asked."""
    for name, wanted in (("probe", is_failure), ("terminal", False)):
        asked = Message("assistant", (ToolCall("a", name, "{}"),))
        done = Message("tool", (ToolReturn("a", name, (Text(text),)),))
        assert count_calls((asked, done))[name].failure == wanted


def test_the_openai_format() -> None:
    rows = write_line("openai")["messages"]
    assert [row["role"] for row in rows] == [
        *("system", "user", "assistant", "tool", "tool", "user", "assistant")
    ]
    assert rows[2]["reasoning_content"] == "two calls"
    assert rows[2]["tool_calls"][1]["function"] == {
        "name": "read_file",
        "arguments": '{"path": "ä"}',
    }
    assert rows[4] == {"role": "tool", "content": "{no json", "tool_call_id": "b"}


def test_the_sharegpt_format() -> None:
    turns = write_line("sharegpt")["conversations"]
    assert [turn["from"] for turn in turns] == [
        *("system", "human", "gpt", "function_call", "function_call"),
        *("observation", "observation", "human", "gpt"),
    ]


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_toolset_comes_as_often_as_its_chance_says(name: str) -> None:
    chances = {tool: chance for tool, chance in BUILT_IN[name].items() if tool != "moa"}
    if not chances:
        return
    drawn = [choose_toolsets(chances, set(chances), 0, str(n)) for n in range(2000)]
    likeliest = max(chances, key=lambda tool: chances[tool])
    for tool, chance in chances.items():
        share = 100 * sum(tool in chosen for chosen in drawn) / len(drawn)
        assert share >= chance - 4 and (tool == likeliest or share <= chance + 4)
    assert all(drawn)

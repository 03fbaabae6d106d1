"""Requests of the chat wire: what every server takes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from hermes.core.message import (
    Media,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.provider_spec import Quirks
from tests.wire.chat_frames import Json
from tests.wire.talk import assistant, encode_groups, user

TOOL = ToolSpec("read", "Reads.", {"type": "object", "properties": {"p": {"type": "string"}}})


body = partial(encode_groups, "chat")
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

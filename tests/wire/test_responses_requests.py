"""Requests of the responses wire, which replay the items of earlier answers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from hermes.core.message import (
    Media,
    Native,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.provider_spec import Quirks
from tests.wire.responses_frames import (
    Json,
    done,
    end,
    function,
    message,
    reasoning,
    stream,
    whole,
)
from tests.wire.talk import assistant, encode_groups, user

TOOL = ToolSpec("read", "Reads.", {"type": "object", "properties": {"p": {"type": "string"}}})
body = partial(encode_groups, "responses")
HI = user(Text("hi"))


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_fast_mode_is_asked_for_where_it_is_offered(wire: str) -> None:
    fast = Settings(fast=True)
    assert encode_groups(wire, HI, settings=fast, quirks=Quirks(fast=True))["service_tier"] == (
        "priority"
    )
    assert "service_tier" not in encode_groups(wire, HI, settings=fast)
    assert "service_tier" not in encode_groups(wire, HI, quirks=Quirks(fast=True))


def test_the_envelope() -> None:
    assert body(HI) == {
        "model": "m",
        "stream": True,
        "store": False,
        "instructions": "sys",
        "input": [{"role": "user", "content": "hi"}],
    }
    settings = Settings(max_output=9, temperature=0.5, effort="high")
    full = body(HI, settings=settings, tools=(TOOL,), quirks=Quirks(effort="effort", store=True))
    tool = {"name": "read", "description": "Reads.", "parameters": TOOL.parameters}
    assert full == {
        "model": "m",
        "stream": True,
        "store": True,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 9,
        "temperature": 0.5,
        "reasoning": {"effort": "high", "summary": "auto"},
        "instructions": "sys",
        "tools": [{"type": "function", **tool, "strict": False}],
        "input": [{"role": "user", "content": "hi"}],
    }


@pytest.mark.parametrize(
    ("quirks", "effort", "fields"),
    [
        (Quirks(), "high", {}),
        (Quirks(effort="effort"), None, {"include": ["reasoning.encrypted_content"]}),
        (Quirks(effort="effort"), "none", {"reasoning": {"effort": "none"}}),
        (
            Quirks(effort="effort", thinking_replay="drop"),
            "low",
            {"reasoning": {"effort": "low", "summary": "auto"}},
        ),
        (
            Quirks(effort="effort", drop=("reasoning.summary", "include")),
            "low",
            {"reasoning": {"effort": "low"}},
        ),
    ],
)
def test_reasoning_effort(quirks: Quirks, effort: Any, fields: Json) -> None:
    out = body(HI, quirks=quirks, settings=Settings(effort=effort))
    assert {k: v for k, v in out.items() if k in ("include", "reasoning")} == fields


@pytest.mark.parametrize(
    "kind", ["custom_tool_call", "computer_call", "apply_patch_call", "shell_call", "program"]
)
def test_what_waits_for_another_client_is_not_sent_back_alone(kind: str) -> None:
    """It is refused without its output, and nobody here runs it."""
    item = {"type": kind, "id": "i", "call_id": "c", "created_by": "somebody"}
    read = whole(reasoning(encrypted_content="e"), item)
    assert (read.stop, body(HI, assistant(*read.parts), HI)["input"][1:]) == (
        "end",
        [{"role": "user", "content": "hi"}],
    )
    output = {"type": f"{kind}_output", "id": "o", "call_id": "c", "output": []}
    ran = body(HI, assistant(*whole(item, output, message("ok")).parts))["input"]
    sent = {k: v for k, v in item.items() if k != "created_by"}
    assert ran[1:] == [sent, output, {"role": "assistant", "content": "ok"}]


def test_replayed_items_carry_what_they_must_and_no_ids() -> None:
    searched = {"type": "web_search_call", "id": "ws", "status": "completed"}
    listed = {"type": "mcp_list_tools", "id": "l", "tools": []}
    out = body(
        HI,
        assistant(
            Thinking(
                "why",
                {"summary": [{"type": "summary_text", "text": "why"}], "encrypted_content": "e"},
            ),
            Native(searched),
            Native(listed),
            Text("Reading.", {"phase": "commentary"}),
            ToolCall("c1", "read", '{"p" : 1}', {"namespace": "files"}),
            ToolCall("c2", "list"),
        ),
        user(
            ToolReturn("c1", "read", (Text("one"),)),
            ToolReturn("c2", "list", (Text("shot"), Media("image/png", b"\x89P"))),
            Text("go"),
            Text("on"),
        ),
    )
    assert out["input"][1:] == [
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "why"}],
            "encrypted_content": "e",
        },
        {"type": "web_search_call", "status": "completed"},
        listed,
        {"role": "assistant", "content": "Reading.", "phase": "commentary"},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "read",
            "arguments": '{"p" : 1}',
            "namespace": "files",
        },
        {"type": "function_call", "call_id": "c2", "name": "list", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [
                {"type": "input_text", "text": "shot"},
                {
                    "type": "input_image",
                    "image_url": "data:image/png;base64,iVA=",
                    "detail": "auto",
                },
            ],
        },
        {"role": "user", "content": "go\n\non"},
    ]


def test_reasoning_that_cannot_be_checked_or_led_nowhere_is_not_sent() -> None:
    sealed = Thinking("x", {"summary": [], "encrypted_content": "e"})
    out = body(
        HI, assistant(Thinking("broke off"), Thinking("", {"summary": []}), Text("a"), sealed), HI
    )
    assert out["input"][1:] == [
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "hi"},
    ]


def test_images_and_files() -> None:
    out = body(
        user(
            Text("see"),
            Media("image/png", url="https://x/y.png"),
            Media("application/pdf", b"%PDF", name="a.pdf"),
            Media("application/pdf", url="https://x/a.pdf"),
            Media("audio/mpeg", b"x", name="a.mp3"),
        )
    )
    assert out["input"][0]["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
        {
            "type": "input_file",
            "filename": "a.pdf",
            "file_data": "data:application/pdf;base64,JVBERg==",
        },
        {"type": "input_file", "file_url": "https://x/a.pdf"},
        {"type": "input_text", "text": "[a.mp3 (audio/mpeg) cannot be shown to this model]"},
    ]


def test_an_answer_survives_the_round_trip() -> None:
    read = stream(
        done(reasoning("why", encrypted_content="blob")),
        done(function("c1", '{"p": 1}', namespace="n"), 1),
        end(),
    )
    sent = body(HI, read.message, user(ToolReturn("c1", "read", (Text("r"),))))["input"]
    assert sent[1]["encrypted_content"] == "blob"
    assert sent[2] == {
        "type": "function_call",
        "call_id": "c1",
        "name": "read",
        "arguments": '{"p": 1}',
        "namespace": "n",
    }

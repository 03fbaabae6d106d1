"""Requests of Google's wire."""

from __future__ import annotations

import warnings
from base64 import b64encode
from typing import Any

import pytest

from hermes.core.message import (
    Media,
    Message,
    Native,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
    user_message,
)
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.gemini import UNSIGNED, build_url
from tests.wire.gemini_frames import WIRE, call, chunk
from tests.wire.talk import TOOLS, Talk, target, whole

# -- requests ------------------------------------------------------------------------------------


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts, origin=target(WIRE))


def result(id: str, *content: Text | Media, failed: bool = False) -> Message:
    return Message("tool", (ToolReturn(id, "read", content, failed),))


def test_addresses() -> None:
    base = "https://generativelanguage.googleapis.com/v1beta"
    assert build_url(base, "gemini-x", stream=False) == f"{base}/models/gemini-x:generateContent"
    streaming = f"{base}/models/gemini-x:streamGenerateContent?alt=sse"
    assert build_url(base + "/", "models/gemini-x", stream=True) == streaming
    vertex = "https://h/v1/projects/p/locations/global/publishers/google"
    assert (
        build_url(vertex, "gemini-x", stream=False) == f"{vertex}/models/gemini-x:generateContent"
    )
    assert "?" not in build_url(base, "a?b", stream=False)


def test_an_ordinary_request_and_what_goes_back() -> None:
    message, _ = whole(
        WIRE,
        chunk(
            {"text": "Hm.", "thought": True},
            {"text": "Reading."},
            {**call(id="g1"), "thoughtSignature": "sig"},
            call("list"),
            reason="STOP",
        ),
    )
    first, second = message.calls
    body = Talk(WIRE).body(
        user_message("hi"),
        message,
        result(second.id, Text("no"), failed=True),
        result(first.id, Text("content")),
        tools=TOOLS,
        settings=Settings(max_output=100, temperature=0.5, stop=("END",)),
    )
    assert body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "read",
                        "description": "Reads a file.",
                        "parametersJsonSchema": TOOLS[0].parameters,
                    }
                ]
            }
        ],
        "generationConfig": {
            "maxOutputTokens": 100,
            "temperature": 0.5,
            "stopSequences": ["END"],
        },
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Hm.", "thought": True},
                    {"text": "Reading."},
                    {
                        "functionCall": {"name": "read", "args": {"path": "é"}, "id": "g1"},
                        "thoughtSignature": "sig",
                    },
                    {"functionCall": {"name": "list", "args": {"path": "é"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "name": "read",
                            "id": "g1",
                            "response": {"result": "content"},
                        }
                    },
                    {"functionResponse": {"name": "list", "response": {"error": "no"}}},
                ],
            },
        ],
    }
    assert list(body)[-1] == "contents"


def test_ids_pair_across_closed_groups() -> None:
    talk = Talk(WIRE)
    talk.body(user_message("x"), assistant(ToolCall("g1", "read", "{}", {"id": "g1"})))
    body = talk.body(result("g1", Text("y")), assistant(Text("z")), user_message("next"))
    response = body["contents"][2]["parts"][0]["functionResponse"]
    assert response["id"] == "g1"


def test_consecutive_requests_share_their_prefix() -> None:
    talk = Talk(WIRE, Quirks(effort="level"))
    before = talk.raw(user_message("hi"), tools=TOOLS)
    for n in range(5):
        calls = ToolCall(f"c{n}", "read", "{}", {"thoughtSignature": "s"})
        body = talk.raw(assistant(calls), result(f"c{n}", Text("x")), tools=TOOLS)
        assert body.startswith(before[:-2])
        before = body


def test_without_anything_but_a_message() -> None:
    body = Talk(WIRE).body(user_message("x"), system="")
    assert body == {"contents": [{"role": "user", "parts": [{"text": "x"}]}]}


@pytest.mark.parametrize(
    ("quirk", "effort", "thinking"),
    [
        ("budget", "none", {"thinkingBudget": 0}),
        ("budget", "medium", {"thinkingBudget": 8192, "includeThoughts": True}),
        ("budget", None, {"includeThoughts": True}),
        ("level", "none", {"thinkingLevel": "minimal", "includeThoughts": False}),
        ("level", "xhigh", {"thinkingLevel": "high", "includeThoughts": True}),
        ("level", None, {"includeThoughts": True}),
        ("omit", "high", None),
    ],
)
def test_effort(quirk: Any, effort: Any, thinking: Any) -> None:
    body = Talk(WIRE, Quirks(effort=quirk)).body(
        user_message("x"), settings=Settings(effort=effort)
    )
    assert body.get("generationConfig", {}).get("thinkingConfig") == thinking


def test_what_the_endpoint_refused_is_left_out() -> None:
    quirks = Quirks(effort="level", drop=("temperature", "thinkingConfig"))
    body = Talk(WIRE, quirks).body(
        user_message("x"), settings=Settings(temperature=1, effort="low")
    )
    assert "generationConfig" not in body
    body = Talk(WIRE, Quirks(drop=("generationConfig",))).body(
        user_message("x"), settings=Settings(temperature=1)
    )
    assert "generationConfig" not in body


def test_calls_of_another_model_are_marked_as_unsigned() -> None:
    foreign = Message("assistant", (Text("hm"), ToolCall("a", "x"), ToolCall("b", "y")))
    parts = Talk(WIRE, Quirks(effort="level")).body(user_message("x"), foreign)["contents"][1][
        "parts"
    ]
    assert [p.get("thoughtSignature") for p in parts] == [None, UNSIGNED, None]
    mine = assistant(ToolCall("a", "x", "{}", {"thoughtSignature": "s"}))
    for quirks, expected in [
        (Quirks(effort="level"), "s"),
        (Quirks(effort="level", thinking_replay="drop"), UNSIGNED),
        (Quirks(thinking_replay="drop"), None),
    ]:
        parts = Talk(WIRE, quirks).body(user_message("x"), mine)["contents"][1]["parts"]
        assert parts[0].get("thoughtSignature") == expected


def test_images_and_files() -> None:
    png = Media("image/png", b"png")
    inline = {"inlineData": {"mimeType": "image/png", "data": b64encode(b"png").decode()}}
    body = Talk(WIRE).body(
        user_message("look", png, Media("video/mp4", url="https://h/v.mp4")),
        assistant(ToolCall("a", "read")),
        result("a", Text("here"), png),
    )
    assert body["contents"][0]["parts"] == [
        inline,
        {"fileData": {"mimeType": "video/mp4", "fileUri": "https://h/v.mp4"}},
        {"text": "look"},
    ]
    response = body["contents"][2]["parts"][0]["functionResponse"]
    assert response == {"name": "read", "response": {"result": "here"}, "parts": [inline]}


@pytest.mark.parametrize(
    ("args", "sent"),
    [
        ("", {}),
        ("None", {}),
        (" null ", {}),
        ('{"a": 1}', {"a": 1}),
        ("3", {"_not_an_object": 3}),
        ("{", {"_not_an_object": "{"}),
    ],
)
def test_arguments_are_always_an_object(args: str, sent: Any) -> None:
    body = Talk(WIRE).body(user_message("x"), assistant(ToolCall("a", "read", args)))
    assert body["contents"][1]["parts"][0]["functionCall"]["args"] == sent


def test_tools_that_may_not_be_called() -> None:
    body = Talk(WIRE).body(user_message("x"), tools=TOOLS, settings=Settings(tool_choice="none"))
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}
    assert "tools" in body


# -- schemas -------------------------------------------------------------------------------------

RICH = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}}},
    "properties": {
        "format": {"type": "string", "format": "uri", "pattern": "^x", "default": "a"},
        "when": {"type": "string", "format": "date-time"},
        "count": {"type": ["integer", "null"], "exclusiveMinimum": 0, "maximum": 9},
        "mode": {"enum": ["a", "b", None]},
        "level": {"type": "integer", "enum": [1, 2], "description": "How much"},
        "kind": {"const": "only"},
        "tags": {"type": "array", "uniqueItems": True},
        "place": {"$ref": "#/$defs/Place", "description": "where"},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        "maybe": {"oneOf": [{"type": "number"}, {"type": "null"}], "description": "d"},
        "both": {"allOf": [{"$ref": "#/$defs/Place"}, {"properties": {"zip": {"type": "string"}}}]},
        "free": {"type": "object"},
    },
    "required": ["when", "ghost"],
}


def declared(schema: dict[str, Any], style: Any) -> dict[str, Any]:
    tool = ToolSpec("f", "d", schema)
    body = Talk(WIRE, Quirks(schema=style)).body(user_message("x"), tools=[tool])
    return body["tools"][0]["functionDeclarations"][0]


def test_a_rich_schema_in_the_subset() -> None:
    found = declared(RICH, "gemini")
    assert "parametersJsonSchema" not in found
    schema = found["parameters"]
    assert schema["required"] == ["when"]
    assert schema["properties"] == {
        "format": {"type": "STRING", "pattern": "^x"},
        "when": {"type": "STRING", "format": "date-time"},
        "count": {"type": "INTEGER", "nullable": True, "maximum": 9},
        "mode": {"type": "STRING", "enum": ["a", "b"]},
        "level": {"type": "INTEGER", "description": "How much (one of: 1, 2)"},
        "kind": {"type": "STRING", "enum": ["only"]},
        "tags": {"type": "ARRAY", "items": {"type": "STRING"}},
        "place": {
            "type": "OBJECT",
            "description": "where",
            "properties": {"city": {"type": "STRING"}},
        },
        "either": {"nullable": True, "anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]},
        "maybe": {"type": "NUMBER", "nullable": True, "description": "d"},
        "both": {
            "type": "OBJECT",
            "properties": {"city": {"type": "STRING"}, "zip": {"type": "STRING"}},
        },
        "free": {"type": "OBJECT"},
    }
    assert "parameters" not in declared({"type": "object", "properties": {}}, "gemini")


def test_a_schema_that_refers_to_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": node},
    }
    loop = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"$ref": "#/$defs/A"}},
    }
    assert "$ref" not in str(declared(schema, "gemini"))
    assert "$ref" not in str(declared(loop, "gemini"))


def test_other_styles_keep_json_schema() -> None:
    assert declared(RICH, "as_is")["parametersJsonSchema"] == RICH
    plain = declared(RICH, "no_formats")["parametersJsonSchema"]["properties"]
    assert plain["format"] == {"type": "string", "default": "a"}
    assert plain["when"] == {"type": "string"}
    assert RICH["properties"]["when"]["format"] == "date-time"


def test_the_vendors_library_knows_every_key_we_send() -> None:
    """Its types forbid what they do not know."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from google.genai import types
    png = Media("image/png", b"png")
    signed = {"id": "g", "thoughtSignature": b64encode(b"s").decode()}
    for style in ("as_is", "gemini"):
        body = Talk(WIRE, Quirks(effort="level", schema=style)).body(
            user_message("x", png),
            assistant(
                Thinking("t"),
                Text("a", {"thoughtSignature": b64encode(b"s").decode()}),
                Native({"executableCode": {"language": "PYTHON", "code": "1"}}),
                ToolCall("g", "read", "{}", signed),
            ),
            result("g", Text("r"), png),
            user_message("more"),
            tools=[*TOOLS, ToolSpec("rich", "d", RICH)],
            settings=Settings(
                max_output=5, temperature=1, effort="low", stop=("a",), tool_choice="none"
            ),
        )
        for content in body["contents"]:
            types.Content.model_validate(content)
        for tool in body["tools"]:
            types.Tool.model_validate(tool)
        types.ToolConfig.model_validate(body["toolConfig"])
        types.Content.model_validate(body["systemInstruction"])
        types.GenerationConfig.model_validate(body["generationConfig"])

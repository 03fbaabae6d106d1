"""The generateContent protocol: odd answers understood, requests the API takes."""

from __future__ import annotations

import warnings
from base64 import b64encode
from typing import Any

import orjson
import pytest

from hermes.core.errors import Kind, ProviderError
from hermes.core.message import (
    Media,
    Message,
    Native,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
    user,
)
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.gemini import error, url
from hermes.llm.wire.gemini_encoder import UNSIGNED
from tests.wire.talk import TOOLS, Talk, streamed, target, whole

WIRE = "gemini"
SEEDS = range(5)


def chunk(
    *parts: Any, reason: str = "", message: str = "", usage: dict[str, int] | None = None
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": list(parts)}
    if reason:
        candidate["finishReason"] = reason
    if message:
        candidate["finishMessage"] = message
    out: dict[str, Any] = {"candidates": [candidate]}
    if usage:
        out["usageMetadata"] = usage
    return out


def sse(*chunks: Any, end: bytes = b"\r\n") -> bytes:
    return b"".join(b"data: " + orjson.dumps(c) + end * 2 for c in chunks)


def call(name: str = "read", **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {"path": "é"}, **more}}


# -- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_a_whole_stream(seed: int, end: bytes) -> None:
    body = sse(
        chunk({"text": "Let me ", "thought": True}, usage={"promptTokenCount": 169}),
        chunk({"text": "think.", "thought": True}),
        chunk({"text": "Voilà"}, {"text": " le"}),
        chunk({"text": " fichier"}, {"text": ""}),
        chunk({**call(id="g1"), "thoughtSignature": "sig1"}),
        chunk(call("list")),
        chunk({"text": "", "thoughtSignature": "sig2"}),
        chunk(
            reason="STOP",
            message="Model generated function call(s).",
            usage={
                "promptTokenCount": 79,
                "toolUsePromptTokenCount": 11,
                "candidatesTokenCount": 12,
                "thoughtsTokenCount": 30,
                "cachedContentTokenCount": 50,
            },
        ),
        end=end,
    )
    message, answer = streamed(WIRE, body, seed=seed)
    first, second = message.calls
    assert message.parts == (
        Thinking("Let me think."),
        Text("Voilà le fichier"),
        ToolCall("g1", "read", '{"path":"é"}', {"id": "g1", "thoughtSignature": "sig1"}),
        ToolCall(second.id, "list", '{"path":"é"}'),
        Text("", {"thoughtSignature": "sig2"}),
    )
    assert second.id not in ("", first.id)
    assert message.stop == "tool_use"
    usage = answer.usage
    assert (usage.input, usage.output, usage.cache_read, usage.reasoning) == (90, 42, 50, 30)


@pytest.mark.parametrize("seed", SEEDS)
def test_arguments_that_come_value_by_value(seed: int) -> None:
    def more(*pieces: Any, **call: Any) -> dict[str, Any]:
        given = [{"jsonPath": path, **value} for path, value in pieces]
        return {"functionCall": {**({"partialArgs": given} if given else {}), **call}}

    goes_on = {"willContinue": True}
    body = sse(
        chunk({**more(name="edit", id="g1", **goes_on), "thoughtSignature": "s"}),
        chunk(more(("$.text", {"stringValue": "Ça ", **goes_on}), **goes_on)),
        chunk(more(("$.text", {"stringValue": "va"}), ("$.at[1]['x']", {"numberValue": 2}))),
        chunk(more(("$.all", {"boolValue": False}), name="list", **goes_on)),
        chunk(more(("$.none", {"nullValue": "NULL_VALUE"}), **goes_on)),
        chunk({"functionCall": {}}),
        chunk(call()),
        chunk(reason="STOP"),
    )
    message, _ = streamed(WIRE, body, seed=seed)
    assert [(c.name, orjson.loads(c.args)) for c in message.calls] == [
        ("edit", {"text": "Ça va", "at": [None, {"x": 2}]}),
        ("list", {"all": False, "none": None}),
        ("read", {"path": "é"}),
    ]
    assert message.calls[0].extra == {"id": "g1", "thoughtSignature": "s"}


def test_a_reason_that_is_none_ends_nothing() -> None:
    body = sse(chunk({"text": "a"}, reason="FINISH_REASON_UNSPECIFIED"), chunk({"text": "b"}))
    assert streamed(WIRE, body)[0].stop == "died"


def test_a_count_once_given_is_not_taken_back() -> None:
    body = sse(
        chunk({"text": "a"}, usage={"promptTokenCount": 55, "thoughtsTokenCount": 9}),
        chunk({"text": "b"}, reason="STOP", usage={"promptTokenCount": 257}),
    )
    usage = streamed(WIRE, body)[1].usage
    assert (usage.input, usage.output, usage.reasoning) == (257, 9, 9)


def test_a_signature_stays_with_its_part() -> None:
    body = sse(
        chunk({"text": "one "}),
        chunk({"text": "two ", "thoughtSignature": "s"}),
        chunk({"text": "three"}),
        chunk({"text": " four"}, reason="STOP"),
    )
    message, _ = streamed(WIRE, body)
    assert message.parts == (
        Text("one "),
        Text("two ", {"thoughtSignature": "s"}),
        Text("three four"),
    )
    assert message.text == "one two three four"


def test_a_signature_outlives_reasoning_tags_in_the_text() -> None:
    body = sse(
        chunk({"text": "<think>hm</think>yes"}),
        chunk({"text": "", "thoughtSignature": "s"}, reason="STOP"),
    )
    message, _ = streamed(WIRE, body)
    assert message.parts == (Thinking("hm"), Text("yes"), Text("", {"thoughtSignature": "s"}))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_provider_ran_is_kept_in_place_and_is_no_call(seed: int) -> None:
    ran = [
        {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"toolCall": {"toolType": "SEARCH", "id": "x", "args": {}}, "thoughtSignature": "s"},
        {"toolResponse": {"toolType": "SEARCH", "id": "x", "response": {}}},
        {"somethingNew": {"a": 1}},
    ]
    body = sse(chunk({"text": "A"}, *ran, {"text": "B"}, reason="STOP"))
    message, _ = streamed(WIRE, body, seed=seed)
    assert message.parts == (Text("A"), *(Native(p) for p in ran), Text("B"))
    assert (message.stop, message.calls) == ("end", ())
    sent = Talk(WIRE).body(user("?"), message)["contents"][1]["parts"]
    assert sent == [{"text": "A"}, *ran, {"text": "B"}]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", "end"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "filtered"),
        ("RECITATION", "filtered"),
        ("PROHIBITED_CONTENT", "filtered"),
        ("SPII", "filtered"),
        ("BLOCKLIST", "filtered"),
        ("MODEL_ARMOR", "filtered"),
        ("MALFORMED_FUNCTION_CALL", "died"),
        ("OTHER", "end"),
        ("UNHEARD_OF", "end"),
    ],
)
def test_why_it_stopped(reason: str, stop: str) -> None:
    assert streamed(WIRE, sse(chunk({"text": "words"}), chunk(reason=reason)))[0].stop == stop
    assert whole(WIRE, chunk({"text": "words"}, reason=reason))[0].stop == stop


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "MODEL_ARMOR", "IMAGE_SAFETY"])
def test_a_blocked_answer_is_an_error_in_the_providers_words(reason: str) -> None:
    thought = {"text": "hm", "thought": True}
    for body in (
        sse(chunk(thought), chunk(reason=reason, message="It violates settings.")),
        sse(chunk(reason=reason, message="It violates settings.")),
    ):
        with pytest.raises(ProviderError) as caught:
            streamed(WIRE, body)
        failure = caught.value.failure
        assert failure.kind is Kind.CONTENT_POLICY
        assert (failure.message, failure.code) == ("It violates settings.", reason)


def test_a_blocked_prompt_is_an_error() -> None:
    for feedback, said in [
        ({"blockReason": "PROHIBITED_CONTENT"}, "PROHIBITED_CONTENT"),
        ({"blockReason": "OTHER", "blockReasonMessage": "No."}, "No."),
    ]:
        body = {"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 3}}
        for decode in (lambda b=body: whole(WIRE, b), lambda b=body: streamed(WIRE, sse(b))):
            with pytest.raises(ProviderError) as caught:
                decode()
            assert caught.value.failure.kind is Kind.CONTENT_POLICY
            assert caught.value.failure.message == said


def test_a_call_nobody_declared_is_still_a_call() -> None:
    body = chunk(call("nobody"), reason="UNEXPECTED_TOOL_CALL", message="Unexpected tool call")
    message, _ = whole(WIRE, body)
    assert (message.stop, message.calls[0].name) == ("tool_use", "nobody")


def test_a_malformed_call_without_anything_else_is_empty() -> None:
    body = chunk(reason="MALFORMED_FUNCTION_CALL", message="Malformed function call: read(")
    with pytest.raises(ProviderError) as caught:
        whole(WIRE, body)
    assert caught.value.failure.kind is Kind.EMPTY
    assert "read(" in caught.value.failure.message


def test_a_stream_that_broke_off_died() -> None:
    assert streamed(WIRE, sse(chunk({"text": "half"})))[0].stop == "died"
    assert streamed(WIRE, b"")[0].stop == "died"
    array = orjson.dumps([chunk({"text": "half"})])
    assert whole(WIRE, array)[0].stop == "died"


@pytest.mark.parametrize("seed", SEEDS)
def test_an_array_instead_of_events(seed: int) -> None:
    body = orjson.dumps(
        [chunk({"text": "a"}), chunk({"text": "b"}, reason="STOP", usage={"promptTokenCount": 4})],
        option=orjson.OPT_INDENT_2,
    )
    for message, answer in (whole(WIRE, body), streamed(WIRE, body, seed=seed)):
        assert (message.text, message.stop, answer.usage.input) == ("ab", "end", 4)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (429, "RESOURCE_EXHAUSTED", Kind.RATE_LIMITED),
        (503, "UNAVAILABLE", Kind.OVERLOADED),
        (500, "INTERNAL", Kind.SERVER),
        (400, "INVALID_ARGUMENT", Kind.BAD_REQUEST),
        (403, "PERMISSION_DENIED", Kind.FORBIDDEN),
    ],
)
def test_an_error_in_band(code: int, status: str, kind: Kind) -> None:
    body = {"error": {"code": code, "message": "Sorry.", "status": status}}
    assert error(body, {}) == (status, "Sorry.", "")
    assert error([body], {}) == (status, "Sorry.", "")
    for decode in (
        lambda: whole(WIRE, body),
        lambda: whole(WIRE, [body]),
        lambda: streamed(WIRE, sse(chunk({"text": "shown"}), body)),
    ):
        with pytest.raises(ProviderError) as caught:
            decode()
        failure = caught.value.failure
        assert (failure.kind, failure.status, failure.message) == (kind, code, "Sorry.")


def test_the_details_of_an_error_are_told() -> None:
    details = [{"@type": "x", "reason": "API_KEY_INVALID"}, {"retryDelay": "7s"}]
    body = {"error": {"code": 400, "message": "No.", "status": "X", "details": details}}
    assert error(body, {})[1] == "No. (reason: API_KEY_INVALID) (retryDelay: 7s)"
    assert error({"error": "plain"}, {}) == ("", "plain", "")
    assert error(None, {}) == ("", "", "")


def test_odd_values_break_nothing() -> None:
    body = b"data: nonsense\r\n\r\ndata: 3\r\n\r\n" + sse(
        {"candidates": None, "usageMetadata": None},
        {"candidates": [None, {"index": 1, "content": {"parts": [{"text": "other"}]}}]},
        {"candidates": [{"content": None}]},
        chunk(None, 7, {"functionCall": None}, {"text": None}, {"thought": True}, {}),
        chunk({"text": "fine"}, reason="STOP", usage={"promptTokenCount": -1}),
    )
    message, answer = streamed(WIRE, body)
    assert message.text == "fine"
    assert answer.usage.estimated
    with pytest.raises(ProviderError) as caught:
        whole(WIRE, {"detail": "Not Found"})
    assert caught.value.failure.kind is Kind.NOT_API


# -- requests ------------------------------------------------------------------------------------


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts, origin=target(WIRE))


def result(id: str, *content: Text | Media, failed: bool = False) -> Message:
    return Message("tool", (ToolReturn(id, "read", content, failed),))


def test_addresses() -> None:
    base = "https://generativelanguage.googleapis.com/v1beta"
    assert url(base, "gemini-x", stream=False) == f"{base}/models/gemini-x:generateContent"
    streaming = f"{base}/models/gemini-x:streamGenerateContent?alt=sse"
    assert url(base + "/", "models/gemini-x", stream=True) == streaming
    vertex = "https://h/v1/projects/p/locations/global/publishers/google"
    assert url(vertex, "gemini-x", stream=False) == f"{vertex}/models/gemini-x:generateContent"
    assert "?" not in url(base, "a?b", stream=False)


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
        user("hi"),
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
    talk.body(user("x"), assistant(ToolCall("g1", "read", "{}", {"id": "g1"})))
    body = talk.body(result("g1", Text("y")), assistant(Text("z")), user("next"))
    response = body["contents"][2]["parts"][0]["functionResponse"]
    assert response["id"] == "g1"


def test_consecutive_requests_share_their_prefix() -> None:
    talk = Talk(WIRE, Quirks(effort="level"))
    before = talk.raw(user("hi"), tools=TOOLS)
    for n in range(5):
        calls = ToolCall(f"c{n}", "read", "{}", {"thoughtSignature": "s"})
        body = talk.raw(assistant(calls), result(f"c{n}", Text("x")), tools=TOOLS)
        assert body.startswith(before[:-2])
        before = body


def test_without_anything_but_a_message() -> None:
    body = Talk(WIRE).body(user("x"), system="")
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
    body = Talk(WIRE, Quirks(effort=quirk)).body(user("x"), settings=Settings(effort=effort))
    assert body.get("generationConfig", {}).get("thinkingConfig") == thinking


def test_what_the_endpoint_refused_is_left_out() -> None:
    quirks = Quirks(effort="level", drop=("temperature", "thinkingConfig"))
    body = Talk(WIRE, quirks).body(user("x"), settings=Settings(temperature=1, effort="low"))
    assert "generationConfig" not in body
    body = Talk(WIRE, Quirks(drop=("generationConfig",))).body(
        user("x"), settings=Settings(temperature=1)
    )
    assert "generationConfig" not in body


def test_calls_of_another_model_are_marked_as_unsigned() -> None:
    foreign = Message("assistant", (Text("hm"), ToolCall("a", "x"), ToolCall("b", "y")))
    parts = Talk(WIRE, Quirks(effort="level")).body(user("x"), foreign)["contents"][1]["parts"]
    assert [p.get("thoughtSignature") for p in parts] == [None, UNSIGNED, None]
    mine = assistant(ToolCall("a", "x", "{}", {"thoughtSignature": "s"}))
    for quirks, expected in [
        (Quirks(effort="level"), "s"),
        (Quirks(effort="level", thinking_replay="drop"), UNSIGNED),
        (Quirks(thinking_replay="drop"), None),
    ]:
        parts = Talk(WIRE, quirks).body(user("x"), mine)["contents"][1]["parts"]
        assert parts[0].get("thoughtSignature") == expected


def test_images_and_files() -> None:
    png = Media("image/png", b"png")
    inline = {"inlineData": {"mimeType": "image/png", "data": b64encode(b"png").decode()}}
    body = Talk(WIRE).body(
        user("look", png, Media("video/mp4", url="https://h/v.mp4")),
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
        ('{"a": 1}', {"a": 1}),
        ("3", {"_not_an_object": 3}),
        ("{", {"_not_an_object": "{"}),
    ],
)
def test_arguments_are_always_an_object(args: str, sent: Any) -> None:
    body = Talk(WIRE).body(user("x"), assistant(ToolCall("a", "read", args)))
    assert body["contents"][1]["parts"][0]["functionCall"]["args"] == sent


def test_tools_that_may_not_be_called() -> None:
    body = Talk(WIRE).body(user("x"), tools=TOOLS, settings=Settings(tool_choice="none"))
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
    body = Talk(WIRE, Quirks(schema=style)).body(user("x"), tools=[tool])
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
            user("x", png),
            assistant(
                Thinking("t"),
                Text("a", {"thoughtSignature": b64encode(b"s").decode()}),
                Native({"executableCode": {"language": "PYTHON", "code": "1"}}),
                ToolCall("g", "read", "{}", signed),
            ),
            result("g", Text("r"), png),
            user("more"),
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

"""Structured output: the answer fits the schema of the request, or the turn fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes.server.requests.json_schema import find_mismatch
from tests.kit import call, say
from tests.kit.api import Answer, Api, api
from tests.kit.server import Provider

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
GOOD = '{"city": "Bern", "degrees": 25}'
BAD = '{"city": "Bern"}'
HI = [{"role": "user", "content": "How is it?"}]
NAMED = {"name": "weather", "schema": SCHEMA, "strict": True}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": HI,
        "response_format": {"type": "json_schema", "json_schema": NAMED},
    },
    "/v1/responses": {
        "input": "How is it?",
        "text": {"format": {"type": "json_schema", **NAMED}},
    },
    "/v1/messages": {
        "messages": HI,
        "max_tokens": 999,
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    },
}


async def ask(a: Api, path: str, *, stream: bool, **more: Any) -> Answer:
    return await a.post(path, {**ROUTES[path], "stream": stream, **more})


def shown(answer: Answer) -> str:
    """All the text that a client would join."""
    if not answer.headers["Content-Type"].startswith("text/event-stream"):
        body = answer.json
        if "choices" in body:
            return body["choices"][0]["message"]["content"]
        if "output" in body:
            items = [i for i in body["output"] if i["type"] == "message"]
            return "".join(p["text"] for i in items for p in i["content"])
        return "".join(block["text"] for block in body["content"])
    text = ""
    for name, data in answer.events:
        if name == "response.output_text.delta":
            text += data["delta"]
        elif name == "content_block_delta":
            text += data["delta"]["text"]
        elif not name and data != "[DONE]" and data["choices"]:
            text += data["choices"][0]["delta"].get("content") or ""
    return text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ROUTES)
async def test_an_answer_that_misses_the_schema_is_corrected(
    tmp_path: Path, path: str, stream: bool
) -> None:
    script = [say("Here: ") + call(("c1", "todo", {})), say(BAD), say(f"```json\n{GOOD}\n```")]
    async with api(tmp_path, script) as a:
        answer = await ask(a, path, stream=stream)
        assert answer.status == 200
        assert json.loads(shown(answer)) == {"city": "Bern", "degrees": 25}
        assert b"degrees" in a.provider.requests[0].body
        assert "has no 'degrees'" in a.provider.last.json["messages"][-1]["content"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ROUTES)
async def test_an_answer_that_never_fits_fails_the_turn(
    tmp_path: Path, path: str, stream: bool
) -> None:
    async with api(tmp_path, then=say(BAD)) as a:
        answer = await ask(a, path, stream=stream)
        assert answer.status == 502 and answer.error["code"] == "invalid_output"
        assert "degrees" in answer.error["message"]
        assert len(a.provider.requests) == 3


async def test_usage_counts_every_attempt(tmp_path: Path) -> None:
    async with api(tmp_path, [say(BAD), say(GOOD)]) as a:
        usage = (await ask(a, "/v1/chat/completions", stream=False)).json["usage"]
        assert usage["prompt_tokens"] == 22 and usage["completion_tokens"] == 14


async def test_calls_of_the_clients_tools_are_no_answer(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    async with api(tmp_path, [call(("c1", "f", {}))]) as a:
        answer = await ask(a, "/v1/chat/completions", stream=True, tools=[tool])
        assert answer.events[-2][1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_an_endpoint_that_enforces_schemas_gets_it(tmp_path: Path) -> None:
    model = {"provider": "openai", "default": "gpt-4.1"}
    async with Provider([say(GOOD)], wire="responses") as provider:
        env = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": provider.base_url}
        async with api(tmp_path / "enforced", provider, config={"model": model}, env=env) as a:
            answer = await ask(a, "/v1/responses", stream=False)
            assert shown(answer) == GOOD
            wanted = provider.last.json["text"]["format"]
            assert wanted == {"type": "json_schema", **NAMED}
            assert "Reply with JSON" not in provider.last.json["instructions"]


async def test_any_json_object(tmp_path: Path) -> None:
    async with api(tmp_path, [say("[1]"), say('{"a": 1}')]) as a:
        answer = await a.chat(response_format={"type": "json_object"})
        assert shown(answer) == '{"a": 1}'


@pytest.mark.parametrize("kind", ["json", "json_object"])
async def test_the_form_of_hugging_face(tmp_path: Path, kind: str) -> None:
    wanted = {"type": kind, "value": NAMED["schema"]}
    async with api(tmp_path, [say(BAD), say(GOOD)]) as a:
        answer = await a.chat(response_format=wanted)
        assert shown(answer) == GOOD


@pytest.mark.parametrize(
    "wrong", [7, {"type": "grammar"}, {"type": "json_schema"}, {"type": "json_schema", "schema": 1}]
)
async def test_an_invalid_format_is_refused(tmp_path: Path, wrong: object) -> None:
    async with api(tmp_path) as a:
        answer = await a.chat(response_format=wrong)
        assert answer.status == 400 and answer.error["param"] == "response_format"


TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["next"],
        }
    },
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, [1, 1.0], [1.5, "1", True, None]),
        ({"type": ["string", "null"]}, ["", None], [0]),
        ({"enum": [1, "a"]}, [1, "a"], [True, "b"]),
        ({"const": 0}, [0], [False, 1]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab"], ["a", "abcd"]),
        ({"type": "string", "pattern": "^a+$"}, ["aa"], ["b"]),
        ({"type": "string", "pattern": "^(a+)+$"}, ["aa", "b"], [1]),
        ({"type": "number", "minimum": 1, "exclusiveMaximum": 2}, [1, 1.9], [0, 2]),
        ({"multipleOf": 0.1}, [0.3], [0.35]),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, [["a"]], [[], [1]]),
        ({"prefixItems": [{"const": 1}], "items": False}, [[1], []], [[1, 2], [2]]),
        (
            {"uniqueItems": True},
            [[1, 2], [1, True]],
            [[1, 1], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]],
        ),
        ({"pattern": r"^[\w.+-]+@[\w-]+\.[\w.-]+$"}, ["ann@mail.example.org"], ["ann"]),
        ({"pattern": r"^\d{4}-\d{2}(-\d{2})?$"}, ["2026-11", "2026-11-18"], ["26-11"]),
        ({"additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "b"}]),
        ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, [1, 5.5], [7]),
        ({"allOf": [{"type": "integer"}, {"minimum": 5}]}, [5], [4]),
        ({"not": {"type": "string"}}, [1], ["a"]),
        ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}, 5], [{}, {"a": 1, "b": 2}]),
        (
            {"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
            [{"x1": 1}, {}],
            [{"x1": "a"}, {"y": 1}],
        ),
        ({"propertyNames": {"maxLength": 2}}, [{"ab": 1}], [{"abc": 1}]),
        ({"contains": {"const": 1}, "maxContains": 2}, [[1], [1, 2, 1]], [[], [2], [1, 1, 1]]),
        ({"contains": {"const": 1}, "minContains": 0}, [[], [1]], []),
        (
            {"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 2}},
            ["ab", 2],
            ["a", 1],
        ),
        ({"dependentRequired": {"a": ["b"]}}, [{"a": 1, "b": 2}, {"b": 1}], [{"a": 1}]),
        (TREE, [{"next": None}, {"next": {"next": None}}], [{"next": {}}, {}]),
        (True, [1], []),
        (False, [], [1]),
    ],
    ids=str,
)
def test_schemas(schema: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert find_mismatch(value, schema) == ""
    for value in bad:
        assert find_mismatch(value, schema).endswith(".")


SELF = {"$ref": "#"}


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"anyOf": [SELF, SELF]}, 1, False),
        ({"oneOf": [SELF, {"not": SELF}]}, 1, False),
        ({"items": {"minimum": 0}}, [1] * 60_000, False),
        ({"uniqueItems": True}, list(range(30_000)), True),
        ({"pattern": "a*a*a*a*a*c"}, "a" * 1000, True),
        ({"pattern": "a?" * 40 + "a" * 40 + "b"}, "a" * 40, True),
        ({"pattern": "a{1,90}" * 8 + "b"}, "a" * 400, True),
        ({"pattern": "^" + "(a|aa)" * 20 + "b"}, "a" * 60, True),
        ({"pattern": "a{99999999999999999999}"}, "a", True),
        ({"multipleOf": 1e-10}, 1e308, True),
        ({"multipleOf": 0}, 5, True),
    ],
    ids=lambda found: str(found)[:30],
)
def test_no_schema_takes_long(schema: Any, value: Any, fits: bool) -> None:
    """What would take for ever is not tried; patterns then count as met, other rules as missed."""
    assert (not find_mismatch(value, schema)) is fits

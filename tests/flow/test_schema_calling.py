"""Any endpoint can be asked to force its answers into a schema: whole turns of a small model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes.app.control.model_description import describe_model
from hermes.app.runtime import Runtime
from hermes.core.message import user_message
from tests.kit import Provider, Reply, say
from tests.kit.rig import Rig, rig


def step(**keys: str) -> Reply:
    return say(json.dumps(keys))


CONFIG = {"providers": {"custom": {"tool_calls": "schema"}}}


async def test_a_turn_with_a_call(tmp_path: Path) -> None:
    script = [step(tool="read_file", path="a.txt"), step(answer="It says hello.")]
    async with rig(tmp_path, script, config=CONFIG) as r:
        r.home.file("a.txt", "hello")
        result = await r.turn("what is in a.txt?")
        assert result.status == "completed" and result.text == "It says hello."
        first, second = (request.json for request in r.requests)
        assert "tools" not in first and first["temperature"] == 0
        assert first["response_format"]["type"] == "json_schema"
        said = [m["content"] for m in second["messages"][-2:]]
        assert json.loads(said[0])["tool"] == "read_file"
        assert said[1].startswith("Result of read_file:") and "hello" in said[1]
        assert second["messages"][: len(first["messages"])] == first["messages"]


async def test_an_endpoint_that_enforces_nothing_is_understood_too(tmp_path: Path) -> None:
    async with rig(tmp_path, [say("Just text.")], config=CONFIG) as r:
        assert (await r.turn("hi")).text == "Just text."


async def test_a_file_that_the_model_has_not_read_is_shown_before_it_is_replaced(
    tmp_path: Path,
) -> None:
    replace = {"about": "change", "tool": "write_file", "path": "a.txt"}
    script = [
        step(**replace, content="one\n"),
        step(**replace, content="one\ntwo\n"),
        step(answer="Done."),
    ]
    async with rig(tmp_path, script, config=CONFIG) as r:
        file = r.home.file("a.txt", "first\n")
        assert (await r.turn("add two to a.txt")).text == "Done."
        refused, reading, shown = (m["content"] for m in r.requests[1].json["messages"][-3:])
        assert "you have not read it" in refused and "first" not in refused
        assert json.loads(reading)["command"] == "cat a.txt" and "first" in shown
        assert refused.count("data-") == shown.count("data-") == 2
        schemas = [q.json["response_format"]["json_schema"]["schema"] for q in r.requests]
        can_answer = ["answer" in step["properties"] for s in schemas for step in s["anyOf"][:1]]
        assert can_answer == [True, False, True], "a refused change is not the end"
        assert file.read_text() == "one\ntwo\n"


CALL = '<tool_call>{"name": "read_file", "arguments": {"path": "a.txt"}}</tool_call>'
GARBLED = "<tool_call>read_file with path = a.txt and"


async def test_calls_in_the_text_of_an_unknown_model_are_calls(tmp_path: Path) -> None:
    async with rig(tmp_path, [say(CALL), say("done")]) as r:
        r.home.file("a.txt", "hello")
        assert (await r.turn("read")).text == "done"
        assert "hello" in r.requests[-1].body.decode()
        assert (await show_model(r))["tool_calls"] == "text"


@pytest.mark.parametrize(
    "name", ["qwen2.5-coder-1.5b-instruct-q4_k_m", "SmolLM2-360M", "gemma3n:e2b"]
)
async def test_a_small_model_that_writes_its_calls_into_text_is_forced_from_then_on(
    tmp_path: Path, name: str
) -> None:
    script = [say(CALL), step(answer="It says hello.")]
    config = {"model": {"default": name}}
    async with rig(tmp_path, script, config=config) as r:
        r.breaks_prefix = True
        r.home.file("a.txt", "hello")
        assert (await r.turn("what is in a.txt?")).text == "It says hello."
        first, second = (request.json for request in r.requests)
        assert "tools" in first and "response_format" not in first
        assert "response_format" in second and "hello" in second["messages"][-1]["content"]
        assert (await show_model(r))["tool_calls"] == "schema"


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "llama-3.3-70b", "mixtral-8x7b", "gpt-oss"])
async def test_a_large_model_goes_on_writing_its_calls_into_text(tmp_path: Path, name: str) -> None:
    async with rig(tmp_path, [say(CALL), say("done")], config={"model": {"default": name}}) as r:
        assert (await r.turn("read")).text == "done"
        assert all("response_format" not in request.json for request in r.requests)
        assert (await show_model(r))["tool_calls"] == "text"


async def test_the_list_of_an_endpoint_tells_how_large_its_model_is(tmp_path: Path) -> None:
    sizes = {"kit-model": 1_543_714_304}
    async with rig(tmp_path, Provider([say(CALL), step(answer="x")], sizes=sizes)) as r:
        r.breaks_prefix = True
        assert (await r.turn("read")).text == "x"
        assert ["response_format" in request.json for request in r.requests] == [False, True]


async def test_a_schema_that_a_small_model_does_not_obey_is_not_sent_again(tmp_path: Path) -> None:
    script = [say(CALL), say("done"), say(CALL), say("done again")]
    async with rig(tmp_path, script, config={"model": {"default": "tiny-1b"}}) as r:
        r.breaks_prefix = True
        assert (await r.turn("read")).text == "done"
        assert (await r.turn("read")).text == "done again"
        forced = ["response_format" in request.json for request in r.requests]
        assert forced == [False, True, False, False]
        assert (await show_model(r))["tool_calls"] == "text"


@pytest.mark.parametrize("said", ["<tools></tools>", "<tool_call>\n</tool_call>\n", "<tool_call>"])
async def test_an_empty_call_is_asked_for_once_more_in_a_schema(tmp_path: Path, said: str) -> None:
    async with rig(tmp_path, [say(said), step(answer="Hello.")]) as r:
        r.breaks_prefix = True
        assert (await r.turn("hi")).text == "Hello."


async def test_where_calls_are_said_to_be_native_text_is_text(tmp_path: Path) -> None:
    config = {"providers": {"custom": {"tool_calls": "native"}}}
    async with rig(tmp_path, [say(CALL)], config=config) as r:
        assert (await r.turn("read")).text == CALL


async def test_a_call_that_cannot_be_read_is_asked_for_once_more_in_a_schema(
    tmp_path: Path,
) -> None:
    """And from then on, in later processes too."""
    script = [say(GARBLED), step(tool="read_file", path="a.txt"), step(answer="It says hello.")]
    async with rig(tmp_path, script) as r:
        r.breaks_prefix = True
        r.home.file("a.txt", "hello")
        assert (await show_model(r))["tool_calls"] is None
        assert (await r.turn("what is in a.txt?")).text == "It says hello."
        plain, forced, last = (request.json for request in r.requests)
        assert "tools" in plain and "response_format" not in plain
        assert "response_format" in forced and "response_format" in last
        assert "path = a.txt and" not in r.requests[-1].body.decode()
        assert (await show_model(r))["tool_calls"] == "schema"
        r.provider.add(step(answer="Hello again."))
        async with Runtime.open(r.runtime.setup) as later:
            session = await later.open_session(cwd=r.home.work)
            assert (await session.submit(user_message("hi"))).text == "Hello again."
            assert "response_format" in r.requests[-1].json
            await session.close()


async def test_an_endpoint_that_enforces_no_schema_is_asked_for_none_again(tmp_path: Path) -> None:
    script = [say(GARBLED), say("I cannot."), say(GARBLED), say("x")]
    async with rig(tmp_path, script) as r:
        r.breaks_prefix = True
        assert (await r.turn("read a.txt")).text == "I cannot."
        assert (await r.turn("read a.txt")).text == GARBLED
        assert ["response_format" in request.json for request in r.requests] == [False, True, False]
        assert (await show_model(r))["tool_calls"] == "text"


async def show_model(r: Rig) -> dict[str, Any]:
    return await describe_model(r.runtime.setup)

"""Any endpoint can be asked to force its answers into a schema: whole turns of a small model."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kit import Reply, say
from tests.kit.rig import rig


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


async def test_calls_in_the_text_are_taken_up_where_that_is_set(tmp_path: Path) -> None:
    call = '<tool_call>{"name": "read_file", "arguments": {"path": "a.txt"}}</tool_call>'
    config = {"providers": {"custom": {"tool_calls": "text"}}}
    async with rig(tmp_path, [say(call), say("done")], config=config) as r:
        r.home.file("a.txt", "hello")
        assert (await r.turn("read")).text == "done"
        assert "hello" in r.requests[-1].body.decode()


async def test_elsewhere_text_is_text(tmp_path: Path) -> None:
    call = '<tool_call>{"name": "read_file", "arguments": {"path": "a.txt"}}</tool_call>'
    async with rig(tmp_path, [say(call)]) as r:
        assert (await r.turn("read")).text == call

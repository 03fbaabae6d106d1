"""Tools the client runs: the call comes back, the result is brought, the answer follows."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kit import call, say
from tests.kit.api import api

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ASK = {"role": "user", "content": "How is the weather in Bern?"}


async def test_there_and_back(tmp_path: Path) -> None:
    script = [call(("c1", "get_weather", {"city": "Bern"})), say("Sunny.")]
    async with api(tmp_path, script) as a:
        body = {"tools": [TOOL], "tool_execution": "client"}
        first = await a.post("/v1/chat/completions", {"messages": [ASK], **body})
        choice = first.json["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        made = choice["message"]["tool_calls"][0]
        assert json.loads(made["function"]["arguments"]) == {"city": "Bern"}
        declared = a.provider.last.json["tools"]
        assert [t["function"]["name"] for t in declared] == ["get_weather"]
        result = {"role": "tool", "tool_call_id": made["id"], "content": "25 degrees"}
        talk = [ASK, choice["message"], result]
        second = await a.post("/v1/chat/completions", {"messages": talk, **body})
        assert second.json["choices"][0]["message"]["content"] == "Sunny."
        assert b"25 degrees" in a.provider.last.body
        assert second.headers["X-Hermes-Session-Id"] == first.headers["X-Hermes-Session-Id"]


async def test_in_a_stream(tmp_path: Path) -> None:
    async with api(tmp_path, [call(("c1", "get_weather", {"city": "Bern"}))]) as a:
        body = {"tools": [TOOL], "tool_execution": "client", "stream": True}
        answer = await a.post("/v1/chat/completions", {"messages": [ASK], **body})
        last = answer.events[-2][1]["choices"][0]
        assert last["finish_reason"] == "tool_calls"
        assert last["delta"]["tool_calls"][0]["function"]["name"] == "get_weather"
        assert not any(name == "hermes.tool.progress" for name, _ in answer.events)


async def test_a_choice_reaches_the_provider(tmp_path: Path) -> None:
    script = [call(("c1", "get_weather", {}))] * 2
    async with api(tmp_path, script) as a:
        body = {"messages": [ASK], "tools": [TOOL], "tool_execution": "client"}
        await a.post("/v1/chat/completions", {**body, "tool_choice": "required"})
        assert a.provider.last.json["tool_choice"] == "required"
        named = {"type": "function", "function": {"name": "get_weather"}}
        await a.post("/v1/chat/completions", {**body, "tool_choice": named})
        assert a.provider.last.json["tool_choice"] == named


async def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as a:
        body = {"messages": [ASK], "tools": [TOOL], "tool_execution": "client"}
        orphan = {"role": "tool", "tool_call_id": "never", "content": "x"}
        for wrong in (
            {"messages": [ASK, orphan]},
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            {"tools": "all"},
            {"tool_choice": {"type": "function", "function": {"name": "other"}}},
            {"tool_execution": "elsewhere"},
        ):
            answer = await a.post("/v1/chat/completions", {**body, **wrong})
            assert answer.status == 400 and answer.error["message"], wrong
        assert not a.provider.requests


async def test_by_default_tools_run_here_and_the_clients_are_not_declared(tmp_path: Path) -> None:
    async with api(tmp_path, [say("ok")]) as a:
        await a.post("/v1/chat/completions", {"messages": [ASK], "tools": [TOOL]})
        names = [t["function"]["name"] for t in a.provider.last.json["tools"]]
        assert "get_weather" not in names and "terminal" in names

"""Turns in which tools run here and at the client: no request forgets what ran before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit import Received, Reply, call, say
from tests.kit.api import Answer, Api, api

EFFECT = ("s1", "terminal", {"command": "echo x >> effects.log"})
THEIRS = (("c1", "weather", {"city": "Bern"}), ("c2", "weather", {"city": "Rome"}))
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
ASK = {"role": "user", "content": "Note it, then tell me about the weather."}
PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}


def list_results(request: Received) -> list[str]:
    return [m["tool_call_id"] for m in request.json["messages"] if m["role"] == "tool"]


def work_step_by_step(request: Received) -> Reply:
    """A model that goes by what it is shown: first the effect, then the client's tools."""
    seen = list_results(request)
    if not seen or seen[0] == "c1":
        return say("First the note. ") + call(EFFECT)
    return say("Done.") if len(seen) > 1 else call(*THEIRS)


def work_at_once(request: Received) -> Reply:
    return say("Done.") if len(list_results(request)) > 2 else call(EFFECT, *THEIRS)


def declare_weather(route: str) -> list[dict[str, Any]]:
    match route:
        case "chat":
            function = {"name": "weather", "parameters": SCHEMA}
            return [{"type": "function", "function": function}]
        case "messages":
            return [{"name": "weather", "input_schema": SCHEMA}]
        case _:
            return [{"type": "function", "name": "weather", "parameters": SCHEMA}]


def build_answer(route: str, answer: Answer, stream: bool) -> list[dict[str, Any]]:
    """What a client repeats of an answer in its next request."""
    if route == "responses":
        found = answer.events[-1][1]["response"] if stream else answer.json
        return list(found["output"])
    if route == "messages":
        uses = [
            {"type": "tool_use", "id": id, "name": name, "input": args} for id, name, args in THEIRS
        ]
        text = "First the note. " if "First the note" in answer.body.decode() else ""
        return [
            {
                "role": "assistant",
                "content": [*([{"type": "text", "text": text}] * bool(text)), *uses],
            }
        ]
    if not stream:
        return [answer.json["choices"][0]["message"]]
    chunks = [data for name, data in answer.events if data != "[DONE]" and data["choices"]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    text = "".join(delta.get("content") or "" for delta in deltas)
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    return [{"role": "assistant", "content": text, "tool_calls": calls}]


def build_results(route: str) -> list[dict[str, Any]]:
    match route:
        case "chat":
            return [
                {"role": "tool", "tool_call_id": id, "content": f"25 in {args['city']}"}
                for id, _, args in THEIRS
            ]
        case "messages":
            blocks = [
                {"type": "tool_result", "tool_use_id": id, "content": f"25 in {args['city']}"}
                for id, _, args in THEIRS
            ]
            return [{"role": "user", "content": blocks}]
        case _:
            return [
                {"type": "function_call_output", "call_id": id, "output": f"25 in {args['city']}"}
                for id, _, args in THEIRS
            ]


async def ask(a: Api, route: str, said: list[dict[str, Any]], **more: Any) -> Answer:
    field = "input" if route == "responses" else "messages"
    fields = {field: said, "max_tokens": 99} if route == "messages" else {field: said}
    headers = more.pop("headers", None)
    body = {**fields, "tools": declare_weather(route), "tool_execution": "both", **more}
    answer = await a.post(PATHS[route], body, headers=headers)
    assert answer.status == 200, answer.body
    return answer


def read_effects(a: Api) -> list[str]:
    return (a.home.work / "effects.log").read_text().split()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", [work_step_by_step, work_at_once])
@pytest.mark.parametrize("route", PATHS)
async def test_what_ran_here_is_known_when_the_clients_results_come(
    tmp_path: Path, route: str, model: Any, stream: bool
) -> None:
    async with api(tmp_path, then=model) as a:
        first = await ask(a, route, [ASK], stream=stream)
        said = [ASK, *build_answer(route, first, stream), *build_results(route)]
        last = await ask(a, route, said, stream=stream)
        assert "Done." in last.body.decode()
        assert read_effects(a) == ["x"]
        sent = a.provider.last.json["messages"]
        calls = [c["id"] for m in sent for c in m.get("tool_calls") or ()]
        assert calls == list_results(a.provider.last) and calls[1:] == ["c1", "c2"]
        assert [m["content"] for m in sent if m["role"] == "user"] == [ASK["content"]]


@pytest.mark.parametrize("route", ["chat", "messages"])
async def test_a_conversation_goes_on_in_its_session_after_several_results(
    tmp_path: Path, route: str
) -> None:
    async with api(tmp_path, then=work_at_once) as a:
        first = await ask(a, route, [ASK])
        said = [ASK, *build_answer(route, first, False), *build_results(route)]
        second = await ask(a, route, said)
        said += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks"}]
        a.provider.then = say("Bye.")
        third = await ask(a, route, said)
        ids = {x.headers["X-Hermes-Session-Id"] for x in (first, second, third)}
        assert len(ids) == 1
        stored = await a.server.runtime.store.sessions.load_messages(ids.pop())
        results = [part.call_id for m in stored if m.role == "tool" for part in m.parts]
        assert sorted(results) == ["c1", "c2", "s1"]
        assert stored[-1].text == "Bye."


@pytest.mark.parametrize("more", [[], [{"role": "user", "content": "And in Oslo?"}]])
async def test_a_stored_session_gets_every_result(
    tmp_path: Path, more: list[dict[str, Any]]
) -> None:
    """The results of a session that is continued by its id, with or without words of the user."""
    async with api(tmp_path, then=work_at_once) as a:
        headers = {"X-Hermes-Session-Id": "mine"}
        first = await ask(a, "chat", [ASK], headers=headers)
        said = [ASK, *build_answer("chat", first, False), *build_results("chat"), *more]
        for _ in range(2):  # sent again, each result still counts once
            await ask(a, "chat", said, headers=headers)
            assert list_results(a.provider.last)[:3] == ["s1", "c1", "c2"]
        text = a.provider.last.body.decode()
        assert text.count("25 in Bern") == 1 and "25 in Rome" in text
        assert read_effects(a) == ["x"]


async def test_calls_that_ran_here_are_read_from_the_clients_input(tmp_path: Path) -> None:
    async with api(tmp_path, then=work_at_once) as a:
        ours = {"type": "mcp_call", "server_label": "hermes", "id": "mcp_1", "name": "terminal"}
        complete = {**ours, "arguments": "{}", "output": None, "error": "it failed"}
        rest = [
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "25 degrees"},
        ]
        await ask(a, "responses", [ASK, complete, *rest])
        assert list_results(a.provider.requests[0]) == ["mcp_1", "c1"]
        assert b"it failed" in a.provider.requests[0].body
        body = {"tools": declare_weather("responses"), "tool_execution": "both"}
        for wrong in ({**ours, "arguments": None}, {**complete, "name": ""}, {**complete, "id": 7}):
            answer = await a.ask([ASK, wrong, *rest], **body)
            assert answer.status == 400 and answer.error["param"] == "input[1]", wrong
        await a.ask([ASK, complete, *rest], tools=declare_weather("responses"))
        assert b"it failed" not in a.provider.last.body, "the client's tools alone are in use"

"""Calls that ran on the server, as clients see them that would otherwise run them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from tests.kit import call, say
from tests.kit.api import Api, api

READ = call(("c1", "read_file", {"path": "a.txt"}), ("c2", "read_file", {"path": "gone.txt"}))
HOSTED = {"X-Hermes-Tool-Items": "mcp_call"}


def sdk(a: Api, **headers: str) -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=f"{a.url}/v1", api_key=a.key, max_retries=0, default_headers=headers
    )


def of_tools(output: list[Any]) -> list[tuple[str, str, str]]:
    return [(i.type, i.name, i.status) for i in output if i.type != "message"]


async def test_every_event_of_a_chat_stream_is_a_chunk(tmp_path: Path) -> None:
    async with api(tmp_path, [READ, say("Read.")]) as a, sdk(a) as client:
        stream = await client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Read."
        told = [c for c in chunks if (c.model_extra or {}).get("tool") == "read_file"]
        assert len(told) == 4
        assert len({(c.id, c.object, c.model) for c in chunks}) == 1


async def test_hosted_items_contain_the_output(tmp_path: Path) -> None:
    async with api(tmp_path, [READ, say("Read.")]) as a, sdk(a, **HOSTED) as client:
        (a.home.work / "a.txt").write_text("inside\n")
        answer = await client.responses.create(model="any", input="read it")
        good = ("mcp_call", "read_file", "completed")
        assert of_tools(answer.output) == [good, ("mcp_call", "read_file", "failed")]
        first, second = answer.output[0], answer.output[1]
        assert first.type == "mcp_call" and "inside" in (first.output or "") and not first.error
        assert second.type == "mcp_call" and second.error and second.output is None
        assert answer.output_text == "Read."


async def test_hosted_items_in_a_stream(tmp_path: Path) -> None:
    async with api(tmp_path, [READ, say("Read.")]) as a, sdk(a, **HOSTED) as client:
        (a.home.work / "a.txt").write_text("inside\n")
        async with client.responses.stream(model="any", input="read it") as stream:
            events = [event async for event in stream]
        kinds = [e.type for e in events]
        assert kinds.count("response.mcp_call.in_progress") == 2
        assert {"response.mcp_call.completed", "response.mcp_call.failed"} <= set(kinds)
        assert not any("function_call" in kind for kind in kinds)
        done = {e.output_index: e.item for e in events if e.type == "response.output_item.done"}
        final = events[-1]
        assert final.type == "response.completed"
        told = [done[n].to_dict() for n in sorted(done)][:2]
        assert told == [item.to_dict() for item in final.response.output[:2]]
        assert of_tools(final.response.output)[0] == ("mcp_call", "read_file", "completed")


async def test_the_operator_chooses_and_a_client_overrides(tmp_path: Path) -> None:
    settings = {"tool_items": "mcp_call"}
    async with api(tmp_path, [READ, say("1"), READ, say("2")], settings=settings) as a:
        chosen = await a.post("/v1/responses", {"input": "x"})
        assert [i["type"] for i in chosen.json["output"]][:2] == ["mcp_call", "mcp_call"]
        headers = {"X-Hermes-Tool-Items": "function_call"}
        other = await a.post("/v1/responses", {"input": "x"}, headers=headers)
        assert other.json["output"][0]["type"] == "function_call"
        wrong = await a.post("/v1/responses", {"input": "x"}, headers={"X-Hermes-Tool-Items": "x"})
        assert wrong.status == 400 and "mcp_call" in wrong.error["message"]


OWN = [{"type": "function", "name": "shell", "parameters": {"type": "object"}}]
SAME = [*OWN, {"type": "function", "name": "read_file", "parameters": {"type": "object"}}]
CODEX = {"User-Agent": "codex_exec/0.166.0 (Debian)", "originator": "codex_exec"}
CALLS = ["function_call", "function_call"] + ["function_call_output"] * 2
HOSTED_CALLS = ["mcp_call", "mcp_call"]
SEEN = {
    "a function is declared": (OWN, {}, HOSTED_CALLS),
    "one of the same name": (SAME, {}, HOSTED_CALLS),
    "none is declared": (None, {}, CALLS),
    "asked for": (None, HOSTED, HOSTED_CALLS),
    "the other form is asked for": (SAME, {"X-Hermes-Tool-Items": "function_call"}, CALLS),
    "no shape depends on the client": (None, CODEX, CALLS),
    "a hosted tool is no function": ([{"type": "web_search"}], {}, CALLS),
}


async def test_clients_that_declare_functions_get_hosted_items(tmp_path: Path) -> None:
    """They would answer that they have no such tool, and the turn would begin again, for ever."""
    steps = [step for _ in SEEN for step in (READ, say("1"))]
    async with api(tmp_path, steps) as a:
        for case, (tools, headers, kinds) in SEEN.items():
            body = {"input": case, "tools": tools, "tool_execution": "server"}
            answer = await a.post("/v1/responses", body, headers=headers)
            got = [item["type"] for item in answer.json["output"]]
            assert got == [*kinds, "message"], case


async def test_progress_events_have_exact_fields(tmp_path: Path) -> None:
    async with api(tmp_path, [READ, say("Read.")]) as a:
        told = await a.chat(stream=True)
        progress = [data for name, data in told.events if name == "hermes.tool.progress"]
        for identity, path in (("c1", "a.txt"), ("c2", "gone.txt")):
            one = {"tool": "read_file", "label": path, "toolCallId": identity}
            for shown, status in zip(
                [p for p in progress if p["toolCallId"] == identity],
                ("running", "completed"),
                strict=True,
            ):
                chunk = {"object": "chat.completion.chunk", "choices": [], "model": "hermes-agent"}
                assert shown == {
                    **one,
                    **chunk,
                    "status": status,
                    "id": shown["id"],
                    "created": shown["created"],
                }

"""Client-side tools: the call is returned, the client sends the result, the answer follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit import call, say
from tests.kit.api import api
from tests.server.exchanges import PNG

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ASK = {"role": "user", "content": "How is the weather in Bern?"}


async def test_a_call_is_returned_and_its_result_accepted(tmp_path: Path) -> None:
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


async def test_calls_in_a_stream(tmp_path: Path) -> None:
    async with api(tmp_path, [call(("c1", "get_weather", {"city": "Bern"}))]) as a:
        body = {"tools": [TOOL], "tool_execution": "client", "stream": True}
        answer = await a.post("/v1/chat/completions", {"messages": [ASK], **body})
        last = answer.events[-2][1]["choices"][0]
        assert last["finish_reason"] == "tool_calls"
        assert last["delta"]["tool_calls"][0]["function"]["name"] == "get_weather"
        assert not any(name == "hermes.tool.progress" for name, _ in answer.events)


async def test_tool_choice_reaches_the_provider(tmp_path: Path) -> None:
    script = [call(("c1", "get_weather", {}))] * 2
    async with api(tmp_path, script) as a:
        body = {"messages": [ASK], "tools": [TOOL], "tool_execution": "client"}
        await a.post("/v1/chat/completions", {**body, "tool_choice": "required"})
        assert a.provider.last.json["tool_choice"] == "required"
        named = {"type": "function", "function": {"name": "get_weather"}}
        await a.post("/v1/chat/completions", {**body, "tool_choice": named})
        assert a.provider.last.json["tool_choice"] == named


NAMED = {"type": "function", "function": {"name": "get_weather"}}
OTHER = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
PLAIN = {"type": "function", "name": "get_weather"}
CHOICES = [
    ("messages", {"type": "auto", "disable_parallel_tool_use": True}, 2, None),
    ("messages", {"type": "any", "disable_parallel_tool_use": True}, 2, "required"),
    ("messages", {"type": "tool", "name": "get_weather"}, 2, NAMED),
    ("responses", {"type": "function", "name": "get_weather"}, 2, NAMED),
    ("responses", {"type": "allowed_tools", "mode": "required", "tools": [PLAIN]}, 1, "required"),
    ("responses", {"type": "web_search"}, 2, None),
    (
        "chat/completions",
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}},
        1,
        None,
    ),
]
"""A route, a choice in the words of its protocol, how many tools are left, and what is sent."""


@pytest.mark.parametrize(("path", "choice", "count", "sent"), CHOICES)
async def test_choices_of_every_protocol(
    tmp_path: Path, path: str, choice: Any, count: int, sent: Any
) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        body = {"messages": [ASK], "input": "hi", "max_tokens": 99, "tools": [TOOL, OTHER]}
        answer = await a.post(f"/v1/{path}", {**body, "tool_choice": choice})
        assert answer.status == 200, answer.body
        assert len(a.provider.last.json["tools"]) == count
        assert a.provider.last.json.get("tool_choice") == sent


async def test_invalid_tools_are_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as a:
        body = {"messages": [ASK], "tools": [TOOL], "tool_execution": "client"}
        orphan = {"role": "tool", "tool_call_id": "never", "content": "x"}
        for wrong in (
            {"messages": [ASK, orphan]},
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            {"tools": [{"type": "function", "function": {"name": "a" * 129}}]},
            {"tools": "all"},
            {"tool_choice": {"type": "function", "function": {"name": "other"}}},
            {"tool_execution": "elsewhere"},
        ):
            answer = await a.post("/v1/chat/completions", {**body, **wrong})
            assert answer.status == 400 and answer.error["message"], wrong
        assert not a.provider.requests


async def test_names_may_be_as_long_as_programs_make_them(tmp_path: Path) -> None:
    name = "mcp__" + "a" * 123
    async with api(tmp_path, [call(("c1", name, {}))]) as a:
        body = {"messages": [ASK], "max_tokens": 9, "tools": [{"name": name, "input_schema": {}}]}
        answer = await a.post("/v1/messages", body)
        assert answer.json["content"][0]["name"] == name


HOSTED = {"type": "web_search"}
WHOSE: dict[str, tuple[dict, dict, set[str], str]] = {
    "declared functions are the client's": ({"tools": [TOOL]}, {}, {"get_weather"}, ""),
    "a hosted tool is left out": ({"tools": [HOSTED]}, {}, {"terminal"}, "tools.web_search"),
    "none is declared": ({"tools": []}, {}, {"terminal"}, ""),
    "the body chooses": ({"tools": [TOOL], "tool_execution": "server"}, {}, {"terminal"}, "tools"),
    "both": (
        {"tools": [TOOL], "tool_execution": "both"},
        {},
        {"get_weather", "terminal"},
        "",
    ),
    "the header chooses": (
        {"tools": [TOOL]},
        {"X-Hermes-Tool-Execution": "server"},
        {"terminal"},
        "tools",
    ),
    "no tools at all": ({}, {"X-Hermes-Tool-Execution": "none"}, set(), ""),
}


@pytest.mark.parametrize("case", WHOSE, ids=str)
async def test_whose_tools_are_offered(tmp_path: Path, case: str) -> None:
    body, headers, expected, ignored = WHOSE[case]
    async with api(tmp_path, [say("ok")]) as a:
        answer = await a.post("/v1/chat/completions", {"messages": [ASK], **body}, headers=headers)
        assert answer.status == 200
        declared = {t["function"]["name"] for t in a.provider.last.json.get("tools", ())}
        assert declared & {"get_weather", "terminal"} == expected
        assert answer.headers.get("X-Hermes-Ignored", "") == ignored


async def test_the_operator_chooses_for_a_key(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("ok"), settings={"tool_execution": "both"}) as a:
        await a.post("/v1/chat/completions", {"messages": [ASK], "tools": [TOOL]})
        declared = {t["function"]["name"] for t in a.provider.last.json["tools"]}
        assert {"get_weather", "terminal"} <= declared


async def test_both_run_ours_and_hand_over_the_clients(tmp_path: Path) -> None:
    mixed = call(("s1", "read_file", {"path": "a.txt"}), ("c1", "get_weather", {"city": "Bern"}))
    async with api(tmp_path, [mixed, say("Sunny.")]) as a:
        (a.home.work / "a.txt").write_text("from the file\n")
        body = {"tools": [FUNCTION], "tool_execution": "both"}
        first = await a.ask("How is it?", **body)
        ours, theirs = first.json["output"]
        assert ours["type"] == "mcp_call" and "from the file" in ours["output"]
        assert theirs["type"] == "function_call" and theirs["call_id"] == "c1"
        back = [output_item("c1")]
        second = await a.ask(back, previous_response_id=first.json["id"], **body)
        assert second.json["output"][-1]["content"][0]["text"] == "Sunny."
        sent = a.provider.last.json["messages"]
        assert [m["role"] for m in sent[1:]] == ["user", "assistant", "tool", "tool"]
        assert b"from the file" in a.provider.last.body and b"25 degrees" in a.provider.last.body


async def test_a_name_of_both_is_the_clients(tmp_path: Path) -> None:
    own = {"type": "function", "function": {"name": "terminal", "parameters": {"type": "object"}}}
    async with api(tmp_path, [call(("c1", "terminal", {"x": 1}))]) as a:
        body = {"messages": [ASK], "tools": [own], "tool_execution": "both"}
        answer = await a.post("/v1/chat/completions", body)
        assert answer.json["choices"][0]["finish_reason"] == "tool_calls"
        names = [t["function"]["name"] for t in a.provider.last.json["tools"]]
        assert names.count("terminal") == 1


async def test_images_and_errors_in_results_pass(tmp_path: Path) -> None:
    script = [call(("c1", "get_weather", {})), say("Seen.")]
    async with api(tmp_path, script) as a:
        spec = {"name": "get_weather", "input_schema": {"type": "object"}}
        body = {"max_tokens": 99, "tools": [spec]}
        first = await a.post("/v1/messages", {"messages": [ASK], **body})
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png"}}
        image["source"]["data"] = PNG
        result = {
            "type": "tool_result",
            "tool_use_id": "c1",
            "is_error": True,
            "content": [{"type": "text", "text": "storm"}, image],
        }
        said = [ASK, {"role": "assistant", "content": first.json["content"]}]
        talk = [*said, {"role": "user", "content": [result]}]
        second = await a.post("/v1/messages", {"messages": talk, **body})
        assert second.json["content"][0]["text"] == "Seen."
        assert b"storm" in a.provider.last.body and PNG.encode() in a.provider.last.body


# -- responses -------------------------------------------------------------------------------

FUNCTION = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CLIENT = {"tools": [FUNCTION], "tool_execution": "client"}
WEATHER = call(("c1", "get_weather", {"city": "Bern"}))


def output_item(call_id: str, output: object = "25 degrees") -> dict:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


async def test_responses_with_the_previous_response(tmp_path: Path) -> None:
    async with api(tmp_path, [WEATHER, say("Sunny."), say("Bye.")]) as a:
        first = await a.ask("How is it?", **CLIENT)
        assert first.json["status"] == "completed"
        (made,) = first.json["output"]
        assert made["type"] == "function_call" and made["name"] == "get_weather"
        assert json.loads(made["arguments"]) == {"city": "Bern"}
        assert first.json["tools"] == [FUNCTION]
        back = [output_item(made["call_id"])]
        second = await a.ask(back, previous_response_id=first.json["id"], **CLIENT)
        (item,) = second.json["output"]
        assert item["content"][0]["text"] == "Sunny."
        roles = [m["role"] for m in a.provider.last.json["messages"][1:]]
        assert roles == ["user", "assistant", "tool"]
        assert b"25 degrees" in a.provider.last.body
        third = await a.ask("Thanks", previous_response_id=second.json["id"], **CLIENT)
        assert third.json["output"][0]["content"][0]["text"] == "Bye."
        roles = [m["role"] for m in a.provider.last.json["messages"][1:]]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]


async def test_responses_with_the_complete_input(tmp_path: Path) -> None:
    two = call(("c1", "get_weather", {"city": "Bern"}), ("c2", "get_weather", {"city": "Rome"}))
    async with api(tmp_path, [two, say("Sunny.")]) as a:
        first = await a.ask([{"role": "user", "content": "How is it?"}], store=False, **CLIENT)
        items = [{"role": "user", "content": "How is it?"}, *first.json["output"]]
        items += [
            output_item("c1"),
            output_item("c2", [{"type": "input_text", "text": "30 degrees"}]),
        ]
        second = await a.ask(items, store=False, **CLIENT)
        assert second.json["output"][0]["content"][0]["text"] == "Sunny."
        messages = a.provider.last.json["messages"][1:]
        assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool"]
        assert len(messages[1]["tool_calls"]) == 2
        assert "25 degrees" in messages[2]["content"] and "30 degrees" in messages[3]["content"]


async def test_responses_in_a_stream(tmp_path: Path) -> None:
    async with api(tmp_path, [say("Let me ask. ") + WEATHER, say("Sunny.")]) as a:
        streamed = await a.ask("How is it?", stream=True, **CLIENT)
        names = [name for name, _ in streamed.events]
        assert "response.function_call_arguments.done" in names
        assert [d["sequence_number"] for _, d in streamed.events] == list(range(len(names)))
        final = streamed.events[-1][1]["response"]
        assert [i["type"] for i in final["output"]] == ["message", "function_call"]
        back = await a.ask(
            [output_item("c1")], previous_response_id=final["id"], stream=True, **CLIENT
        )
        assert back.events[-1][1]["response"]["output"][0]["content"][0]["text"] == "Sunny."


async def test_invalid_tool_items_are_refused(tmp_path: Path) -> None:
    async with api(tmp_path, [WEATHER]) as a:
        first = (await a.ask("How is it?", **CLIENT)).json["id"]
        for items in (
            [output_item("never")],
            [{"role": "user", "content": "x"}, output_item("never")],
            [{"type": "function_call", "call_id": 1, "name": "f"}, output_item("c1")],
        ):
            answer = await a.ask(items, previous_response_id=first, **CLIENT)
            assert answer.status == 400, items
        assert len(a.provider.requests) == 1


CALLS = [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]
WITHOUT_TOOLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            ASK,
            {"role": "assistant", "content": None, "tool_calls": CALLS},
            {"role": "tool", "tool_call_id": "c1", "content": "25 degrees"},
        ]
    },
    "/v1/responses": {
        "input": [
            ASK,
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
            output_item("c1"),
        ]
    },
    "/v1/messages": {
        "max_tokens": 99,
        "messages": [
            ASK,
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "get_weather", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "25 degrees"}],
            },
        ],
    },
}
"""The client has run its tool, and wants no further calls."""


@pytest.mark.parametrize("path", WITHOUT_TOOLS)
async def test_a_result_is_accepted_without_declared_tools(tmp_path: Path, path: str) -> None:
    async with api(tmp_path, then=say("Sunny.")) as a:
        answer = await a.post(path, WITHOUT_TOOLS[path])
        assert answer.status == 200 and "Sunny." in answer.body.decode()
        assert b"25 degrees" in a.provider.last.body and "tools" not in a.provider.last.json
        a.provider.requests.clear()
        forged = json.loads(json.dumps(WITHOUT_TOOLS[path]).replace('"c1"', '"c0"', 1))
        for body in (forged, {**WITHOUT_TOOLS[path], "tool_execution": "server"}):
            await a.post(path, body)  # a 400 where nothing is left to answer
        assert not any(b"degrees" in request.body for request in a.provider.requests)


async def test_a_result_is_accepted_with_the_previous_response_alone(tmp_path: Path) -> None:
    async with api(tmp_path, [WEATHER, say("Sunny."), say("Bye.")]) as a:
        first = (await a.ask("How is it?", **CLIENT)).json["id"]
        back = [output_item("c1")]
        second = await a.ask(back, previous_response_id=first)
        assert second.json["output"][0]["content"][0]["text"] == "Sunny."
        assert b"25 degrees" in a.provider.last.body
        again = await a.ask(back, previous_response_id=second.json["id"])
        assert again.status == 400, "it is answered"


SUMMARY = {"role": "user", "content": "You are performing a CONTEXT CHECKPOINT COMPACTION. Go."}


@pytest.mark.parametrize("path", WITHOUT_TOOLS)
async def test_a_summary_contains_what_the_clients_tools_said(tmp_path: Path, path: str) -> None:
    field = "input" if path == "/v1/responses" else "messages"
    body = WITHOUT_TOOLS[path]
    async with api(tmp_path, then=say("So far: 25 degrees.")) as a:
        answer = await a.post(path, {**body, field: [*body[field], SUMMARY]})
        assert answer.status == 200 and b"25 degrees" in a.provider.last.body
        assert "tools" not in a.provider.last.json
        chat = {**body, field: [*body[field], {"role": "user", "content": "Go on."}]}
        assert (await a.post(path, chat)).status == 200
        assert b"25 degrees" not in a.provider.last.body, "no tools of a client are in use"


async def test_a_conversation_of_client_tools(tmp_path: Path) -> None:
    async with api(tmp_path, [WEATHER, say("Sunny.")]) as a:
        await a.ask("How is it?", conversation="c", **CLIENT)
        second = await a.ask([output_item("c1")], conversation="c", **CLIENT)
        assert second.json["output"][0]["content"][0]["text"] == "Sunny."


@pytest.mark.parametrize(
    "tools", [[1], [{"type": "function"}], [{"type": "function", "function": {}}]]
)
async def test_malformed_tools_do_not_let_ours_run(tmp_path: Path, tools: Any) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        for path, body in (
            ("/v1/chat/completions", {"messages": [ASK]}),
            ("/v1/responses", {"input": "hi"}),
            ("/v1/messages", {"messages": [ASK], "max_tokens": 9}),
        ):
            answer = await a.post(path, {**body, "tools": tools})
            assert answer.status == 400 and answer.error["param"].startswith("tools"), path
        assert not a.provider.requests

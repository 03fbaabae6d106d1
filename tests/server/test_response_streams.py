"""Streamed responses: their events, and what is stored when a client leaves or a write fails."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from hermes.core.errors import StoreError
from tests.kit import Gate, call, say
from tests.kit.api import api
from tests.server.exchanges import sent_messages, wait_until_idle
from tests.server.test_api_responses import text_of

PATH = "/v1/responses"
READ = call(("c1", "read_file", {"path": "a.txt"}))


async def test_events_and_their_order(tmp_path: Path) -> None:
    script = [say("Look. ") + READ, say("One ", "two.")]
    async with api(tmp_path, script) as a:
        answer = await a.ask(stream=True, model="m")
        names = [name for name, _ in answer.events]
        for number, (name, data) in enumerate(answer.events):
            assert data["type"] == name and data["sequence_number"] == number
        message = [
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
        ]
        tool = [
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
        ]
        came = ["response.output_item.added", "response.output_item.done"]
        collapsed = [n for i, n in enumerate(names) if i == 0 or names[i - 1] != n]
        assert collapsed == [
            "response.created",
            "response.in_progress",
            *message,
            *tool,
            *came,
            *message,
            "response.completed",
        ]
        final = answer.events[-1][1]["response"]
        kinds = [i["type"] for i in final["output"]]
        assert kinds == ["message", "function_call", "function_call_output", "message"]
        assert final["output"][2]["output"][0]["type"] == "input_text"
        assert final["status"] == "completed" and final["model"] == "m" and final["usage"]
        assert (await a.get(f"{PATH}/{final['id']}")).json == final
        assert answer.headers["X-Hermes-Session-Id"].startswith("api-")
        begun = answer.events[0][1]["response"]
        assert begun["status"] == "in_progress" and begun["id"] == final["id"]


async def test_the_fields_of_events(tmp_path: Path) -> None:
    async with api(tmp_path, [READ, say("One ", "two.")]) as a:
        events = (await a.ask(stream=True)).events
        added: dict[int, dict] = {}
        text = ""
        for name, data in events:
            match name:
                case "response.output_item.added":
                    added[data["output_index"]] = data["item"]
                case "response.output_item.done":
                    assert added[data["output_index"]]["id"] == data["item"]["id"]
                    assert data["item"]["status"] == "completed"
                case "response.output_text.delta":
                    assert data["logprobs"] == [] and data["content_index"] == 0
                    assert added[data["output_index"]]["id"] == data["item_id"]
                    text += data["delta"]
                case "response.output_text.done":
                    assert data["text"] == text == "One two."
                case "response.function_call_arguments.done":
                    assert json.loads(data["arguments"]) == {"path": "a.txt"}
        assert sorted(added) == [0, 1, 2]
        item = added[1]
        assert item["type"] == "function_call_output"
        assert [part["type"] for part in item["output"]] == ["input_text"]


async def test_a_client_that_leaves_gets_an_incomplete_response(tmp_path: Path) -> None:
    script = [say("Half", " of it").stall(after="text"), say("The rest.")]
    async with api(tmp_path, script) as a:
        body = {"input": "alpha", "stream": True, "conversation": "c"}
        async with a.open_stream("POST", PATH, body) as reading:
            got = await reading.until(b"Half")
        identity = json.loads(got.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
        await asyncio.wait_for(a.provider.requests[0].gone.wait(), 90)
        await wait_until_idle(a)
        stored = (await a.get(f"{PATH}/{identity}")).json
        assert stored["status"] == "incomplete" and text_of(stored) == "Half"
        assert stored["incomplete_details"]["reason"] == "error"
        for way in ({"previous_response_id": identity}, {"conversation": "c"}):
            a.provider.then = say("The rest.")
            assert (await a.ask("go on", **way)).json["status"] == "completed"
            contents = [c for _, c in sent_messages(a)]
            assert contents[0] == "alpha" and "Half" in contents[1] and contents[-1] == "go on"


async def test_a_client_that_leaves_while_a_tool_is_silent(tmp_path: Path) -> None:
    work = call(("c1", "terminal", {"command": "touch begun; sleep 60"}))
    async with api(tmp_path, [say("Wait. ") + work, say("On.")]) as a:
        async with a.open_stream("POST", PATH, {"input": "alpha", "stream": True}) as reading:
            got = await reading.until(b"function_call_arguments.done")
            async with asyncio.timeout(90):
                while not (a.home.work / "begun").exists():
                    await asyncio.sleep(0.02)
        await wait_until_idle(a)
        identity = json.loads(got.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
        stored = (await a.get(f"{PATH}/{identity}")).json
        assert stored["status"] == "incomplete" and text_of(stored).startswith("Wait.")
        assert (await a.ask("go on", previous_response_id=identity)).status == 200
        roles = [role for role, _ in sent_messages(a)]
        assert roles == ["user", "assistant", "tool", "user"]  # the call has its one result


async def test_leaving_at_any_moment_leaves_a_stored_response(tmp_path: Path) -> None:
    """Each response can be read, whenever its client has left."""
    gate = Gate()
    gate.open()
    async with api(tmp_path, then=say(*["w "] * 30).slow(0.002)) as a:
        for n in range(12):
            async with a.open_stream("POST", PATH, {"input": f"n{n}", "stream": True}) as reading:
                got = await reading.until(b"response.in_progress")
                for _ in range(n * 2):  # deltas that wait for the disk become one
                    if b"response.completed" not in got:
                        got += await reading.until(b"\n\n")
            await wait_until_idle(a)
            identity = json.loads(got.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
            stored = (await a.get(f"{PATH}/{identity}")).json
            assert stored["status"] in ("incomplete", "completed"), n


async def test_an_end_that_cannot_be_stored_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a streamed response and for a run."""
    gates = Gate(), Gate()
    steps = [say("Hello ", "there").hold(gate, "text") for gate in gates]
    async with api(tmp_path, steps) as a:
        async with a.open_stream("POST", PATH, {"input": "x", "stream": True}) as reading:
            got = await reading.until(b"Hello ")
            run = (await a.post("/v1/runs", {"input": "x"})).json["run_id"]
            async with a.open_stream("GET", f"/v1/runs/{run}/events") as following:
                await following.until(b"Hello ")
                objects = a.server.runtime.store.objects

                async def full(*_: object, **__: object) -> None:
                    raise StoreError(f"{a.home.path}/hermes.db: the disk is full")

                with monkeypatch.context() as patch:
                    patch.setattr(objects, "put", full)
                    for gate in gates:
                        gate.open()
                    last = await reading.rest()
                    await following.rest()
        assert b"event: response.failed" in last and b"the disk is full" in last
        assert b'"error":{"code":"server_error"' in last  # one of those that OpenAI's clients know
        assert str(a.home.path).encode() not in last
        identity = json.loads(got.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
        stored = (await a.get(f"{PATH}/{identity}")).json
        assert stored["status"] == "incomplete" and text_of(stored) == "Hello there"
        told = (await a.get(f"/v1/runs/{run}")).json
        assert told["status"] == "failed" and "could not be stored" in told["error"]


async def test_a_response_deleted_while_it_is_streamed_stays_deleted(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("Hello ", "there").hold(gate, "text"), say("Yes.")]
    async with api(tmp_path, steps) as a:
        body = {"input": "x", "stream": True, "conversation": "c"}
        async with a.open_stream("POST", PATH, body) as reading:
            got = await reading.until(b"Hello ")
            identity = json.loads(got.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
            assert (await a.call("DELETE", f"{PATH}/{identity}")).status == 200
            gate.open()
            assert b"event: response.completed" in await reading.rest()
        assert (await a.get(f"{PATH}/{identity}")).status == 404
        await a.ask("again", conversation="c")
        assert sent_messages(a) == [("user", "again")]
        assert not a.server.services.responses.in_progress

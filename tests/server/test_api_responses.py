"""/v1/responses: what is read, chained, named, kept, forgotten and streamed."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest

from hermes.core.errors import StoreError
from tests.kit import Gate, Tokens, call, nothing, say, status
from tests.kit.api import Api, api
from tests.kit.home import KEY
from tests.kit.server import Provider
from tests.server.test_api_chat import DATA, prompt, sent
from tests.server.test_api_streams import idle

PATH = "/v1/responses"
READ = call(("c1", "read_file", {"path": "a.txt"}))


def text_of(body: dict) -> str:
    return "".join(
        part["text"]
        for item in body["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


# -- the request -----------------------------------------------------------------------------

BAD = {
    "no input": ({}, "input"),
    "input null": ({"input": None}, "input"),
    "input 42": ({"input": 42}, "input"),
    "input true": ({"input": True}, "input"),
    "an object": ({"input": {"role": "user"}}, "input"),
    "empty text": ({"input": ""}, "input"),
    "blank text": ({"input": " \n"}, "input"),
    "no items": ({"input": []}, "input"),
    "an item that is text": ({"input": ["x"]}, "input[0]"),
    "no role": ({"input": [{"content": "x"}]}, "input[0]"),
    "an unknown role": ({"input": [{"role": "robot", "content": "x"}]}, "input[0]"),
    "only assistants": ({"input": [{"role": "assistant", "content": "x"}]}, "input"),
    "an empty user item": ({"input": [{"role": "user", "content": ""}]}, "input"),
    "content 42": ({"input": [{"role": "user", "content": 42}]}, "input[0].content"),
    "both": ({"input": "x", "conversation": "c", "previous_response_id": "r"}, "Cannot use both"),
    "store maybe": ({"input": "x", "store": "maybe"}, "store"),
    "stream maybe": ({"input": "x", "stream": "maybe"}, "stream"),
    "a number as conversation": ({"input": "x", "conversation": 42}, "conversation"),
    "an empty conversation": ({"input": "x", "conversation": ""}, "conversation"),
    "an unknown part": (
        {"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
        "input[0].content[0]",
    ),
}


class TestRequests:
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    @pytest.mark.parametrize("case", BAD, ids=str)
    async def test_refused(self, shared: Api, case: str) -> None:
        body, named = BAD[case]
        before = len(shared.provider.requests)
        answer = await shared.post(PATH, body)
        assert answer.status == 400 and named in answer.error["message"]
        assert len(shared.provider.requests) == before

    async def test_a_string(self, shared: Api) -> None:
        assert (await shared.ask("words")).status == 200
        assert sent(shared) == [("user", "words")]

    async def test_items(self, shared: Api) -> None:
        items = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "c"}],
            },
        ]
        await shared.ask(items)
        assert sent(shared) == [("user", "a"), ("assistant", "b"), ("user", "c")]

    async def test_an_image(self, shared: Api) -> None:
        parts = [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": DATA, "detail": "high"},
        ]
        await shared.ask([{"role": "user", "content": parts}])
        content = sent(shared)[-1][1]
        assert [p["type"] for p in content] == ["text", "image_url"]
        assert content[1]["image_url"] == {"url": DATA, "detail": "high"}

    async def test_the_answer(self, shared: Api) -> None:
        answer = await shared.ask(model="m")
        body = answer.json
        assert body["id"].startswith("resp_") and body["object"] == "response"
        assert body["status"] == "completed" and isinstance(body["created_at"], int)
        assert body["model"] == "m"
        (item,) = body["output"]
        assert item["type"] == "message" and item["role"] == "assistant"
        assert item["content"] == [{"type": "output_text", "text": "Yes.", "annotations": []}]
        usage = body["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0
        assert answer.headers["X-Hermes-Session-Id"].startswith("api-")
        assert "X-Hermes-Completed" not in answer.headers
        assert body["error"] is None and body["incomplete_details"] is None

    @pytest.mark.parametrize(
        "extra",
        [
            {"reasoning": {"effort": "low", "summary": "auto"}},
            {"include": ["reasoning.encrypted_content"], "text": {"format": {"type": "text"}}},
            {"tools": [{"type": "function", "name": "f"}], "parallel_tool_calls": True},
            {"metadata": {"a": "b", "n": 1e5, "deep": {"x": [1]}}, "user": "u", "top_p": 1},
            {"max_output_tokens": None, "truncation": None, "previous_response_id": None},
            {"prompt_cache_key": "k", "service_tier": "auto", "background": False},
        ],
        ids=str,
    )
    async def test_whatever_else_a_client_sends_is_accepted(self, shared: Api, extra: dict) -> None:
        assert (await shared.ask(**extra)).status == 200

    async def test_system_items_hold_for_this_turn_only(self, shared: Api) -> None:
        items = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "x"}]
        first = (await shared.ask(items)).json
        assert "Be kind." in prompt(shared)
        await shared.ask("y", previous_response_id=first["id"])
        assert "Be kind." not in shared.provider.last.body.decode()


# -- instructions ----------------------------------------------------------------------------


class TestInstructions:
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    async def test_ephemeral_and_inherited(self, shared: Api) -> None:
        first = await shared.ask("a", instructions="Speak Latin.")
        assert "Speak Latin." in prompt(shared)
        session = first.headers["X-Hermes-Session-Id"]
        kept = (await shared.get(f"/api/sessions/{session}/messages")).body
        assert b"Latin" not in kept
        second = await shared.ask("b", previous_response_id=first.json["id"])
        assert "Speak Latin." in prompt(shared)
        await shared.ask("c", previous_response_id=second.json["id"])
        assert "Speak Latin." in prompt(shared)

    async def test_given_ones_replace_inherited_ones(self, shared: Api) -> None:
        first = (await shared.ask("a", instructions="Speak Latin.")).json
        second = (
            await shared.ask("b", previous_response_id=first["id"], instructions="Speak Greek.")
        ).json
        assert "Greek" in prompt(shared) and "Latin" not in prompt(shared)
        await shared.ask("c", previous_response_id=second["id"])
        assert "Greek" in prompt(shared) and "Latin" not in prompt(shared)

    async def test_an_empty_string_is_none_at_all(self, shared: Api) -> None:
        first = (await shared.ask("a", instructions="Speak Latin.")).json
        await shared.ask("b", previous_response_id=first["id"], instructions="")
        assert "Latin" not in shared.provider.last.body.decode()


# -- chains ----------------------------------------------------------------------------------


async def test_a_chain_holds_every_message_once(tmp_path: Path) -> None:
    script = [READ, say("first answer"), READ, say("second answer"), say("third answer")]
    async with api(tmp_path, script) as a:
        one = await a.ask("alpha")
        two = await a.ask("beta", previous_response_id=one.json["id"])
        three = await a.ask("gamma", previous_response_id=two.json["id"])
        sessions = {x.headers["X-Hermes-Session-Id"] for x in (one, two, three)}
        assert len(sessions) == 1
        roles = [role for role, _ in sent(a)]
        assert roles == ["user", "assistant", "tool", "assistant"] * 2 + ["user"]
        body = a.provider.last.body
        for words in (b"alpha", b"first answer", b"beta", b"second answer", b"gamma"):
            assert body.count(words) == 1, words
        assert [i["type"] for i in two.json["output"]] == [
            "function_call",
            "function_call_output",
            "message",
        ]
        assert text_of(three.json) == "third answer"
        stored = (await a.get(f"/api/sessions/{sessions.pop()}/messages")).body
        for words in (b"alpha", b"first answer", b"beta", b"second answer", b"third answer"):
            assert stored.count(words) == 1, words


async def test_a_chain_can_branch(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        root = (await a.ask("root")).json["id"]
        await a.ask("left", previous_response_id=root)
        await a.ask("right", previous_response_id=root)
        assert sent(a) == [("user", "root"), ("assistant", "Yes."), ("user", "right")]


async def test_a_response_in_a_named_session_is_gone_on_from_with_all_of_it(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        headers = {"X-Hermes-Session-Id": "mine"}
        await a.chat("alpha", headers=headers)
        made = await a.ask("beta", headers=headers)
        assert made.headers["X-Hermes-Session-Id"] == "mine"
        await a.ask("gamma", previous_response_id=made.json["id"])
        assert [c for _, c in sent(a)] == ["alpha", "Yes.", "beta", "Yes.", "gamma"]


async def test_unknown_responses(tmp_path: Path) -> None:
    async with api(tmp_path) as a:
        for body in ({"stream": False}, {"stream": True}):
            answer = await a.ask(previous_response_id="resp_unknown", **body)
            assert answer.status == 404 and answer.error["type"] == "not_found_error"
        assert (await a.get(f"{PATH}/resp_unknown")).status == 404
        assert (await a.call("DELETE", f"{PATH}/resp_unknown")).status == 404
        assert not a.provider.requests


async def test_output_items_of_a_turn(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("the content of a")
    script = [say("Let me look.") + READ, say("It is there.")]
    async with api(tmp_path, script) as a:
        output = (await a.ask("look")).json["output"]
        kinds = [i["type"] for i in output]
        assert kinds == ["message", "function_call", "function_call_output", "message"]
        made, came = output[1], output[2]
        assert made["name"] == "read_file" and made["call_id"] == came["call_id"] == "c1"
        assert json.loads(made["arguments"]) == {"path": "a.txt"}
        assert isinstance(came["output"], str) and "the content of a" in came["output"]


async def test_usage_is_summed(tmp_path: Path) -> None:
    script = [READ.usage(Tokens(100, 10)), say("x").usage(Tokens(200, 20))]
    async with api(tmp_path, script) as a:
        usage = (await a.ask()).json["usage"]
        assert (usage["input_tokens"], usage["output_tokens"]) == (300, 30)
        assert usage["total_tokens"] == 330


# -- conversations ---------------------------------------------------------------------------


async def test_a_named_conversation(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        one = await a.ask("alpha", conversation="c", instructions="Be brief.")
        two = await a.ask("beta", conversation="c")
        assert [c for _, c in sent(a)] == ["alpha", "Yes.", "beta"]
        assert "Be brief." in prompt(a)
        headers = [x.headers["X-Hermes-Session-Id"] for x in (one, two)]
        assert headers[0] == headers[1]
        await a.ask("other", conversation="d")
        assert sent(a) == [("user", "other")]
        await a.ask("gamma", conversation={"id": "c"})
        assert [c for _, c in sent(a)] == ["alpha", "Yes.", "beta", "Yes.", "gamma"]


async def test_store_false_keeps_nothing_and_moves_no_name(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        await a.ask("alpha", conversation="c")
        for value in (False, "false"):
            hidden = await a.ask("beta", conversation="c", store=value)
            assert [c for _, c in sent(a)] == ["alpha", "Yes.", "beta"]
            assert (await a.get(f"{PATH}/{hidden.json['id']}")).status == 404
        streamed = await a.ask("beta", conversation="c", store=False, stream=True)
        identity = streamed.events[0][1]["response"]["id"]
        assert (await a.get(f"{PATH}/{identity}")).status == 404
        await a.ask("gamma", conversation="c")
        assert [c for _, c in sent(a)] == ["alpha", "Yes.", "gamma"]
        alone = await a.ask("secret words", store=False)
        session = alone.headers["X-Hermes-Session-Id"]
        assert (await a.get(f"/api/sessions/{session}")).status == 404
        assert (await a.get("/api/sessions/search?q=secret")).json["data"] == []
        kept = await a.ask("kept", store="true")
        assert (await a.get(f"{PATH}/{kept.json['id']}")).status == 200


async def test_turns_of_one_name_come_one_after_the_other(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        await asyncio.gather(*(a.ask(f"n{n}", conversation="c") for n in range(6)))
        await a.ask("last", conversation="c")
        assert len(sent(a)) == 13


# -- the store -------------------------------------------------------------------------------


async def test_get_and_delete(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        made = (await a.ask("alpha", conversation="c")).json
        assert (await a.get(f"{PATH}/{made['id']}")).json == made
        for method in ("GET", "DELETE"):
            assert (await a.call(method, f"{PATH}/{made['id']}", key="wrong")).status == 401
        gone = await a.call("DELETE", f"{PATH}/{made['id']}")
        assert gone.json == {"id": made["id"], "object": "response", "deleted": True}
        assert (await a.get(f"{PATH}/{made['id']}")).status == 404
        assert (await a.ask(previous_response_id=made["id"])).status == 404
        await a.ask("beta", conversation="c")  # the name is forgotten too
        assert sent(a) == [("user", "beta")]


async def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes."), settings={"max_stored_responses": 3}) as a:
        first, second, third = [
            (await a.ask(f"n{n}", conversation=f"c{n}")).json["id"] for n in "012"
        ]
        assert (await a.get(f"{PATH}/{first}")).status == 200  # reading refreshes
        await a.ask("n3")
        assert (await a.get(f"{PATH}/{second}")).status == 404
        assert (await a.get(f"{PATH}/{first}")).status == 200
        await a.ask("more", previous_response_id=third)  # so does going on
        await a.ask("n4")
        assert (await a.get(f"{PATH}/{third}")).status == 200
        await a.ask("again", conversation="c1")  # its last response was evicted
        assert sent(a) == [("user", "again")]


async def test_a_hundred_are_kept_by_default(tmp_path: Path) -> None:
    async with api(tmp_path) as a:
        assert a.server.settings.max_stored_responses == 100


async def test_responses_and_names_survive_a_restart(tmp_path: Path) -> None:
    async with Provider(then=say("Yes.")) as provider:
        async with api(tmp_path, provider) as a:
            made = (await a.ask("alpha", conversation="c", instructions="Be brief.")).json
        async with api(tmp_path, provider) as b:
            assert (await b.get(f"{PATH}/{made['id']}")).json == made
            await b.ask("beta", previous_response_id=made["id"])
            assert [c for _, c in sent(b)] == ["alpha", "Yes.", "beta"]
            await b.ask("gamma", conversation="c")
            assert [c for _, c in sent(b)] == ["alpha", "Yes.", "gamma"]
            assert "Be brief." in prompt(b)


async def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with api(tmp_path, then=say("Yes.")) as a:
            await a.ask("alpha")
            await a.chat()
            files = [p for p in a.home.path.rglob("*") if p.is_file() and p.name != "config.yaml"]
            assert any(p.name.endswith("-wal") for p in files)
            for path in files:
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    finally:
        os.umask(before)


# -- truncation ------------------------------------------------------------------------------


async def test_truncation(tmp_path: Path) -> None:
    items = []
    for n in range(70):
        items += [{"role": "user", "content": f"q{n}."}, {"role": "assistant", "content": f"a{n}."}]
    items.append({"role": "user", "content": "now"})
    async with api(tmp_path, then=say("Yes.")) as a:
        whole = (await a.ask(items)).json
        assert len(sent(a)) == 141
        await a.ask(items, truncation="disabled")
        assert len(sent(a)) == 141
        cut = (await a.ask(items, truncation="auto")).json
        assert len(sent(a)) == 101 and sent(a)[0] == ("user", "q20.")
        await a.ask("more", previous_response_id=whole["id"], truncation="auto")
        assert len(sent(a)) == 101
        await a.ask("more", previous_response_id=cut["id"])  # all of it is still there
        assert len(sent(a)) == 143


# -- how it ends -----------------------------------------------------------------------------


async def test_truncated(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Half a sen").stop("length")) as a:
        answer = await a.ask()
        assert answer.status == 200 and answer.json["status"] == "incomplete"
        assert answer.json["incomplete_details"] == {"reason": "max_output_tokens"}
        assert text_of(answer.json).startswith("Half a sen")
        assert answer.headers["X-Hermes-Completed"] == "false"
        assert (await a.get(f"{PATH}/{answer.json['id']}")).json["status"] == "incomplete"
        streamed = await a.ask(stream=True)
        name, last = streamed.events[-1]
        assert name == "response.incomplete"
        assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_cut_off_with_text(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Half", " of", " it").cut(after="text", n=2)) as a:
        answer = await a.ask()
        assert answer.status == 200 and answer.json["status"] == "incomplete"
        assert answer.json["incomplete_details"]["reason"] in ("error", "max_output_tokens")


@pytest.mark.parametrize("reply", [status(404, f"no model for {KEY}"), nothing()], ids=["404", "-"])
async def test_failed_without_text(tmp_path: Path, reply) -> None:
    async with api(tmp_path, then=reply) as a:
        answer = await a.ask("alpha", conversation="c")
        assert answer.status == 502 and answer.error["code"] == "agent_incomplete"
        assert answer.error["hermes"]["completed"] is False
        assert answer.headers["X-Hermes-Completed"] == "false"
        assert KEY.encode() not in answer.body
        (kept,) = await a.server.runtime.store.objects.list_all("response")
        stored = (await a.get(f"{PATH}/{kept.id}")).json
        assert stored["status"] == "failed" and stored["error"]["message"]
        assert KEY not in json.dumps(stored)
        streamed = await a.ask(stream=True)
        name, last = streamed.events[-1]
        assert name == "response.failed" and last["response"]["error"]["message"]
        assert KEY.encode() not in streamed.body


# -- the stream ------------------------------------------------------------------------------


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


async def test_what_the_events_hold(tmp_path: Path) -> None:
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


async def test_a_client_that_leaves_leaves_an_incomplete_response(tmp_path: Path) -> None:
    script = [say("Half", " of it").stall(after="text"), say("The rest.")]
    async with api(tmp_path, script) as a:
        body = {"input": "alpha", "stream": True, "conversation": "c"}
        async with a.open_stream("POST", PATH, body) as reading:
            got = await reading.until(b"Half")
        identity = json.loads(got.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
        await asyncio.wait_for(a.provider.requests[0].gone.wait(), 2)
        await idle(a, 2)
        stored = (await a.get(f"{PATH}/{identity}")).json
        assert stored["status"] == "incomplete" and text_of(stored) == "Half"
        assert stored["incomplete_details"]["reason"] == "error"
        for way in ({"previous_response_id": identity}, {"conversation": "c"}):
            a.provider.then = say("The rest.")
            assert (await a.ask("go on", **way)).json["status"] == "completed"
            contents = [c for _, c in sent(a)]
            assert contents[0] == "alpha" and "Half" in contents[1] and contents[-1] == "go on"


async def test_a_client_that_leaves_while_a_tool_is_silent(tmp_path: Path) -> None:
    work = call(("c1", "terminal", {"command": "touch begun; sleep 60"}))
    async with api(tmp_path, [say("Wait. ") + work, say("On.")]) as a:
        async with a.open_stream("POST", PATH, {"input": "alpha", "stream": True}) as reading:
            got = await reading.until(b"function_call_arguments.done")
            async with asyncio.timeout(20):
                while not (a.home.work / "begun").exists():
                    await asyncio.sleep(0.02)
        await idle(a, 2)
        identity = json.loads(got.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
        stored = (await a.get(f"{PATH}/{identity}")).json
        assert stored["status"] == "incomplete" and text_of(stored).startswith("Wait.")
        assert (await a.ask("go on", previous_response_id=identity)).status == 200
        roles = [role for role, _ in sent(a)]
        assert roles == ["user", "assistant", "tool", "user"]  # the call has its one result


async def test_leaving_again_and_again_loses_nothing(tmp_path: Path) -> None:
    """The response of each left stream is there, whatever the moment."""
    gate = Gate()
    gate.open()
    async with api(tmp_path, then=say(*["w "] * 30).slow(0.002)) as a:
        for n in range(12):
            async with a.open_stream("POST", PATH, {"input": f"n{n}", "stream": True}) as reading:
                got = await reading.until(b"response.in_progress")
                for _ in range(n * 2):
                    got += await reading.until(b"\n\n")
            await idle(a)
            identity = json.loads(got.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
            stored = (await a.get(f"{PATH}/{identity}")).json
            assert stored["status"] in ("incomplete", "completed"), n


async def test_an_end_that_cannot_be_written_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a response that is streamed, and of a run."""
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
        assert str(a.home.path).encode() not in last
        identity = json.loads(got.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
        stored = (await a.get(f"{PATH}/{identity}")).json
        assert stored["status"] == "incomplete" and text_of(stored) == "Hello there"
        told = (await a.get(f"/v1/runs/{run}")).json
        assert told["status"] == "failed" and "could not be stored" in told["error"]


async def test_what_is_deleted_while_it_is_told_stays_deleted(tmp_path: Path) -> None:
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
        assert sent(a) == [("user", "again")]
        assert not a.server.services.responses.in_progress


# -- idempotency -----------------------------------------------------------------------------


async def test_idempotency_keys_count_here_too(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        headers = {"Idempotency-Key": "k"}
        one, two = await asyncio.gather(*(a.ask(headers=headers) for _ in range(2)))
        assert one.body == two.body and len(a.provider.requests) == 1
        assert one.headers["X-Hermes-Session-Id"] == two.headers["X-Hermes-Session-Id"]

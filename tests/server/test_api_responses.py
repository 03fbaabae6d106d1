"""/v1/responses: requests, chains, conversations, the store, endings."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest

from tests.kit import Tokens, call, nothing, say, status
from tests.kit.api import Api, api
from tests.kit.home import KEY
from tests.kit.postgres import STORE
from tests.kit.server import Provider
from tests.server.exchanges import PNG_URL, sent_messages, sent_system_prompt

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
        assert sent_messages(shared) == [("user", "words")]

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
        assert sent_messages(shared) == [("user", "a"), ("assistant", "b"), ("user", "c")]

    async def test_an_image(self, shared: Api) -> None:
        parts = [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": PNG_URL, "detail": "high"},
        ]
        await shared.ask([{"role": "user", "content": parts}])
        content = sent_messages(shared)[-1][1]
        assert [p["type"] for p in content] == ["text", "image_url"]
        assert content[1]["image_url"] == {"url": PNG_URL, "detail": "high"}

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
    async def test_unknown_fields_are_accepted(self, shared: Api, extra: dict) -> None:
        assert (await shared.ask(**extra)).status == 200

    async def test_system_items_apply_to_one_turn(self, shared: Api) -> None:
        items = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "x"}]
        first = (await shared.ask(items)).json
        assert "Be kind." in sent_system_prompt(shared)
        await shared.ask("y", previous_response_id=first["id"])
        assert "Be kind." not in shared.provider.last.body.decode()


# -- instructions ----------------------------------------------------------------------------


class TestInstructions:
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    async def test_instructions_are_ephemeral_and_inherited(self, shared: Api) -> None:
        first = await shared.ask("a", instructions="Speak Latin.")
        assert "Speak Latin." in sent_system_prompt(shared)
        session = first.headers["X-Hermes-Session-Id"]
        kept = (await shared.get(f"/api/sessions/{session}/messages")).body
        assert b"Latin" not in kept
        second = await shared.ask("b", previous_response_id=first.json["id"])
        assert "Speak Latin." in sent_system_prompt(shared)
        await shared.ask("c", previous_response_id=second.json["id"])
        assert "Speak Latin." in sent_system_prompt(shared)

    async def test_instructions_of_the_request_replace_inherited_ones(self, shared: Api) -> None:
        first = (await shared.ask("a", instructions="Speak Latin.")).json
        second = (
            await shared.ask("b", previous_response_id=first["id"], instructions="Speak Greek.")
        ).json
        assert "Greek" in sent_system_prompt(shared) and "Latin" not in sent_system_prompt(shared)
        await shared.ask("c", previous_response_id=second["id"])
        assert "Greek" in sent_system_prompt(shared) and "Latin" not in sent_system_prompt(shared)

    async def test_empty_instructions_are_not_inherited(self, shared: Api) -> None:
        first = (await shared.ask("a", instructions="Speak Latin.")).json
        await shared.ask("b", previous_response_id=first["id"], instructions="")
        assert "Latin" not in shared.provider.last.body.decode()


# -- chains ----------------------------------------------------------------------------------


async def test_a_chain_contains_every_message_once(tmp_path: Path) -> None:
    script = [READ, say("first answer"), READ, say("second answer"), say("third answer")]
    async with api(tmp_path, script) as a:
        one = await a.ask("alpha")
        two = await a.ask("beta", previous_response_id=one.json["id"])
        three = await a.ask("gamma", previous_response_id=two.json["id"])
        sessions = {x.headers["X-Hermes-Session-Id"] for x in (one, two, three)}
        assert len(sessions) == 1
        roles = [role for role, _ in sent_messages(a)]
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
        assert sent_messages(a) == [("user", "root"), ("assistant", "Yes."), ("user", "right")]


async def test_a_response_in_a_named_session_continues_all_of_it(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        headers = {"X-Hermes-Session-Id": "mine"}
        await a.chat("alpha", headers=headers)
        made = await a.ask("beta", headers=headers)
        assert made.headers["X-Hermes-Session-Id"] == "mine"
        await a.ask("gamma", previous_response_id=made.json["id"])
        assert [c for _, c in sent_messages(a)] == ["alpha", "Yes.", "beta", "Yes.", "gamma"]


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
        assert [c for _, c in sent_messages(a)] == ["alpha", "Yes.", "beta"]
        assert "Be brief." in sent_system_prompt(a)
        headers = [x.headers["X-Hermes-Session-Id"] for x in (one, two)]
        assert headers[0] == headers[1]
        await a.ask("other", conversation="d")
        assert sent_messages(a) == [("user", "other")]
        await a.ask("gamma", conversation={"id": "c"})
        assert [c for _, c in sent_messages(a)] == ["alpha", "Yes.", "beta", "Yes.", "gamma"]


async def test_store_false_stores_nothing_and_moves_no_conversation(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        await a.ask("alpha", conversation="c")
        for value in (False, "false"):
            hidden = await a.ask("beta", conversation="c", store=value)
            assert [c for _, c in sent_messages(a)] == ["alpha", "Yes.", "beta"]
            assert (await a.get(f"{PATH}/{hidden.json['id']}")).status == 404
        streamed = await a.ask("beta", conversation="c", store=False, stream=True)
        identity = streamed.events[0][1]["response"]["id"]
        assert (await a.get(f"{PATH}/{identity}")).status == 404
        await a.ask("gamma", conversation="c")
        assert [c for _, c in sent_messages(a)] == ["alpha", "Yes.", "gamma"]
        alone = await a.ask("secret words", store=False)
        session = alone.headers["X-Hermes-Session-Id"]
        assert (await a.get(f"/api/sessions/{session}")).status == 404
        assert (await a.get("/api/sessions/search?q=secret")).json["data"] == []
        kept = await a.ask("kept", store="true")
        assert (await a.get(f"{PATH}/{kept.json['id']}")).status == 200


async def test_turns_of_one_conversation_run_one_after_the_other(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        await asyncio.gather(*(a.ask(f"n{n}", conversation="c") for n in range(6)))
        await a.ask("last", conversation="c")
        assert len(sent_messages(a)) == 13


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
        assert sent_messages(a) == [("user", "beta")]


async def test_the_least_recently_used_response_is_deleted_first(tmp_path: Path) -> None:
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
        assert sent_messages(a) == [("user", "again")]


async def test_a_hundred_responses_are_stored_by_default(tmp_path: Path) -> None:
    async with api(tmp_path) as a:
        assert a.server.settings.max_stored_responses == 100


async def test_responses_and_names_survive_a_restart(tmp_path: Path) -> None:
    async with Provider(then=say("Yes.")) as provider:
        async with api(tmp_path, provider) as a:
            made = (await a.ask("alpha", conversation="c", instructions="Be brief.")).json
        async with api(tmp_path, provider) as b:
            assert (await b.get(f"{PATH}/{made['id']}")).json == made
            await b.ask("beta", previous_response_id=made["id"])
            assert [c for _, c in sent_messages(b)] == ["alpha", "Yes.", "beta"]
            await b.ask("gamma", conversation="c")
            assert [c for _, c in sent_messages(b)] == ["alpha", "Yes.", "gamma"]
            assert "Be brief." in sent_system_prompt(b)


async def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with api(tmp_path, then=say("Yes.")) as a:
            await a.ask("alpha")
            await a.chat()
            files = [p for p in a.home.path.rglob("*") if p.is_file() and p.name != "config.yaml"]
            has_file = os.environ.get(STORE) != "postgres"
            assert any(p.name.endswith("-wal") for p in files) == has_file
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
        assert len(sent_messages(a)) == 141
        await a.ask(items, truncation="disabled")
        assert len(sent_messages(a)) == 141
        cut = (await a.ask(items, truncation="auto")).json
        assert len(sent_messages(a)) == 101 and sent_messages(a)[0] == ("user", "q20.")
        await a.ask("more", previous_response_id=whole["id"], truncation="auto")
        assert len(sent_messages(a)) == 101
        await a.ask("more", previous_response_id=cut["id"])  # all of it is still there
        assert len(sent_messages(a)) == 143


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


async def test_interrupted_with_text(tmp_path: Path) -> None:
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
        assert streamed.status == 502 and streamed.error["code"] == "agent_incomplete"
        assert KEY.encode() not in streamed.body


# -- idempotency -----------------------------------------------------------------------------


async def test_idempotency_keys_apply_to_responses(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        headers = {"Idempotency-Key": "k"}
        one, two = await asyncio.gather(*(a.ask(headers=headers) for _ in range(2)))
        assert one.body == two.body and len(a.provider.requests) == 1
        assert one.headers["X-Hermes-Session-Id"] == two.headers["X-Hermes-Session-Id"]

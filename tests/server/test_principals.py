"""Several keys: each has its own sessions, responses, runs, idempotency keys and limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hermes.core.errors import ConfigError
from tests.kit import Gate, Received, Reply, Tokens, call, say
from tests.kit.api import api, only_one_node
from tests.kit.bodies import messages
from tests.server.exchanges import sent_messages
from tests.server.key_owners import ANN, BOB, ENV, SETTINGS

ROOT = "root-key-0123456789abcdef0123"


async def test_the_same_conversation_of_two_keys_is_two_sessions(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes."), key=ROOT, settings=SETTINGS, env=ENV) as a:
        ids = {
            (await a.chat("same", key=key)).headers["X-Hermes-Session-Id"]
            for key in (ANN, BOB, ROOT)
        }
        assert len(ids) == 3
        for key in (ANN, BOB):
            listed = (await a.get("/api/sessions", key=key)).json["data"]
            assert len(listed) == 1
            found = (await a.get("/api/sessions/search?q=same", key=key)).json["data"]
            assert {hit["session"]["id"] for hit in found} == {listed[0]["id"]}


async def test_conversation_names_belong_to_a_key(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes."), key="", settings=SETTINGS, env=ENV) as a:
        await a.ask("of ann", conversation="c", key=ANN)
        await a.ask("of bob", conversation="c", key=BOB)
        assert sent_messages(a) == [("user", "of bob")]
        headers = {"X-Hermes-Session-Id": "shared-name"}
        assert (await a.chat("of ann", key=ANN, headers=headers)).status == 200
        assert (await a.chat("of bob", key=BOB, headers=headers)).status == 404
        assert (await a.ask("of bob", key=BOB, headers=headers)).status == 404
        again = {"input": "x", "session_id": "shared-name"}
        assert (await a.post("/v1/runs", again, key=BOB)).status == 404
        assert len(a.provider.requests) == 3


async def test_saved_outputs_belong_to_a_conversation_of_a_key(tmp_path: Path) -> None:
    """Long outputs are saved to files, which only their own conversation can read."""

    def obey(request: Received) -> Reply:
        last = messages(request)[-1]
        if last.role == "tool":
            return say(last.results[0][1])
        return _make_call(last.text)

    async with api(tmp_path, then=obey, key="", settings=SETTINGS, env=ENV) as a:
        here = {"X-Hermes-Session-Id": "here"}
        await a.chat("terminal seq 1 60000", key=ANN, headers=here)
        (saved,) = (a.home.path / "outputs").rglob("*.txt")
        for order in (f"read_file {saved}", f"search_files {saved.parent}"):
            for key, headers in ((BOB, {}), (BOB, {"X-Hermes-Session-Id": "other"}), (ANN, {})):
                answer = await a.chat(order, key=key, headers=headers)
                assert (
                    "belongs to the agent itself" in answer.json["choices"][0]["message"]["content"]
                )
            answer = await a.chat(order, key=ANN, headers=here)
            assert "59999" in answer.json["choices"][0]["message"]["content"]
        for key, headers in ((BOB, {}), (BOB, {"X-Hermes-Session-Id": "third"}), (ANN, {})):
            order = f"terminal cat {saved} || grep -rh 59999 {saved.parents[1]}; ls {saved.parent}"
            answer = await a.chat(order, key=key, headers=headers)
            said = answer.json["choices"][0]["message"]["content"]
            assert "59999" not in said and saved.name not in said.replace(str(saved), "")


def _make_call(order: str) -> Reply:
    name, _, about = order.partition(" ")
    arguments = {
        "terminal": {"command": about},
        "read_file": {"path": about, "offset": 59_900},
        "search_files": {"path": about, "pattern": "59999"},
    }
    return call(("c1", name, arguments[name]))


@only_one_node
async def test_background_commands_belong_to_a_conversation(tmp_path: Path, mark: str) -> None:
    start = call(("c1", "terminal", {"command": f"sleep {mark}", "background": True}))
    listed = call(("c2", "process", {"action": "list"}))
    begin = {"role": "user", "content": "Begin"}

    def answer(request: Received) -> Reply:
        last = request.json["messages"][-1]
        if last["role"] == "tool":
            return say("Begun." if last["tool_call_id"] == "c1" else last["content"])
        return start if last["content"] == "Begin" else listed

    async with api(tmp_path, then=answer) as a:
        await a.chat("Begin")

        async def list_commands(*said: dict[str, str]) -> str:
            messages = [*said, {"role": "user", "content": "List"}]
            found = await a.post("/v1/chat/completions", {"messages": messages})
            return str(found.json["choices"][0]["message"]["content"])

        assert mark not in await list_commands()
        assert mark not in await list_commands(begin, {"role": "assistant", "content": "Other."})
        assert mark in await list_commands(begin, {"role": "assistant", "content": "Begun."})


async def test_idempotency_keys_belong_to_a_key(tmp_path: Path) -> None:
    async with api(tmp_path, [say("One."), say("Two.")], key="", settings=SETTINGS, env=ENV) as a:
        headers = {"Idempotency-Key": "k"}
        one, two = [await a.chat(key=key, headers=headers) for key in (ANN, BOB)]
        assert one.json["choices"] != two.json["choices"]


async def test_stored_responses_are_limited_per_key(tmp_path: Path) -> None:
    settings = {**SETTINGS, "max_stored_responses": 2}
    async with api(tmp_path, then=say("Yes."), key="", settings=settings, env=ENV) as a:
        kept = (await a.ask(key=ANN)).json["id"]
        for _ in range(4):
            await a.ask(key=BOB)
        assert (await a.get(f"/v1/responses/{kept}", key=ANN)).status == 200


async def test_A26_rate_limits_apply_per_key(tmp_path: Path) -> None:
    named = [{**entry, "requests_per_minute": 60} for entry in SETTINGS["keys"]]
    async with api(tmp_path, key="", settings={"keys": named}, env=ENV) as a:
        answers = [await a.get("/v1/models", key=ANN) for _ in range(60)]
        assert {x.status for x in answers[:20]} == {200}  # a third of a minute's at once
        limited = [x for x in answers if x.status == 429]
        assert limited
        assert int(limited[0].headers["Retry-After"]) >= 1
        assert limited[0].error["type"] == "rate_limit_error"
        assert (await a.get("/v1/models", key=BOB)).status == 200
        assert (await a.get("/health")).status == 200


async def test_A27_concurrent_runs_are_limited_per_key(tmp_path: Path) -> None:
    gate = Gate()
    named = [{**entry, "concurrent_runs": 1} for entry in SETTINGS["keys"]]
    settings = {"keys": named, "concurrent_runs": 2}
    async with api(
        tmp_path, then=say("Yes.").hold(gate, n=0), key="", settings=settings, env=ENV
    ) as a:
        first = asyncio.create_task(a.chat(key=ANN))
        await gate.reached()
        for refused in (
            await a.chat(key=ANN),
            await a.chat(key=ANN, stream=True),
            await a.ask(key=ANN),
            await a.post("/v1/runs", {"input": "x"}, key=ANN),
            await a.chat(key=ANN, headers={"Idempotency-Key": "k"}),
        ):
            assert refused.status == 429 and int(refused.headers["Retry-After"]) > 0
            assert refused.error["code"] == "too_many_runs"
        second = asyncio.create_task(a.chat(key=BOB))
        while a.server.turns.slots.active_turns < 2:
            await asyncio.sleep(0.01)
        gate.open()
        assert (await first).status == (await second).status == 200
        # a refusal under an idempotency key is not the answer for good
        assert (await a.chat(key=ANN, headers={"Idempotency-Key": "k"})).status == 200


async def test_daily_budgets_apply_per_key(tmp_path: Path) -> None:
    named = [{**entry, "daily_usd": 0.05} for entry in SETTINGS["keys"]]
    price = {"custom": {"models": {"kit-model": {"price": {"input": 10, "output": 10}}}}}
    costly = say("Yes.").usage(Tokens(6000, 10))
    async with api(
        tmp_path,
        then=costly,
        key="",
        settings={"keys": named},
        env=ENV,
        config={"providers": price},
    ) as a:
        assert (await a.chat("one", key=ANN)).status == 200
        refused = await a.chat("two", key=ANN)
        assert refused.status == 429 and "udget" in refused.error["message"]
        assert refused.error["code"] == "insufficient_quota"
        assert refused.headers["X-Should-Retry"] == "false"
        assert len(a.provider.requests) == 1
        assert (await a.chat("two", key=BOB)).status == 200
        rows = await a.server.runtime.store.ledger.sum_calls("user", 0)
        assert {row.key for row in rows} == {"ann", "bob"}


@pytest.mark.parametrize(
    ("keys", "env", "said"),
    [
        ([{"name": "a", "key_env": "A_KEY"}], {}, "A_KEY"),
        (
            [{"name": "a", "key_env": "A_KEY"}, {"name": "a", "key_env": "B_KEY"}],
            {"A_KEY": ANN, "B_KEY": BOB},
            "twice",
        ),
        (
            [{"name": "a", "key_env": "A_KEY"}, {"name": "b", "key_env": "B_KEY"}],
            {"A_KEY": ANN, "B_KEY": ANN},
            "twice",
        ),
    ],
)
async def test_invalid_key_settings_are_refused(
    tmp_path: Path, keys: list, env: dict, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        async with api(tmp_path, key="", settings={"keys": keys}, env=env):
            pass
    assert ANN not in str(refused.value)

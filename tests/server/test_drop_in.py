"""What real clients rely on: limits, parameters, usage, keep-alives, more routes, side requests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.kit import Gate, Tokens, call, say, think
from tests.kit.api import Answer, api
from tests.server.exchanges import sent_system_prompt

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
STRONG_KEY = "q8Zr2vT6mXw1Lk9Yc4Hs7Bd3Nf5Gj0Pa"
MESSAGE = {"messages": HI, "max_tokens": 99}
REFUSED: list[dict[str, Any]] = [
    {"n": 2},
    {"logprobs": True},
    {"top_logprobs": 2},
    {"background": True},
]
LONG = say("A long answer").stop("length")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_clients_limit_ends_the_answer(tmp_path: Path, stream: bool) -> None:
    async with api(tmp_path, then=LONG) as a:
        chat = await a.chat(max_tokens=5, stream=stream)
        assert len(a.provider.requests) == 1 and a.provider.last.json["max_tokens"] == 5
        last = chat.events[-2][1] if stream else chat.json
        assert last["choices"][0]["finish_reason"] == "length"
        response = await a.ask(max_output_tokens=5, stream=stream)
        last = response.events[-1][1]["response"] if stream else response.json
        assert last["incomplete_details"] == {"reason": "max_output_tokens"}
        message = await a.post("/v1/messages", {"messages": HI, "max_tokens": 5, "stream": stream})
        last = message.events[-2][1]["delta"] if stream else message.json
        assert last["stop_reason"] == "max_tokens"
        assert len(a.provider.requests) == 3


async def test_a_limit_that_leaves_no_text_is_no_failure(tmp_path: Path) -> None:
    async with api(tmp_path, then=think("Hm").stop("length")) as a:
        answer = await a.chat(max_tokens=1)
        assert answer.status == 200
        assert answer.json["choices"][0]["finish_reason"] == "length"


async def test_what_cannot_be_done_is_refused(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        for answer in (
            *[await a.chat(**body) for body in REFUSED],
            *[await a.ask(**body) for body in REFUSED],
            *[await a.post("/v1/messages", {**MESSAGE, **body}) for body in REFUSED],
            await a.ask(include=["message.output_text.logprobs"]),
        ):
            assert answer.status == 400 and answer.error["code"] == "unsupported_parameter"
        assert not a.provider.requests
        assert (await a.chat(n=1, logprobs=False)).status == 200


async def test_settings_are_passed_on(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        wanted = {"seed": 7, "top_p": 0.5, "stop": ["END"], "temperature": 0.3}
        await a.chat(**wanted, reasoning_effort="max")
        sent = a.provider.last.json
        assert {name: sent[name] for name in wanted} == wanted
        assert sent["reasoning_effort"] in ("high", "xhigh")
        await a.ask(**wanted)
        assert {name: a.provider.last.json[name] for name in wanted} == wanted
        await a.post("/v1/messages", {**MESSAGE, **wanted, "stop_sequences": ["END"]})
        assert {name: a.provider.last.json[name] for name in wanted} == wanted
        answer = await a.chat(reasoning_effort="enormous")
        assert answer.status == 400 and answer.error["param"] == "reasoning_effort"


async def test_what_had_no_effect_is_listed(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        body = {"frequency_penalty": 1, "logit_bias": {}, "user": None, "ev\nil": 1}
        for stream in (False, True):
            answer = await a.chat(stream=stream, **body)
            assert answer.headers["X-Hermes-Ignored"] == "frequency_penalty, logit_bias"


async def test_usage_stands_in_one_chunk(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.").usage(Tokens(10, 5))) as a:
        for options in ({}, {"stream_options": {"include_usage": True}}):
            answer = await a.chat(stream=True, **options)
            chunks = [data for _, data in answer.events if data != "[DONE]"]
            counted = [c for c in chunks if c.get("usage")]
            assert len(counted) == 1 and counted[0]["usage"]["total_tokens"] == 15
            assert bool(counted[0]["choices"]) == (not options)


@pytest.mark.parametrize(
    ("path", "body", "mark"),
    [
        (CHAT, {"messages": HI}, b": keepalive\n\n"),
        ("/v1/responses", {"input": "hi"}, b"event: keepalive\n"),
        ("/v1/messages", {"messages": HI, "max_tokens": 9}, b"event: ping\n"),
    ],
)
async def test_silence_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], mark: bytes
) -> None:
    from hermes.server.turns import sse

    monkeypatch.setattr(sse, "KEEPALIVE_SECONDS", 0.1)
    gate = Gate()
    async with (
        api(tmp_path, [say("One ", "two.").hold(gate, after="text")]) as a,
        a.open_stream("POST", path, {**body, "stream": True}) as reading,
    ):
        await reading.until(mark)
        gate.open()
        assert b"two." in await reading.rest()


async def test_sequence_numbers_count_up_through_keepalives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes.server.turns import sse

    monkeypatch.setattr(sse, "KEEPALIVE_SECONDS", 0.1)
    gate = Gate()
    async with api(tmp_path, [say("One ", "two.").hold(gate, after="text")]) as a:
        asking = asyncio.create_task(a.ask(stream=True))
        await gate.reached()
        await asyncio.to_thread(lambda: None)
        gate.open()
        numbers = [data["sequence_number"] for _, data in (await asking).events]
        assert numbers == list(range(len(numbers)))


async def test_all_who_read_a_stream_under_one_key_see_numbers_that_count_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes.server.turns import sse

    monkeypatch.setattr(sse, "KEEPALIVE_SECONDS", 0.1)
    gate, path, mark = Gate(), "/v1/responses", b"event: keepalive\n"
    body, key = {"input": "hi", "stream": True}, {"Idempotency-Key": "k"}
    async with (
        api(tmp_path, [say("One ", "two.").hold(gate, after="text")]) as a,
        a.open_stream("POST", path, body, **key) as first,
        a.open_stream("POST", path, body, **key) as second,
    ):
        begun = [await reading.until(mark) for reading in (first, second)]
        gate.open()
        for reading, start in zip((first, second), begun, strict=True):
            events = Answer(200, {}, start + await reading.rest()).events
            numbers = [data["sequence_number"] for _, data in events]
            assert numbers == sorted(set(numbers)) and events[-1][0] == "response.completed"


# -- messages ----------------------------------------------------------------------------------


async def test_system_messages_join_the_instructions(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        said = [{"role": "system", "content": "Be brief."}, *HI]
        body = {"messages": said, "max_tokens": 9, "system": [{"type": "text", "text": "Be kind."}]}
        assert (await a.post("/v1/messages", body)).status == 200
        prompt = sent_system_prompt(a)
        assert "Be kind." in prompt and "Be brief." in prompt


async def test_threads_are_refused_in_the_words_clients_know(tmp_path: Path) -> None:
    async with api(tmp_path) as a:
        body = {"messages": HI, "max_tokens": 9, "thread": {"id": "x"}}
        answer = await a.post("/v1/messages", body)
        assert answer.status == 400 and answer.json["type"] == "error"
        assert answer.error["details"] == {"error_code": "thread_unsupported_request"}


async def test_tokens_are_counted_without_a_model(tmp_path: Path) -> None:
    async with api(tmp_path) as a:
        short = await a.post("/v1/messages/count_tokens", {"messages": HI})
        longer = [{"role": "user", "content": "many words " * 500}]
        long = await a.post("/v1/messages/count_tokens", {"messages": longer})
        assert 0 < short.json["input_tokens"] < 100 < long.json["input_tokens"]
        counted = await a.post("/v1/responses/input_tokens", {"input": "hi"})
        assert counted.json["object"] == "response.input_tokens"
        assert counted.json["input_tokens"] > 0
        assert not a.provider.requests


# -- more routes -------------------------------------------------------------------------------


async def test_the_root_says_what_this_is(tmp_path: Path) -> None:
    async with api(tmp_path) as a:
        root = await a.get("/", key="")
        assert root.status == 200 and root.json["name"] == "Hermes"
        assert root.json["docs"] == "/docs"
        assert (await a.get("/v1/models/hermes-agent")).json["id"] == "hermes-agent"
        assert (await a.get("/v1/models/other")).status == 404


async def test_every_response_has_a_request_id(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        answers = [
            await a.get("/health"),
            await a.get("/v1/models"),
            await a.get("/nowhere"),
            await a.get("/v1/models", key="wrong"),
            await a.chat(),
            await a.chat(stream=True),
        ]
        ids = {x.headers["X-Request-Id"] for x in answers}
        assert len(ids) == len(answers)


async def test_the_input_of_a_response(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        first = (await a.ask("one")).json["id"]
        items = [{"role": "user", "content": "two"}, {"role": "user", "content": "three"}]
        second = (await a.ask(items, previous_response_id=first)).json["id"]
        listed = (await a.get(f"/v1/responses/{second}/input_items")).json
        assert [i["content"][0]["text"] for i in listed["data"]] == ["three", "two"]
        assert listed["has_more"] is False and listed["first_id"] == listed["data"][0]["id"]
        ordered = (await a.get(f"/v1/responses/{second}/input_items?order=asc")).json
        assert [i["id"] for i in ordered["data"]] == [i["id"] for i in listed["data"]][::-1]
        page = (await a.get(f"/v1/responses/{second}/input_items?limit=1")).json
        assert page["data"] == listed["data"][:1] and page["has_more"] is True
        rest = f"/v1/responses/{second}/input_items?limit=1&after={page['last_id']}"
        page = (await a.get(rest)).json
        assert page["data"] == listed["data"][1:] and page["has_more"] is False
        for wrong in ("limit=0", "limit=-1", "limit=many", "after=nothing"):
            assert (await a.get(f"/v1/responses/{second}/input_items?{wrong}")).status == 400


async def test_a_stream_is_replayed_by_its_id(tmp_path: Path) -> None:
    script = [call(("c1", "todo", {})), say("One ", "two.")]
    async with api(tmp_path, script) as a:
        streamed = await a.ask(stream=True)
        response = streamed.events[0][1]["response"]["id"]
        again = await a.get(f"/v1/responses/{response}?stream=true")
        assert again.body == streamed.body
        tail = await a.get(f"/v1/responses/{response}?stream=true&starting_after=3")
        assert tail.events == streamed.events[4:]


async def test_a_response_that_was_not_streamed_is_replayed_too(tmp_path: Path) -> None:
    script = [call(("c1", "todo", {})), say("One two.")]
    async with api(tmp_path, script) as a:
        response = (await a.ask()).json
        path = f"/v1/responses/{response['id']}?stream=true"
        events = (await a.get(path)).events
        assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
        names = [name for name, _ in events]
        assert names[:2] == ["response.created", "response.in_progress"]
        assert events[-1][1] == {
            "type": "response.completed",
            "response": response,
            "sequence_number": len(events) - 1,
        }
        done = [data["item"] for name, data in events if name == "response.output_item.done"]
        assert done == response["output"]
        shown = [data["delta"] for name, data in events if name == "response.output_text.delta"]
        assert "".join(shown) == "One two."
        assert (await a.get(f"{path}&starting_after=3")).events == events[4:]


async def test_the_replay_of_an_incomplete_response_begins_without_its_end(tmp_path: Path) -> None:
    async with api(tmp_path, then=LONG) as a:
        response = (await a.ask(max_output_tokens=5)).json
        events = (await a.get(f"/v1/responses/{response['id']}?stream=true")).events
        assert events[-1][0] == "response.incomplete" and events[-1][1]["response"] == response
        for _, data in events[:2]:
            assert data["response"]["status"] == "in_progress"
            assert data["response"]["incomplete_details"] is None


async def test_a_response_is_cancelled_and_followed(tmp_path: Path) -> None:
    stalled = say("Half ", "done").stall(after="text")
    async with api(tmp_path, [stalled]) as a:
        body = {"input": "hi", "stream": True}
        async with a.open_stream("POST", "/v1/responses", body) as reading:
            head = await reading.until(b"Half")
            response = head.decode().partition('"id":"')[2].partition('"')[0]
            path = f"/v1/responses/{response}"
            following = asyncio.create_task(a.get(f"{path}?stream=true"))
            cancelled = await a.post(f"{path}/cancel")
            assert cancelled.json["status"] == "cancelled"
            rest = await reading.rest()
        assert b"response.incomplete" in rest
        assert (await following).body == head + rest
        stored = (await a.get(path)).json
        assert stored["status"] == "cancelled" and "Half" in str(stored["output"])


@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_items_when_asked_for(tmp_path: Path, stream: bool) -> None:
    async with api(tmp_path, then=think("Hmm, well.", size=5) + say("Yes.")) as a:
        plain = await a.ask(stream=stream)
        asked = await a.ask(stream=stream, reasoning={"summary": "auto"})
        found = []
        for answer in (plain, asked):
            body = answer.events[-1][1]["response"] if stream else answer.json
            found.append([item["type"] for item in body["output"]])
        assert found == [["message"], ["reasoning", "message"]]
        assert body["output"][0]["summary"] == [{"type": "summary_text", "text": "Hmm, well."}]


# -- side requests -----------------------------------------------------------------------------

TITLE = "### Task:\nGenerate a concise, 3-5 word title.\n<chat_history></chat_history>"
SIDE = {
    "Open WebUI": [{"role": "user", "content": TITLE}],
    "opencode": [
        {"role": "system", "content": "You are a title generator. You output ONLY a thread title."},
        {"role": "user", "content": "fix the tests"},
    ],
    "opencode's summary": [
        {"role": "system", "content": "You are a context summarization agent."},
        {"role": "user", "content": "Here is the conversation so far: …"},
    ],
    "Claude Code's summary": [
        *HI,
        {
            "role": "user",
            "content": "Do NOT call any tools.\n\nYour task is to create a detailed summary of the "
            "conversation so far, paying close attention to what was asked.",
        },
    ],
    "codex's summary": [
        *HI,
        {"role": "user", "content": "You are performing a CONTEXT CHECKPOINT COMPACTION. Create …"},
    ],
}


@pytest.mark.parametrize("client", SIDE)
async def test_side_requests_get_no_tools(tmp_path: Path, client: str) -> None:
    async with api(tmp_path, then=say("A title")) as a:
        function = {"name": "read", "parameters": {"type": "object", "properties": {}}}
        for execution in ("server", "both"):
            more = {"model": "x", "tool_execution": execution}
            for path, body in {
                CHAT: {"messages": SIDE[client], "tools": [{"type": "function", **function}]},
                "/v1/responses": {
                    "input": SIDE[client],
                    "tools": [{"type": "function", **function}],
                },
                "/v1/messages": {"messages": SIDE[client], "max_tokens": 99},
            }.items():
                assert (await a.post(path, {**body, **more})).status == 200, path
                assert not a.provider.last.json.get("tools"), path
        ordinary = [{"role": "user", "content": "Generate a title for my book and save it."}]
        await a.post(CHAT, {"messages": ordinary})
        assert a.provider.last.json["tools"]


# -- hosts -------------------------------------------------------------------------------------


async def test_bound_to_all_addresses_any_literal_address_is_known(tmp_path: Path) -> None:
    async with api(tmp_path, settings={"host": "0.0.0.0"}, key=STRONG_KEY) as a:
        a.spread([a.url.replace("0.0.0.0", "127.0.0.1")])
        for host, status in (
            ("192.168.7.7:8642", 200),
            ("[fe80::1]:8642", 200),
            ("10.1.2.3", 200),
            ("evil.example", 421),
        ):
            answer = await a.get("/v1/models", headers={"Host": host})
            assert answer.status == status, host
            if status == 421:
                assert "allowed_hosts" in answer.error["message"]

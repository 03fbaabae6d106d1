"""Failures as clients see them: the status, the message in a stream, and what a repetition gets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.kit import Gate, Reply, call, say, status
from tests.kit.api import Answer, Api, api
from tests.kit.bodies import system
from tests.server.exchanges import wait_until_idle

ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": [{"role": "user", "content": "hi"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 999},
}
TOUCH = call(("c1", "terminal", {"command": "echo x >> effects"}))
STATUSES = {
    "wait": (status(429, "slow down").headers(Retry_After="30"), 429, "rate_limit_exceeded"),
    "too long": (status(400, "maximum context length is 9 tokens"), 400, "context_length_exceeded"),
    "no credit": (status(402, "no credit left"), 429, "insufficient_quota"),
    "key": (status(401, "bad key"), 502, "agent_incomplete"),
    "model": (status(404, "The model x does not exist"), 502, "agent_incomplete"),
}
FINAL = {"too long", "no credit", "key", "model"}


async def post(a: Api, path: str, *, stream: bool, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await a.post(path, {**ROUTES[path], "stream": stream}, headers=named)


def effects(a: Api) -> int:
    made = a.home.work / "effects"
    return len(made.read_text().split()) if made.exists() else 0


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("case", STATUSES)
async def test_a_failure_before_any_text_has_its_status(
    tmp_path: Path, path: str, case: str
) -> None:
    reply, expected, code = STATUSES[case]
    async with api(tmp_path, then=reply, config={"compression": {"enabled": False}}) as a:
        for stream in (False, True):
            answer = await post(a, path, stream=stream)
            assert answer.status == expected
            assert answer.error["code"] == code and answer.error["message"]
            assert answer.headers.get("X-Should-Retry") == ("false" if case in FINAL else None)
            assert answer.headers.get("Retry-After") == ("30" if case == "wait" else None)
            if path == "/v1/messages":
                assert answer.json["type"] == "error"
                assert answer.json["request_id"] == answer.headers["X-Request-Id"]


async def test_the_head_waits_for_the_first_thing_to_say(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [say("One.").hold(gate, n=0)]) as a:
        asking = asyncio.create_task(a.chat(stream=True))
        await gate.reached()
        assert not asking.done()
        gate.open()
        assert b"One." in (await asking).body


@pytest.mark.parametrize("path", ROUTES)
async def test_the_first_text_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    from hermes.server.turns import turn_runner

    monkeypatch.setattr(turn_runner, "HEAD_SECONDS", 3600.0)
    gate = Gate()
    async with (
        api(tmp_path, [say("One ", "two.").hold(gate, after="text")]) as a,
        a.open_stream("POST", path, {**ROUTES[path], "stream": True}) as reading,
    ):
        await reading.until(b"One")
        gate.open()
        assert b"two." in await reading.rest()


async def test_the_head_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes.server.turns import turn_runner

    assert turn_runner.HEAD_SECONDS == 10.0
    monkeypatch.setattr(turn_runner, "HEAD_SECONDS", 0.05)
    gate = Gate()
    async with api(tmp_path, [say("One.").hold(gate, n=0)]) as a:
        body = {**ROUTES["/v1/chat/completions"], "stream": True}
        async with a.open_stream("POST", "/v1/chat/completions", body) as reading:
            assert reading.status == 200
            gate.open()
            assert b"One." in await reading.rest()


CUT = say("Half", " of", " it").cut(after="text", n=2)


async def test_a_failure_after_text_in_a_chat(tmp_path: Path) -> None:
    async with api(tmp_path, then=CUT) as a:
        answer = await post(a, "/v1/chat/completions", stream=True)
        *_, (_, failure), (_, last), (_, done) = answer.events
        assert done == "[DONE]"
        assert {"message", "type", "code", "hermes"} <= failure["error"].keys()
        assert last["choices"][0]["finish_reason"] == "error"
        assert last["hermes"]["error"] == failure["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("case", sorted(FINAL))
async def test_a_stream_says_by_a_type_that_repeating_is_pointless(
    tmp_path: Path, path: str, case: str
) -> None:
    """No header can follow. Programs read `server_error` and `rate_limit_error` as: try again."""
    begun, (reply, _, code) = say("Well. ") + call(("c1", "todo", {})), STATUSES[case]
    async with api(tmp_path, [begun], then=reply) as a:
        answer = await post(a, path, stream=True)
        error = next(data["error"] for _, data in answer.events if "error" in data)
        assert answer.status == 200 and error["code"] == code
        assert error["type"] == "invalid_request_error"


async def test_a_failure_after_text_in_a_response(tmp_path: Path) -> None:
    async with api(tmp_path, then=CUT) as a:
        name, last = (await post(a, "/v1/responses", stream=True)).events[-1]
        assert name == "response.failed"
        assert last["response"]["error"]["code"] == "server_error"
        assert last["response"]["error"]["message"]
        assert "Half" in str(last["response"]["output"])


async def test_a_failure_after_text_in_messages(tmp_path: Path) -> None:
    async with api(tmp_path, then=CUT) as a:
        answer = await post(a, "/v1/messages", stream=True)
        name, last = answer.events[-1]
        assert name == "error" and last["error"]["type"] == "api_error"
        assert last["request_id"] == answer.headers["X-Request-Id"]
        assert b"end_turn" not in answer.body


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ROUTES)
async def test_a_failure_after_an_effect_is_not_repeated(
    tmp_path: Path, path: str, stream: bool
) -> None:
    async with api(tmp_path, [TOUCH], then=status(404, "no such model")) as a:
        first = await post(a, path, stream=stream)
        if not stream:  # a stream has begun when its tool starts
            assert first.status == 424 and first.headers["X-Should-Retry"] == "false"
        made = len(a.provider.requests)
        body = {**ROUTES[path], "stream": stream}
        field = "input" if "input" in body else "messages"
        begun = {**body, field: [*body[field], {"role": "assistant", "content": "Half of"}]}
        other_way = {**body, "stream": not stream}
        for sent in (body, dict(reversed(body.items())), begun, other_way):
            again = await a.post(path, sent)
            assert again.status == 424 and "no such model" in again.error["message"]
            assert again.headers["X-Should-Retry"] == "false"
            kind = "api_error" if path == "/v1/messages" else "invalid_request_error"
            assert again.error["type"] == kind  # others are a reason to repeat, for some
        assert effects(a) == 1 and len(a.provider.requests) == made
        other = await a.chat("something else")
        assert other.status != 424


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "reply",
    [
        status(400, "prompt is too long: 9 tokens > 8 maximum context length is 8 tokens"),
        status(413, "request_too_large"),
    ],
)
async def test_no_program_shortens_and_asks_again_after_an_effect(
    tmp_path: Path, path: str, stream: bool, reply: Reply
) -> None:
    """Programs compact when they read these words, and ask again with another history."""
    async with api(tmp_path, [TOUCH], then=reply, config={"compression": {"enabled": False}}) as a:
        first, again = [await post(a, path, stream=stream) for _ in range(2)]
        assert again.status == 424 and again.error["code"] == "agent_incomplete"
        for text in (first.body.decode(), again.body.decode()):
            assert "too long for the model" in text and "Check what was done" in text
            for word in ("prompt is too long", "maximum context", "request_too_large"):
                assert word not in text
        if not stream or path == "/v1/messages":
            named = path != "/v1/messages" and "context_length_exceeded"
            assert first.status == 424 and first.error["code"] == (named or "agent_incomplete")
        elif path == "/v1/responses":
            assert first.events[-1][1]["response"]["error"]["code"] == "invalid_prompt"
        assert effects(a) == 1


@pytest.mark.parametrize("path", ROUTES)
async def test_what_was_said_before_a_tool_is_no_answer(tmp_path: Path, path: str) -> None:
    gone, read = status(404, "no such model"), call(("c2", "read_file", {"path": "x"}))
    script = [say("Looking. ") + read, gone, say("Making. ") + TOUCH, gone]
    names = ("Session-Id", "Session-Key", "Completed", "Partial")
    async with api(tmp_path, script) as a:
        looked = await post(a, path, stream=False)
        assert looked.status == 502 and "no such model" in looked.error["message"]
        made, again = [
            await post(a, path, stream=False, X_Hermes_Session_Key="key") for _ in range(2)
        ]
        assert made.status == 424 and "no such model" in made.error["message"]
        assert again.error == made.error
        for name in (*(f"X-Hermes-{name}" for name in names), "X-Should-Retry"):
            assert made.headers[name] == again.headers[name], name
        assert effects(a) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ROUTES)
async def test_nobody_is_told_to_repeat_what_has_changed_something(
    tmp_path: Path, path: str, stream: bool
) -> None:
    wait = status(429, "slow down").headers(Retry_After="3600")
    async with api(tmp_path, [TOUCH], then=wait) as a:
        for answer in (await post(a, path, stream=stream), await post(a, path, stream=stream)):
            text = answer.body.decode()
            assert "limits the rate" in text and "Check what was done before you ask again" in text
            assert "Nothing was lost" not in text and "end the message" not in text
            assert "Retry-After" not in answer.headers


async def test_a_failed_run_that_has_changed_something_is_continued(tmp_path: Path) -> None:
    wait = status(429, "slow down").headers(Retry_After="3600")
    async with api(tmp_path, [TOUCH], then=wait) as a:
        run = (await a.post("/v1/runs", {"input": "hi"})).json["run_id"]
        await a.get(f"/v1/runs/{run}/events")
        error = (await a.get(f"/v1/runs/{run}")).json["error"]
        assert "limits the rate" in error and error.endswith("another run with that session_id.")
        assert "Nothing was lost" not in error


async def test_a_crash_after_an_effect_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes.agent import loop

    calls = 0

    async def crash_later(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise RuntimeError("a bug")
        return await sample_message(*args)

    sample_message = loop.sample_message
    monkeypatch.setattr(loop, "sample_message", crash_later)
    async with api(tmp_path, [TOUCH], then=say("Done.")) as a:
        for answer in (await a.chat(), await a.chat()):
            assert answer.status == 424 and "Internal error" in answer.error["message"]
            assert answer.headers["X-Should-Retry"] == "false"
        assert effects(a) == 1


@pytest.mark.parametrize("path", ROUTES)
async def test_the_model_is_told_what_an_earlier_attempt_has_done(
    tmp_path: Path, path: str
) -> None:
    async with api(tmp_path, [TOUCH], then=status(404, "no such model")) as a:
        assert (await post(a, path, stream=False)).status == 424
    async with api(tmp_path, then=say("Yes.")) as a:
        field = "input" if path.endswith("responses") else "messages"
        for text, is_told in (("more", False), ("hi", True)):
            said = [{"role": "user", "content": text}, {"role": "assistant", "content": "Well."}]
            body = {**ROUTES[path], field: [*said, {"role": "user", "content": "go on"}]}
            assert (await a.post(path, body)).status == 200
            noted = "after these tools had run: terminal." in system(a.provider.last)
            assert noted is is_told


async def test_a_failure_is_known_after_a_restart(tmp_path: Path) -> None:
    async with api(tmp_path, [TOUCH], then=status(404, "no such model")) as a:
        assert (await a.chat()).status == 424
    async with api(tmp_path, then=say("Yes.")) as a:
        assert (await a.chat()).status == 424
        assert not a.provider.requests


async def test_a_retry_does_not_run_beside_the_first_attempt(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [TOUCH, say("Done.").hold(gate, n=0)]) as a:
        first = asyncio.create_task(a.chat())
        await gate.reached()
        retried = await a.chat(headers={"X-Stainless-Retry-Count": "1"})
        assert retried.status == 409 and retried.error["code"] == "in_progress"
        assert retried.headers["Retry-After"]
        gate.open()
        assert (await first).status == 200 and effects(a) == 1


async def test_a_complete_turn_may_be_repeated(tmp_path: Path) -> None:
    async with api(tmp_path, [TOUCH, say("Done."), TOUCH, say("Again.")]) as a:
        assert (await a.chat()).status == (await a.chat()).status == 200
        assert effects(a) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_only_automatic_retries_of_a_stopped_request_fail(
    tmp_path: Path, stream: bool
) -> None:
    """A person who stopped a request may send it again."""
    stalled = say("Never").stall(after="text", n=0)
    script = [TOUCH, stalled, TOUCH, say("Done.")]
    async with api(tmp_path, script) as a:
        path = "/v1/chat/completions"
        leaver = asyncio.create_task(post(a, path, stream=stream))
        while len(a.provider.requests) < 2:
            await asyncio.sleep(0.01)
        leaver.cancel()
        await asyncio.wait({leaver})
        await wait_until_idle(a)
        retried = await post(a, path, stream=stream, X_Stainless_Retry_Count="1")
        assert retried.status == 424 and effects(a) == 1
        assert (await post(a, path, stream=stream, X_Stainless_Retry_Count="0")).status == 200
        assert effects(a) == 2


# -- idempotency keys of streams ---------------------------------------------------------------


@pytest.mark.parametrize("path", ROUTES)
async def test_a_stream_is_replayed_under_its_key(tmp_path: Path, path: str) -> None:
    async with api(tmp_path, [TOUCH, say("One ", "two.")]) as a:
        first = await post(a, path, stream=True, Idempotency_Key="k")
        assert b"two." in first.body
        again = await post(a, path, stream=True, Idempotency_Key="k")
        assert again.body == first.body and effects(a) == 1
        assert again.headers["X-Hermes-Session-Id"] == first.headers["X-Hermes-Session-Id"]
    async with api(tmp_path) as a:
        assert (await post(a, path, stream=True, Idempotency_Key="k")).body == first.body


async def test_two_readers_share_one_stream(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [say("One ", "two.").hold(gate, after="text")]) as a:
        path = "/v1/chat/completions"
        asking = [
            asyncio.create_task(post(a, path, stream=True, Idempotency_Key="k")) for _ in range(2)
        ]
        await gate.reached()
        gate.open()
        one, two = await asyncio.gather(*asking)
        assert one.body == two.body and len(a.provider.requests) == 1


async def test_a_stream_with_a_key_continues_without_its_client(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [say("One ", "two.").hold(gate, after="text")]) as a:
        body = {**ROUTES["/v1/chat/completions"], "stream": True}
        headers = {"Idempotency-Key": "k"}
        async with a.open_stream("POST", "/v1/chat/completions", body, **headers) as reading:
            await reading.until(b"One")
        gate.open()
        again = await post(a, "/v1/chat/completions", stream=True, Idempotency_Key="k")
        assert b"two." in again.body and len(a.provider.requests) == 1


async def test_a_failed_stream_with_a_key(tmp_path: Path) -> None:
    broken = status(404, "no such model")
    async with api(tmp_path, [broken, say("Better.")]) as a:
        path = "/v1/chat/completions"
        assert (await post(a, path, stream=True, Idempotency_Key="k")).status == 502
        assert b"Better" in (await post(a, path, stream=True, Idempotency_Key="k")).body

"""POST /v1/chat/completions: requests, history, sessions, endings, idempotency keys."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from hermes.store.tables.objects import SqlObjects
from tests.kit import Gate, Tokens, call, nothing, say, status, think
from tests.kit.api import Api, api, only_one_node
from tests.kit.home import KEY
from tests.server.exchanges import PNG_URL, sent_messages, sent_system_prompt

PATH = "/v1/chat/completions"


def user(content="hi", **rest) -> dict:
    return {"role": "user", "content": content, **rest}


def assistant(content="Yes.") -> dict:
    return {"role": "assistant", "content": content}


def system(text: str) -> dict:
    return {"role": "system", "content": text}


async def load_messages(a: Api, session: str) -> bytes:
    return (await a.get(f"/api/sessions/{session}/messages")).body


# -- the request -----------------------------------------------------------------------------

BAD = {
    "no messages": ({}, "messages"),
    "messages null": ({"messages": None}, "messages"),
    "empty messages": ({"messages": []}, "messages"),
    "only a system message": ({"messages": [system("x")]}, "user message"),
    "only an assistant message": ({"messages": [assistant()]}, "user message"),
    "an empty user message": ({"messages": [user("")]}, "user message"),
    "white space": ({"messages": [user(" \n\t ")]}, "user message"),
    "no content": ({"messages": [{"role": "user"}]}, "user message"),
    "null content": ({"messages": [user(None)]}, "user message"),
    "empty parts": ({"messages": [user([])]}, "user message"),
    "a part without text": ({"messages": [user([{"type": "text", "text": ""}])]}, "user message"),
    "stream maybe": ({"messages": [user()], "stream": "maybe"}, "stream"),
    "stream 1": ({"messages": [user()], "stream": 1}, "stream"),
    "model 42": ({"messages": [user()], "model": 42}, "model"),
}


class TestRequests:
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    @pytest.mark.parametrize("case", BAD, ids=str)
    async def test_refused(self, shared: Api, case: str) -> None:
        body, named = BAD[case]
        before = len(shared.provider.requests)
        answer = await shared.post(PATH, body)
        assert answer.status == 400
        assert answer.error["type"] == "invalid_request_error"
        assert named in answer.error["message"]
        assert len(shared.provider.requests) == before

    @pytest.mark.parametrize(
        "extra",
        [
            {"n": 1},
            {"user": "me", "seed": 7, "logit_bias": {"1": 2}, "top_p": 0.5},
            {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "auto"},
            {"tools": "nonsense"},
            {"response_format": {"type": "text"}},
            {"metadata": {"a": [1, {"b": None}]}, "service_tier": "auto", "store": True},
            {"functions": [], "frequency_penalty": 3.5, "parallel_tool_calls": False},
            {"temperature": None, "max_tokens": None, "stop": None, "reasoning_effort": None},
            {"model": None, "stream": None, "stream_options": None},
        ],
        ids=str,
    )
    async def test_unknown_fields_are_accepted(self, shared: Api, extra: dict) -> None:
        answer = await shared.post(PATH, {"messages": [user()], **extra})
        assert answer.status == 200
        assert answer.json["choices"][0]["message"]["content"] == "Yes."

    @pytest.mark.parametrize(
        ("value", "streams"),
        [(True, True), (False, False), ("true", True), ("false", False), ("False", False)],
    )
    async def test_stream_is_a_boolean_or_its_string(
        self, shared: Api, value: object, streams: bool
    ) -> None:
        answer = await shared.post(PATH, {"messages": [user()], "stream": value})
        kind = answer.headers["Content-Type"]
        assert kind.startswith("text/event-stream" if streams else "application/json")

    async def test_the_answer(self, shared: Api) -> None:
        answer = await shared.post(PATH, {"messages": [user()], "model": "anything/at-all"})
        body = answer.json
        assert body["id"].startswith("chatcmpl-") and isinstance(body.pop("created"), int)
        usage = body.pop("usage")
        del body["id"]
        assert body == {
            "object": "chat.completion",
            "model": "anything/at-all",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Yes."},
                    "finish_reason": "stop",
                }
            ],
        }
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        for header in ("X-Hermes-Completed", "X-Hermes-Partial", "X-Hermes-Session-Key"):
            assert header not in answer.headers
        assert answer.headers["X-Hermes-Session-Id"].startswith("api-")

    async def test_the_model_is_echoed_or_the_default(self, shared: Api) -> None:
        assert (await shared.chat(model="gpt-4o")).json["model"] == "gpt-4o"
        assert (await shared.chat()).json["model"] == "hermes-agent"


# -- system messages, history ----------------------------------------------------------------


class TestHistory:
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    async def test_system_messages_are_joined_and_ephemeral(self, shared: Api) -> None:
        talk = [system("Speak Latin."), user("salve"), system("Be brief."), user("quid agis")]
        answer = await shared.post(PATH, {"messages": talk})
        assert "Speak Latin.\n\nBe brief." in sent_system_prompt(shared)
        assert len(sent_system_prompt(shared)) > len(
            "Speak Latin.\n\nBe brief."
        )  # added to our own
        session = answer.headers["X-Hermes-Session-Id"]
        kept = await load_messages(shared, session)
        assert b"salve" in kept and b"Latin" not in kept and b"brief" not in kept
        headers = {"X-Hermes-Session-Id": session}
        await shared.post(PATH, {"messages": [user("vale")]}, headers=headers)
        assert "Latin" not in shared.provider.last.body.decode()

    async def test_developer_messages_are_system_messages(self, shared: Api) -> None:
        await shared.post(
            PATH, {"messages": [{"role": "developer", "content": "Be kind."}, user()]}
        )
        assert "Be kind." in sent_system_prompt(shared)

    async def test_the_last_user_message_is_the_prompt(self, shared: Api) -> None:
        talk = [user("a"), assistant("b"), user("c"), assistant("d"), user("e")]
        await shared.post(PATH, {"messages": talk})
        assert sent_messages(shared) == [(m["role"], m["content"]) for m in talk]

    async def test_messages_after_the_last_user_message_are_ignored(self, shared: Api) -> None:
        await shared.post(
            PATH, {"messages": [user("a"), assistant("b"), user("c"), assistant("d")]}
        )
        assert sent_messages(shared)[-1] == ("user", "c")

    async def test_tool_messages_of_a_client_are_ignored(self, shared: Api) -> None:
        calls = [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
        talk = [
            user("a"),
            {**assistant("b"), "tool_calls": calls},
            {"role": "tool", "tool_call_id": "x", "content": "forged"},
            user("c"),
        ]
        answer = await shared.post(PATH, {"messages": talk})
        assert answer.status == 200 and b"forged" not in shared.provider.last.body
        assert sent_messages(shared) == [("user", "a"), ("assistant", "b"), ("user", "c")]


# -- content ---------------------------------------------------------------------------------


def text(words: str) -> dict:
    return {"type": "text", "text": words}


def image(url: object) -> dict:
    return {"type": "image_url", "image_url": {"url": url}}


REFUSED_PARTS = {
    "file": {"type": "file", "file": {"file_id": "f"}},
    "input_file": {"type": "input_file", "file_id": "f"},
    "file_id": {"type": "file_id", "file_id": "f"},
    "audio": {"type": "input_audio", "input_audio": {}},
    "unknown": {"type": "hologram"},
    "no type": {"text": "x"},
    "data: text": image("data:text/html;base64,PGI+"),
    "data: pdf": image("data:application/pdf;base64,AAAA"),
    "data: nothing": image("data:,"),
    "a file address": image("file:///etc/passwd"),
    "ftp": image("ftp://example.com/a.png"),
    "no address": image(None),
    "an empty address": image(""),
}


class TestContent:
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    @pytest.mark.parametrize("case", REFUSED_PARTS, ids=str)
    async def test_refused_parts(self, shared: Api, case: str) -> None:
        body = {"messages": [user([text("look"), REFUSED_PARTS[case]])]}
        answer = await shared.post(PATH, body)
        assert answer.status == 400
        assert answer.error["code"] == "unsupported_content_type"
        assert answer.error["param"].startswith("messages[0].content[1]")

    @pytest.mark.parametrize(
        "part",
        [
            image("https://example.com/a.png"),
            image("http://example.com/a.png?x=1"),
            image(PNG_URL),
            image(PNG_URL.replace("png", "webp")),
            image(PNG_URL.rstrip("=")),
            {"type": "image_url", "image_url": {"url": PNG_URL, "detail": "high"}},
            {"type": "image_url", "image_url": PNG_URL},
        ],
        ids=lambda p: str(p)[:60],
    )
    async def test_images_reach_the_model(self, shared: Api, part: dict) -> None:
        answer = await shared.post(PATH, {"messages": [user([text("look"), part])]})
        assert answer.status == 200
        role, content = sent_messages(shared)[-1]
        assert role == "user" and [p["type"] for p in content] == ["text", "image_url"]
        given = part["image_url"]
        url = given["url"] if isinstance(given, dict) else given
        assert content[1]["image_url"]["url"].rstrip("=") == url.rstrip("=")
        detail = given.get("detail") if isinstance(given, dict) else None
        assert content[1]["image_url"].get("detail") == detail

    async def test_an_image_alone_is_a_turn(self, shared: Api) -> None:
        assert (await shared.post(PATH, {"messages": [user([image(PNG_URL)])]})).status == 200

    @pytest.mark.parametrize(
        "parts",
        [
            [text("one"), text("two")],
            [{"type": "input_text", "text": "one"}, text("two")],
            [text("one"), text(""), text("two")],
        ],
        ids=str,
    )
    async def test_text_alone_collapses_to_a_string(self, shared: Api, parts: list) -> None:
        await shared.post(PATH, {"messages": [user(parts)]})
        assert sent_messages(shared)[-1] == ("user", "one\ntwo")

    async def test_a_string_and_its_part_give_the_same_bytes(self, shared: Api) -> None:
        for content in ("same", [text("same")]):
            await shared.post(PATH, {"messages": [user(content)]})
        one, two = (r.body for r in shared.provider.requests[-2:])
        assert one == two


# -- sessions --------------------------------------------------------------------------------


class TestSessions:
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    async def test_derived_session_ids(self, shared: Api) -> None:
        async def session_of(*messages: dict) -> str:
            answer = await shared.post(PATH, {"messages": list(messages)})
            return answer.headers["X-Hermes-Session-Id"]

        first = await session_of(system("s"), user("one"))
        assert first.startswith("api-")
        past = (system("s"), user("one"), assistant("Yes."))
        assert await session_of(*past, user("two")) == first
        assert await session_of(system("s"), user([text("one")]), *past[2:], user("two")) == first
        assert await session_of(*past, user("two"), assistant(" Yes.\n"), user("three")) == first
        others = [
            await session_of(system("s"), user("one")),
            await session_of(user("one"), assistant("Yes."), user("two")),
            await session_of(system("t"), user("one"), assistant("Yes."), user("two")),
            await session_of(system("s"), user("one"), assistant("No."), user("two")),
            await session_of(*past, user("other"), assistant("Yes."), user("three")),
            await session_of(system("s"), user([text("one"), image(PNG_URL)])),
        ]
        assert len({first, *others}) == 7

    async def test_a_derived_session_takes_the_history_of_the_request(self, shared: Api) -> None:
        await shared.post(PATH, {"messages": [user("alpha")]})
        await shared.post(PATH, {"messages": [user("alpha"), assistant("other"), user("beta")]})
        assert sent_messages(shared) == [
            ("user", "alpha"),
            ("assistant", "other"),
            ("user", "beta"),
        ]

    async def test_a_named_session_takes_the_stored_history(self, shared: Api) -> None:
        headers = {"X-Hermes-Session-Id": "my chat: 1"}
        first = await shared.chat("gamma", headers=headers)
        assert first.headers["X-Hermes-Session-Id"] == "my chat: 1"
        talk = [user("forged"), assistant("forged too"), user("delta")]
        await shared.post(PATH, {"messages": talk}, headers=headers)
        assert sent_messages(shared) == [
            ("user", "gamma"),
            ("assistant", "Yes."),
            ("user", "delta"),
        ]

    async def test_a_session_key_is_echoed(self, shared: Api) -> None:
        headers = {"X-Hermes-Session-Key": "agent:main:webui:dm:user-42"}
        one = await shared.chat(headers=headers)
        assert one.headers["X-Hermes-Session-Key"] == headers["X-Hermes-Session-Key"]
        two = await shared.chat(headers=headers, stream=True)
        assert two.headers["X-Hermes-Session-Key"] == headers["X-Hermes-Session-Key"]
        both = await shared.chat(headers={**headers, "X-Hermes-Session-Id": "own"})
        assert both.headers["X-Hermes-Session-Id"] == "own"
        assert both.headers["X-Hermes-Session-Key"] == headers["X-Hermes-Session-Key"]

    async def test_the_session_key_is_passed_on(self, shared: Api) -> None:
        headers = {"X-Hermes-Session-Key": "scope-9", "X-Hermes-Session-Id": "keyed"}
        await shared.chat(headers=headers)
        meta = await shared.server.runtime.store.sessions.get_meta("keyed")
        assert meta is not None and meta.key.endswith("scope-9")

    @pytest.mark.parametrize("header", ["X-Hermes-Session-Id", "X-Hermes-Session-Key"])
    @pytest.mark.parametrize(
        ("value", "status"),
        [("a" * 256, 200), ("a" * 257, 400), ("a\tb", 400), ("Büro 👩\u200d💻", 200)],
    )
    async def test_session_headers_have_a_length_limit(
        self, shared: Api, header: str, value: str, status: int
    ) -> None:
        answer = await shared.chat(headers={header: value})
        assert answer.status == status
        if status == 400:
            assert header in answer.error["message"]

    @pytest.mark.parametrize("header", ["X-Hermes-Session-Id", "X-Hermes-Session-Key"])
    @pytest.mark.parametrize("value", [b"a\x01b", b"a\x00b", b"a\x7fb", b"a\x1b[31m"])
    async def test_session_headers_have_no_control_characters(
        self, shared: Api, header: str, value: bytes
    ) -> None:
        body = json.dumps({"messages": [user()]}).encode()
        got = await shared.raw(
            b"POST %b HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n%b: %b\r\n"
            b"Content-Length: %d\r\nConnection: close\r\n\r\n%b"
            % (PATH.encode(), shared.key.encode(), header.encode(), value, len(body), body)
        )
        assert got.split()[1] == b"400"

    @only_one_node
    async def test_an_unreadable_store_means_an_empty_history(
        self, shared: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from hermes.core.errors import StoreError

        async def broken(_: str) -> None:
            raise StoreError("the disk is gone")

        monkeypatch.setattr(shared.server.runtime.store.sessions, "load_messages", broken)
        answer = await shared.chat("still", headers={"X-Hermes-Session-Id": "my chat: 1"})
        assert answer.status == 200 and sent_messages(shared) == [("user", "still")]


async def test_conversations_that_begin_alike_share_no_session(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        answers = await asyncio.gather(*(a.chat("same") for _ in range(20)))
        assert {x.status for x in answers} == {200}
        assert len({x.headers["X-Hermes-Session-Id"] for x in answers}) == 20


async def test_a_conversation_keeps_its_session_across_a_restart(tmp_path: Path) -> None:
    """Also when its stream showed more text than its last step."""
    script = [say("Let me see. ") + call(("c1", "todo", {})), say("Done.")]
    async with api(tmp_path, script) as a:
        first = await a.chat("go", stream=True)
    async with api(tmp_path, then=say("Yes.")) as a:
        talk = [user("go"), assistant("Let me see. Done."), user("more")]
        second = await a.post(PATH, {"messages": talk})
        assert second.headers["X-Hermes-Session-Id"] == first.headers["X-Hermes-Session-Id"]


# -- settings for the provider ---------------------------------------------------------------


async def test_sampling_settings_reach_the_provider_within_limits(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("ok"), settings={"max_output_tokens": 500}) as a:
        await a.chat(temperature=0.25, max_tokens=100, stop=["END"])
        request = a.provider.last.json
        assert request["temperature"] == 0.25 and request["stop"] == ["END"]
        assert 100 in (request.get("max_tokens"), request.get("max_completion_tokens"))
        await a.chat(max_completion_tokens=9000)
        request = a.provider.last.json
        assert 500 in (request.get("max_tokens"), request.get("max_completion_tokens"))
        for wrong in ({"temperature": 9}, {"reasoning_effort": "extreme"}):
            assert (await a.chat(**wrong)).status == 400
        for none in (0, -1):
            assert (await a.chat(max_tokens=none)).status == 200
            assert a.provider.last.json.get("max_tokens", 500) == 500


# -- how it ends -----------------------------------------------------------------------------


async def test_usage_is_summed_over_all_calls_of_the_turn(tmp_path: Path) -> None:
    script = [
        call(("c1", "read_file", {"path": "a"})).usage(Tokens(100, 10)),
        call(("c2", "read_file", {"path": "b"})).usage(Tokens(200, 20)),
        say("Done.").usage(Tokens(300, 30)),
    ]
    async with api(tmp_path, script) as a:
        usage = (await a.chat()).json["usage"]
        assert usage["prompt_tokens"] == 600 and usage["completion_tokens"] == 60
        assert usage["total_tokens"] == 660


def check_incomplete(answer, hermes: dict) -> None:
    assert answer.headers["X-Hermes-Completed"] == "false"
    assert answer.headers["X-Hermes-Partial"] == "true"
    assert hermes["completed"] is False and hermes["partial"] is True
    assert isinstance(hermes["failed"], bool)
    assert hermes["error"] and hermes["error_code"]


async def test_truncated_text_is_marked_incomplete(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Half a sen").stop("length")) as a:
        answer = await a.chat()
        assert answer.status == 200
        (choice,) = answer.json["choices"]
        assert choice["finish_reason"] == "length"
        assert choice["message"]["content"].startswith("Half a sen")
        check_incomplete(answer, answer.json["hermes"])
        assert answer.json["hermes"]["error_code"] == "output_truncated"
        streamed = await a.chat(stream=True)
        last = streamed.events[-2][1]
        assert last["choices"][0]["finish_reason"] == "length"
        assert last["hermes"]["error_code"] == "output_truncated"


async def test_a_failure_after_text(tmp_path: Path) -> None:
    """The first model call has text and a tool call; the second fails permanently."""
    first = say("Let me look.") + call(("c1", "read_file", {"path": "a"}))
    bad = status(400, f"your key {KEY} is not good here")
    async with api(tmp_path, [first], then=bad) as a:
        answer = await a.chat()
        assert answer.status in (200, 502)
        assert KEY.encode() not in answer.body
        if answer.status == 200:
            assert answer.json["choices"][0]["finish_reason"] == "error"
            check_incomplete(answer, answer.json["hermes"])
        else:
            check_incomplete(answer, answer.error["hermes"])


async def test_a_cut_stream_with_text(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Half", " of", " it").cut(after="text", n=2)) as a:
        answer = await a.chat()
        assert answer.status == 200
        choice = answer.json["choices"][0]
        assert choice["finish_reason"] in ("length", "error")
        assert choice["message"]["content"].startswith("Half")
        check_incomplete(answer, answer.json["hermes"])


@pytest.mark.parametrize("stream", [False, True])
async def test_the_provider_fails_permanently(tmp_path: Path, stream: bool) -> None:
    said = f"The model kit-model does not exist for {KEY}"
    async with api(tmp_path, then=status(404, said)) as a:
        answer = await a.chat(stream=stream)
        assert KEY.encode() not in answer.body
        assert answer.status == 502
        error = answer.error
        assert error["code"] == "agent_incomplete" and error["type"] == "server_error"
        assert "kit-model" in error["message"]
        check_incomplete(answer, error["hermes"])
        assert error["hermes"]["failed"] is True
        assert answer.headers["X-Hermes-Session-Id"]


@pytest.mark.parametrize(
    "reply", [nothing(), think("only thoughts"), say("   ")], ids=["nothing", "thoughts", "blank"]
)
async def test_no_usable_text(tmp_path: Path, reply) -> None:
    async with api(tmp_path, then=reply) as a:
        answer = await a.chat()
        assert answer.status == 502
        assert answer.error["code"] == "agent_incomplete"
        check_incomplete(answer, answer.error["hermes"])


async def test_an_internal_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def explode(*_: object, **__: object) -> None:
        raise RuntimeError(f"the frobnicator broke near {KEY}")

    async with api(tmp_path) as a:
        monkeypatch.setattr("hermes.app.session.run_turn", explode)
        for answer in (await a.chat(), await a.ask()):
            assert answer.status == 500
            assert "the frobnicator broke" in answer.error["message"]
            assert KEY not in answer.error["message"] and "Traceback" not in answer.body.decode()
        monkeypatch.setattr(a.server.turns, "run_turn", explode)
        answer = await a.chat()
        assert answer.status == 500 and "the frobnicator broke" in answer.error["message"]
        assert KEY not in answer.body.decode()


async def test_approvals_are_refused_in_chats(tmp_path: Path) -> None:
    write = call(("c1", "write_file", {"path": "../out.txt", "content": "x"}))
    async with api(tmp_path, [write, say("No."), write, say("No.")]) as a:
        assert (await a.chat()).json["choices"][0]["message"]["content"] == "No."
        assert (await a.ask("write it")).json["status"] == "completed"
        assert not (tmp_path / "out.txt").exists()
        for n in (1, 3):
            assert b"refused" in a.provider.requests[n].body.lower() or (
                b"not allowed" in a.provider.requests[n].body.lower()
            )


# -- Idempotency-Key -------------------------------------------------------------------------


async def test_the_same_key_and_body_run_once(tmp_path: Path) -> None:
    async with api(tmp_path, [say("One."), say("Two."), say("Three.")]) as a:
        headers = {"Idempotency-Key": "k"}
        one = await a.chat("x", headers=headers)
        again = await a.chat("x", headers=headers)
        assert again.body == one.body
        assert again.headers["X-Hermes-Session-Id"] == one.headers["X-Hermes-Session-Id"]
        other = await a.chat("y", headers=headers)
        assert other.json["choices"][0]["message"]["content"] == "Two."
        elsewhere = await a.chat("x", headers={"Idempotency-Key": "k2"})
        assert elsewhere.json["choices"][0]["message"]["content"] == "Three."
        assert len(a.provider.requests) == 3


async def test_an_idempotency_key_expires_after_a_day(tmp_path: Path) -> None:
    async with api(tmp_path, [say("One."), say("Two."), say("Three.")]) as a:
        headers = {"Idempotency-Key": "k"}
        objects = a.server.runtime.store.objects
        assert isinstance(objects, SqlObjects)
        objects._clock = lambda: time.time() - 25 * 3600
        await a.chat("x", headers=headers)
        objects._clock = time.time
        two = await a.chat("x", headers=headers)
        assert two.json["choices"][0]["message"]["content"] == "Two."
        assert (await a.chat("x", headers=headers)).body == two.body


async def test_a_client_that_leaves_does_not_cancel_the_work_of_others(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [say("Once.").hold(gate, n=0)]) as a:
        headers = {"Idempotency-Key": "k"}
        leaver = asyncio.create_task(a.chat(headers=headers))
        await gate.reached()
        waiter = asyncio.create_task(a.chat(headers=headers))
        while not a.server.turns.idempotency.pending:
            await asyncio.sleep(0)
        leaver.cancel()
        await asyncio.wait({leaver})
        gate.open()
        answer = await waiter
        assert answer.json["choices"][0]["message"]["content"] == "Once."
        assert (await a.chat(headers=headers)).body == answer.body
        assert len(a.provider.requests) == 1


async def test_a_retry_gets_the_answer_its_client_has_missed(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [say("Once.").hold(gate, n=0)]) as a:
        headers = {"Idempotency-Key": "k"}
        leaver = asyncio.create_task(a.chat(headers=headers))
        await gate.reached()
        leaver.cancel()
        await asyncio.wait({leaver})
        retry = asyncio.create_task(a.chat(headers=headers))
        gate.open()
        assert (await retry).json["choices"][0]["message"]["content"] == "Once."
        assert len(a.provider.requests) == 1


async def test_a_failure_is_retried_unless_tools_have_run(tmp_path: Path) -> None:
    broken = status(404, "no such model")
    tool = call(("c1", "terminal", {"command": "touch made"}))
    script = [broken, say("Better."), tool, broken]
    async with api(tmp_path, script) as a:
        headers = {"Idempotency-Key": "k"}
        assert (await a.chat("one", headers=headers)).status == 502
        assert (await a.chat("one", headers=headers)).status == 200
        acted = await a.chat("two", headers=headers)
        assert acted.status == 424
        assert (await a.chat("two", headers=headers)).body == acted.body
        assert len(a.provider.requests) == 4


async def test_without_a_key_a_client_that_leaves_ends_the_turn(tmp_path: Path) -> None:
    async with api(tmp_path, [say("Never", " read").stall(after="text")]) as a:
        leaver = asyncio.create_task(a.chat())
        while not a.provider.requests:
            await asyncio.sleep(0.01)
        leaver.cancel()
        await asyncio.wait_for(a.provider.requests[0].gone.wait(), 90)
        while a.server.turns.slots.active_turns:
            await asyncio.sleep(0.01)

"""/api/sessions, metrics and documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hermes.core.message import user_message
from tests.kit import Gate, Tokens, call, say, status
from tests.kit.api import API_KEY, Api, api, only_one_node
from tests.server.exchanges import sent_messages, wait_until_idle

ALL = "/api/sessions"


async def create_session(a: Api, title: str = "") -> str:
    made = await a.post(ALL, {"title": title})
    assert made.status == 201 and made.json["object"] == "hermes.session"
    return str(made.json["id"])


async def test_sessions_are_created_listed_and_deleted(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        one, two = await create_session(a, "first"), await create_session(a)
        assert (await a.post(ALL)).status == 201  # without a body
        await a.post(f"{ALL}/{one}/chat", {"message": "hello"})
        listed = (await a.get(ALL)).json
        assert listed["data"][0]["id"] == one and listed["data"][0]["title"] == "first"
        assert not listed["has_more"] and len(listed["data"]) == 3
        assert len((await a.get(f"{ALL}?limit=-1")).json["data"]) == 1
        page = (await a.get(f"{ALL}?limit=1&offset=1")).json
        assert len(page["data"]) == 1 and page["has_more"]
        renamed = await a.call("PATCH", f"{ALL}/{two}", {"title": "other"})
        assert renamed.json["title"] == "other"
        assert (await a.get(f"{ALL}/{two}")).json["title"] == "other"
        gone = await a.call("DELETE", f"{ALL}/{two}")
        assert gone.json == {"id": two, "object": "hermes.session", "deleted": True}
        for method in ("GET", "DELETE"):
            assert (await a.call(method, f"{ALL}/{two}")).status == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "{id}", {}),
        ("PATCH", "{id}", {"title": ""}),
        ("PATCH", "{id}", {"title": "x" * 201}),
        ("POST", "{id}/chat", {}),
        ("POST", "{id}/chat", {"message": ""}),
        ("POST", "{id}/chat", {"message": 42}),
        ("POST", "{id}/chat/stream", {"message": []}),
        ("POST", "{id}/fork", {"messages": -1}),
        ("GET", "search", None),
        ("GET", "search?q=", None),
        ("GET", "search?q=x&limit=many", None),
        ("GET", "{id}/messages?limit=x", None),
    ],
)
async def test_refused(tmp_path: Path, method: str, path: str, body: object) -> None:
    async with api(tmp_path) as a:
        identity = await create_session(a)
        answer = await a.call(method, f"{ALL}/{path.format(id=identity)}", body)
        assert answer.status == 400 and answer.error["message"]


async def test_chat_in_a_session(tmp_path: Path) -> None:
    script = [call(("c1", "read_file", {"path": "none"})), say("One."), say("Two.")]
    async with api(tmp_path, script) as a:
        identity = await create_session(a)
        body = {"message": "alpha", "instructions": "Be brief."}
        first = await a.post(f"{ALL}/{identity}/chat", body)
        assert first.json["session_id"] == identity == first.headers["X-Hermes-Session-Id"]
        assert first.json["message"] == {"role": "assistant", "content": "One."}
        assert first.json["usage"]["total_tokens"] > 0 and "hermes" not in first.json
        await a.post(f"{ALL}/{identity}/chat", {"input": "beta"})
        assert b"Be brief." not in a.provider.last.body
        assert [r for r, _ in sent_messages(a)] == [
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
        ]
        told = (await a.get(f"{ALL}/{identity}/messages")).json
        kinds = [part["type"] for m in told["data"] for part in m["content"]]
        assert kinds == ["text", "tool_call", "tool_result", "text", "text", "text"]
        page = (await a.get(f"{ALL}/{identity}/messages?limit=2")).json
        assert len(page["data"]) == 2 and page["has_more"]
        after = page["data"][-1]["seq"]
        rest = (await a.get(f"{ALL}/{identity}/messages?after={after}")).json
        assert page["data"] + rest["data"] == told["data"]
        found = (await a.get(f"{ALL}/search?q=alpha")).json["data"]
        assert found[0]["session"]["id"] == identity and "alpha" in found[0]["snippet"]


async def test_stream_in_a_session(tmp_path: Path) -> None:
    async with api(tmp_path, [call(("c1", "todo", {})), say("One ", "two.")]) as a:
        identity = await create_session(a)
        answer = await a.post(f"{ALL}/{identity}/chat/stream", {"message": "alpha"})
        names = [name for name, _ in answer.events]
        assert names[:2] == ["tool.started", "tool.completed"] and names[-1] == "turn.completed"
        assert all(d["session_id"] == identity and d["event"] == n for n, d in answer.events)
        assert answer.events[-1][1]["output"] == "One two."
        await wait_until_idle(a)


async def test_a_turn_that_fails(tmp_path: Path) -> None:
    async with api(tmp_path, then=status(404, "no such model")) as a:
        identity = await create_session(a)
        answer = await a.post(f"{ALL}/{identity}/chat", {"message": "alpha"})
        assert answer.status == 502 and answer.error["code"] == "agent_incomplete"
        streamed = await a.post(f"{ALL}/{identity}/chat/stream", {"message": "beta"})
        assert streamed.status == 502 and streamed.error["code"] == "agent_incomplete"


async def test_a_fork_continues_independently(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes.")) as a:
        identity = await create_session(a, "root")
        for words in ("alpha", "beta"):
            await a.post(f"{ALL}/{identity}/chat", {"message": words})
        whole = (await a.post(f"{ALL}/{identity}/fork")).json
        assert whole["parent"] == identity and whole["message_count"] == 4
        part = (await a.post(f"{ALL}/{identity}/fork", {"messages": 2, "title": "t"})).json
        assert part["title"] == "t"
        await a.post(f"{ALL}/{part['id']}/chat", {"message": "gamma"})
        assert [c for _, c in sent_messages(a)] == ["alpha", "Yes.", "gamma"]
        count = (await a.get(f"{ALL}/{identity}")).json["message_count"]
        assert count == 4


async def test_turns_of_one_session_run_one_after_the_other(tmp_path: Path) -> None:
    import asyncio

    async with api(tmp_path, then=say("Yes.")) as a:
        identity = await create_session(a)
        path = f"{ALL}/{identity}/chat"
        await asyncio.gather(*(a.post(path, {"message": f"n{n}"}) for n in range(5)))
        roles = [m["role"] for m in (await a.get(f"{ALL}/{identity}/messages")).json["data"]]
        assert roles == ["user", "assistant"] * 5
        assert not a.server.turns.sessions.locks


# -- about -----------------------------------------------------------------------------------


@only_one_node
async def test_metrics(tmp_path: Path) -> None:
    script = [say("Yes.").usage(Tokens(100, 7)), status(404, "no such model")]
    async with api(tmp_path, script) as a:
        await a.chat()
        await a.chat("fails")
        answer = await a.get("/metrics")
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = [x for x in answer.body.decode().splitlines() if not x.startswith("#")]
        assert all(re.fullmatch(r"[a-z_]+(\{[^{}]*\})? [0-9.e+-]+", x) for x in lines), lines
        text = "\n".join(lines)
        assert 'hermes_requests_total{route="chat_completions",status="200"} 1' in text
        assert 'hermes_requests_total{route="chat_completions",status="502"} 1' in text
        assert 'hermes_tokens_total{model="kit-model",kind="input"} 100' in text
        assert 'hermes_turns_total{ending="completed"} 1' in text
        assert "hermes_provider_errors_total{" in text and "hermes_active_runs 0" in text


async def test_toolsets_skills_and_documents(tmp_path: Path) -> None:
    async with api(tmp_path) as a:
        groups = (await a.get("/v1/toolsets")).json["data"]
        names = {tool["name"] for group in groups for tool in group["tools"]}
        assert {"terminal", "read_file"} <= names
        assert (await a.get("/v1/skills")).json["object"] == "list"
        document = (await a.get("/openapi.json")).json
        assert document["openapi"].startswith("3.1")
        assert "/v1/chat/completions" in document["paths"]
        page = await a.get("/docs")
        assert page.headers["Content-Type"].startswith("text/html") and b"/v1/runs" in page.body


async def test_a_session_with_a_running_turn_is_not_deleted(tmp_path: Path) -> None:
    """With a derived id and with a given one."""
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    async with api(tmp_path) as a:
        for headers in ({}, {"X-Hermes-Session-Id": "mine"}):
            gate = Gate()
            a.provider.add(say("Hello ", "there").hold(gate, "text"))
            async with a.open_stream("POST", "/v1/chat/completions", body, **headers) as reading:
                await reading.until(b"Hello ")
                identity = reading.headers["X-Hermes-Session-Id"]
                refused = await a.call("DELETE", f"{ALL}/{identity}")
                assert refused.status == 409 and refused.error["code"] == "busy"
                gate.open()
                assert b'"finish_reason":"stop"' in await reading.rest()
            assert (await a.call("DELETE", f"{ALL}/{identity}")).status == 200


@pytest.mark.parametrize("key", ["", API_KEY])
async def test_without_a_key_only_sessions_of_the_server_are_seen(tmp_path: Path, key: str) -> None:
    """Those of the terminal are for the operator, who has a key to show."""
    async with api(tmp_path, then=say("Yes."), key=key) as a:
        other = await a.server.runtime.open_session(cwd=a.home.work)
        await other.submit(user_message("private words"))
        await other.close()
        mine = (await a.chat("private words")).headers["X-Hermes-Session-Id"]
        seen = {mine, other.id} if key else {mine}
        assert {s["id"] for s in (await a.get("/api/sessions")).json["data"]} == seen
        hits = (await a.get("/api/sessions/search?q=private")).json["data"]
        assert {hit["session"]["id"] for hit in hits} == seen
        for path in ("", "/messages"):
            status = (await a.get(f"/api/sessions/{other.id}{path}")).status
            assert status == (200 if key else 404)
        for path, body in (("chat", {"message": "x"}), ("fork", {})):
            status = (await a.post(f"/api/sessions/{other.id}/{path}", body)).status
            assert (status < 300) == bool(key) and (key or status == 404)
        again = {"input": "x", "session_id": other.id}
        assert (await a.post("/v1/runs", again)).status == (202 if key else 404)

"""Remote images in answers become links once a session could leak data through them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit import call, say
from tests.kit.api import Answer, api

READ = call(("c1", "read_file", {"path": "notes.txt"}))
IMAGE = "Look: ![a chart](https://example.org/x.png?q=secret), and `![b](http://x)`."
LINK = IMAGE.replace("![a", "[a")
HI: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 99,
    "input": "hi",
}


def shown_texts(answer: Answer, path: str) -> set[str]:
    """The text of an answer, from every field and every kind of event that has it."""
    assert answer.status == 200, answer.body
    if not answer.headers["Content-Type"].startswith("text/event-stream"):
        data = answer.json
        if "choices" in data:
            return {data["choices"][0]["message"]["content"]}
        if "output" in data:
            return {data["output"][-1]["content"][0]["text"]}
        return {data["content"][-1]["text"] if "content" in data else data["message"]["content"]}
    found, said = set(), ""
    for _, data in answer.events:
        if data == "[DONE]":
            continue
        if path.endswith("completions") and data.get("choices"):
            said += data["choices"][0]["delta"].get("content") or ""
        elif isinstance(data.get("delta"), str):
            said += data["delta"] if "arguments" not in data.get("type", "") else ""
        elif isinstance(data.get("delta"), dict):
            said += data["delta"].get("text", "")
        if data.get("type") == "response.completed":
            found.add(data["response"]["output"][-1]["content"][0]["text"])
        if data.get("output") and isinstance(data["output"], str):
            found.add(data["output"])
    return found | {said}


async def test_every_answer_has_links_and_the_store_has_the_images(
    tmp_path: Path,
) -> None:
    script = [READ, say(IMAGE, size=3)] * 6 + [say(IMAGE, size=3)] * 2
    async with api(tmp_path, script) as a:
        a.home.file("notes.txt", "private")
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
            for stream in (False, True):
                answer = await a.post(path, {**HI, "stream": stream})
                assert shown_texts(answer, path) == {LINK}, (path, stream)
        session = answer.headers["X-Hermes-Session-Id"]
        said = {"message": "hi"}
        one = await a.post(f"/api/sessions/{session}/chat", said)
        two = await a.post(f"/api/sessions/{session}/chat/stream", said)
        assert shown_texts(one, "") == shown_texts(two, "") == {LINK}
        listed = (await a.get(f"/api/sessions/{session}/messages")).json["data"]
        shown = {
            p["text"]
            for m in listed
            for p in m["content"]
            if m["role"] == "assistant" and "text" in p
        }
        assert shown == {LINK}
        stored = await a.server.runtime.store.sessions.load_messages(session)
        assert {m.text for m in stored if m.role == "assistant" and m.text} == {IMAGE}


async def test_runs_have_links_too(tmp_path: Path) -> None:
    async with api(tmp_path, [READ, say(IMAGE, size=3)]) as a:
        a.home.file("notes.txt", "private")
        run = (await a.post("/v1/runs", {"input": "hi"})).json["run_id"]
        told = await a.get(f"/v1/runs/{run}/events")
        assert shown_texts(told, "") == {LINK}
        assert (await a.get(f"/v1/runs/{run}")).json["output"] == LINK


@pytest.mark.parametrize("reads,setting", [(False, "link"), (True, "keep")])
async def test_images_stay_without_a_risk_or_if_configured(
    tmp_path: Path, reads: bool, setting: str
) -> None:
    script = [*([READ] if reads else []), say(IMAGE, size=3)] * 2
    async with api(tmp_path, script, settings={"images": setting}) as a:
        a.home.file("notes.txt", "private")
        path = "/v1/chat/completions"
        for stream in (False, True):
            assert shown_texts(await a.post(path, {**HI, "stream": stream}), path) == {IMAGE}


FOREIGN = {
    "an answer of somebody else": [{"role": "assistant", "content": "It says: do this."}],
    "a result of a client's tool": [
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "private, and written by strangers"},
    ],
}


@pytest.mark.parametrize("what", FOREIGN)
async def test_what_a_client_brings_counts_as_read(tmp_path: Path, what: str) -> None:
    """Nobody knows where it comes from."""
    async with api(tmp_path, then=say(IMAGE, size=3)) as a:
        said = [HI["messages"][0], *FOREIGN[what]]
        tools = {
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
            "tool_execution": "client",
        }
        is_prompt = said[-1]["role"] == "tool"  # an answer at the end is not sent to the model
        for end in ([{"role": "user", "content": "and?"}], *([[]] if is_prompt else [])):
            answer = await a.post("/v1/chat/completions", {"messages": said + end, **tools})
            assert shown_texts(answer, "") == {LINK}


async def test_a_conversation_that_the_server_knows_is_not_tainted_by_its_answers(
    tmp_path: Path,
) -> None:
    async with api(tmp_path, then=say(IMAGE, size=3)) as a:
        said = list(HI["messages"])
        for _ in range(3):
            answer = await a.post("/v1/chat/completions", {"messages": said})
            assert shown_texts(answer, "") == {IMAGE}
            said += [{"role": "assistant", "content": IMAGE}, {"role": "user", "content": "and?"}]

"""kill -9 between the effect of a tool and the answer: no retry has the effect twice."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.kit import Gate, Home, call, say
from tests.kit.server import Provider, Received
from tests.server.serve_process import SECRET, ServeProcess, serve

pytestmark = pytest.mark.e2e

KILLS = int(os.environ.get("HERMES_KILLS", "12"))


def build_requests(number: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """A request for each route, whole and streamed, by the word that its effect writes."""
    requests: dict[str, tuple[str, dict[str, Any]]] = {}
    for stream in (False, True):
        for name in ("chat", "responses", "messages"):
            word = f"{name}{number}{'s' if stream else 'w'}"
            said = [{"role": "user", "content": word}]
            path, body = {
                "chat": ("/v1/chat/completions", {"messages": said}),
                "responses": ("/v1/responses", {"input": word}),
                "messages": ("/v1/messages", {"messages": said, "max_tokens": 99}),
            }[name]
            requests[word] = (path, {**body, "stream": stream})
    requests[f"runs{number}"] = ("/v1/runs", {"input": f"runs{number}"})
    return requests


def answer_request(request: Received) -> Any:
    """The effect of a new prompt; once it has happened, nothing more."""
    messages = request.json["messages"]
    if messages[-1]["role"] == "tool":
        return say("Never", " said").hold(Gate(), n=0)
    word = messages[-1]["content"]
    return call((f"c_{word}", "terminal", {"command": f"echo {word} >> effects.log"}))


async def post(s: ServeProcess, path: str, body: dict[str, Any], key: str) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {SECRET}"}
    if key:
        headers["Idempotency-Key"] = key
    async with (
        aiohttp.ClientSession() as http,
        http.post(s.url + path, json=body, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def kill_in_the_middle(home: Home, provider: Provider, number: int, *, keys: bool) -> None:
    requests = build_requests(number)
    provider.then = answer_request
    async with serve(home) as s:
        asking = [
            asyncio.create_task(post(s, path, body, word if keys else ""))
            for word, (path, body) in requests.items()
        ]
        log = home.work / "effects.log"
        async with asyncio.timeout(90):
            while not log.exists() or len(log.read_text().split()) < (number + 1) * len(requests):
                await asyncio.sleep(0.02)
        s.process.kill()
        await s.wait()
        await asyncio.gather(*asking, return_exceptions=True)
    provider.then = say("Carried on.")
    async with serve(home) as s:
        for word, (path, body) in requests.items():
            if not keys and path == "/v1/runs":
                continue
            status, text = await post(s, path, body, word if keys else "")
            assert status == (202 if path == "/v1/runs" else 424), (word, text)
            assert status == 202 or "The server stopped" in text
        if keys:
            _, started = await s.call(
                "POST", *requests[f"runs{number}"], **{"Idempotency-Key": f"runs{number}"}
            )
            await s.read(f"/v1/runs/{started['run_id']}/events")
            _, run = await s.call("GET", f"/v1/runs/{started['run_id']}")
            assert (run["status"], run["output"]) == ("completed", "Carried on."), run


PARTS = [pytest.param(KILLS // 3, True, id=f"keys-{n}") for n in range(3)]


@pytest.mark.parametrize(("kills", "keys"), [*PARTS, pytest.param(2, False, id="no-keys")])
async def test_no_effect_happens_twice(tmp_path: Path, kills: int, keys: bool) -> None:
    async with Provider(then=answer_request) as provider:
        home = Home.of(tmp_path, provider)
        home.configure(terminal={"cwd": str(home.work)})
        for number in range(kills):
            await kill_in_the_middle(home, provider, number, keys=keys)
        effects = (home.work / "effects.log").read_text().split()
        assert len(effects) == len(set(effects))


async def test_what_a_subagent_did_is_not_done_again(tmp_path: Path) -> None:
    """The server dies while a subagent works, after a command of it."""
    effects = tmp_path / "work" / "effects.log"
    finished = False

    def answer(request: Received) -> Any:
        messages = request.json["messages"]
        if finished or messages[-1]["role"] == "tool":
            return say("Said.") if finished else say("Never", " said").hold(Gate(), n=0)
        if messages[-1]["content"].startswith("goal"):
            return call(("t1", "terminal", {"command": f"echo did >> {effects}"}))
        return call(("c1", "delegate_task", {"goal": "goal"}))

    async with Provider(then=answer) as provider:
        home = Home.of(tmp_path, provider)
        home.configure(terminal={"cwd": str(home.work)})
        async with serve(home) as s:
            _, started = await s.call("POST", "/v1/runs", {"input": "delegate it"})
            async with asyncio.timeout(90):
                while not effects.exists():
                    await asyncio.sleep(0.02)
            s.process.kill()
            await s.wait()
        finished = True
        async with serve(home) as s:
            events = (await s.read(f"/v1/runs/{started['run_id']}/events")).decode()
            assert '"unknown":["c1"]' in events and "event: run.completed" in events
        assert effects.read_text().split() == ["did"]
        last = json.dumps(provider.last.json["messages"])
        assert "whether it took effect is not known" in last


async def test_an_approval_survives_the_server(tmp_path: Path) -> None:
    """A tool that asks has not begun: it asks again."""
    file = tmp_path / "outside.txt"

    def answer(request: Received) -> Any:
        if request.json["messages"][-1]["role"] == "tool":
            return say("Written.")
        return call(("c1", "write_file", {"path": str(file), "content": "agreed"}))

    async with Provider(then=answer) as provider:
        home = Home.of(tmp_path, provider)
        home.configure(terminal={"cwd": str(home.work)})
        for restarts in range(2):
            async with serve(home) as s:
                if not restarts:
                    _, started = await s.call("POST", "/v1/runs", {"input": "write it"})
                run = f"/v1/runs/{started['run_id']}"
                async with asyncio.timeout(90):
                    while (await s.call("GET", run))[1]["status"] != "waiting_for_approval":
                        await asyncio.sleep(0.02)
                if not restarts:
                    s.process.kill()
                    await s.wait()
                    continue
                async with asyncio.timeout(90):
                    while (await s.call("POST", f"{run}/approval", {"choice": "once"}))[0] != 200:
                        await asyncio.sleep(0.02)
                events = (await s.read(f"{run}/events")).decode()
        assert '"unknown":[]' in events and "event: run.completed" in events
        assert events.count("event: approval.request") == 2
        assert file.read_text() == "agreed"

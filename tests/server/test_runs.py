"""Runs: started, followed, cut off, answered, steered, stopped, and found again after a restart."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from tests.kit import Gate, call, say
from tests.kit.api import Api, api
from tests.kit.server import Provider


async def _ended(a: Api, run: str) -> dict:
    await a.get(f"/v1/runs/{run}/events")
    return (await a.get(f"/v1/runs/{run}")).json


async def test_a_run_to_its_end(tmp_path: Path) -> None:
    async with api(tmp_path, [call(("c1", "todo", {})), say("Done ", "it.")]) as a:
        started = await a.post("/v1/runs", {"input": "do it"})
        assert started.status == 202
        run = started.json["run_id"]
        assert started.json == {"run_id": run, "status": "started"} and run.startswith("run_")
        followed = await a.get(f"/v1/runs/{run}/events")
        names = [name for name, _ in followed.events]
        assert names[0] == "tool.started" and names[-1] == "run.completed"
        for name, data in followed.events:
            assert data["event"] == name and data["run_id"] == run and data["timestamp"]
        text = "".join(d["delta"] for n, d in followed.events if n == "message.delta")
        assert text == "Done it."
        state = (await a.get(f"/v1/runs/{run}")).json
        assert state["status"] == "completed" and state["output"] == "Done it."
        assert state["object"] == "hermes.run" and state["last_event"] == "run.completed"
        assert state["usage"].keys() == {"input_tokens", "output_tokens", "total_tokens"}


async def test_R11_any_cut_resumes_byte_identically(tmp_path: Path) -> None:
    words = [f"word{n} " for n in range(40)]
    async with api(tmp_path, [say(*words).random_cuts(7)]) as a:
        run = (await a.post("/v1/runs", {"input": "talk"})).json["run_id"]
        whole = (await a.get(f"/v1/runs/{run}/events")).body
        frames = whole.split(b"\n\n")[:-1]
        rng = random.Random(11)
        for _ in range(300):
            seen = rng.randrange(len(frames) + 1)
            last = {"Last-Event-ID": str(seen)} if seen else {}
            rest = await a.get(f"/v1/runs/{run}/events", headers=last)
            assert b"".join(f + b"\n\n" for f in frames[:seen]) + rest.body == whole


async def test_stop_ends_it_and_says_so(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [say("Half", " of it").hold(gate, after="text")]) as a:
        run = (await a.post("/v1/runs", {"input": "talk"})).json["run_id"]
        await gate.reached()
        stopped = await a.post(f"/v1/runs/{run}/stop")
        assert stopped.json["status"] in ("stopping", "cancelled")
        state = await _ended(a, run)
        assert state["status"] == "cancelled" and state["last_event"] == "run.cancelled"


async def test_an_approval_waits_for_its_owner(tmp_path: Path) -> None:
    script = [call(("c1", "write_file", {"path": "../out.txt", "content": "x"})), say("ok")]
    async with api(tmp_path, script) as a:
        run = (await a.post("/v1/runs", {"input": "write"})).json["run_id"]
        async with a.http.get(
            f"{a.url}/v1/runs/{run}/events", headers={"Authorization": f"Bearer {a.key}"}
        ) as stream:
            async for line in stream.content:
                if line.startswith(b"event: approval.request"):
                    break
            state = (await a.get(f"/v1/runs/{run}")).json
            assert state["status"] == "waiting_for_approval"
            assert (await a.post(f"/v1/runs/{run}/approval", {"choice": "maybe"})).status == 400
            answered = await a.post(f"/v1/runs/{run}/approval", {"choice": "once"})
            assert answered.status == 200
            rest = await stream.content.read()
        assert b"approval.responded" in rest and b"run.completed" in rest
        assert (tmp_path / "out.txt").read_text() == "x"
        late = await a.post(f"/v1/runs/{run}/approval", {"choice": "once"})
        assert late.status == 409


async def test_a_run_that_the_server_lost_has_failed_with_a_reason(tmp_path: Path) -> None:
    gate = Gate()
    settings = {"drain_seconds": 0}
    async with Provider([say("Half", " of it").hold(gate, after="text"), say("x")]) as provider:
        async with api(tmp_path, provider, settings=settings) as a:
            run = (await a.post("/v1/runs", {"input": "talk"})).json["run_id"]
            await gate.reached()
        async with api(tmp_path, provider, settings=settings) as b:
            state = (await b.get(f"/v1/runs/{run}")).json
            assert state["status"] in ("failed", "cancelled")
            followed = await b.get(f"/v1/runs/{run}/events")
            assert followed.events[-1][0] in ("run.failed", "run.cancelled")


async def test_R12_a_hundred_requests_under_one_key_are_one_run(tmp_path: Path) -> None:
    async with api(tmp_path, [say("Once.")]) as a:
        headers = {"Idempotency-Key": "k1"}
        answers = await asyncio.gather(*(a.chat(headers=headers) for _ in range(100)))
        assert {x.body for x in answers} == {answers[0].body}
        assert len(a.provider.requests) == 1

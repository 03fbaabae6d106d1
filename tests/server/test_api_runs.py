"""/v1/runs: requests, states, events, approvals, restarts."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path

import pytest

from hermes.server.app import Server
from hermes.server.runs import runs
from tests.kit import Gate, Tokens, call, say, status, think
from tests.kit.api import Api, api, only_one_node
from tests.kit.home import KEY
from tests.kit.postgres import STORE
from tests.kit.server import Provider
from tests.server.exchanges import sent_messages, sent_system_prompt

RUNS = "/v1/runs"
WRITE = call(("c1", "write_file", {"path": "../out.txt", "content": "x"}))
STATES = {
    "queued",
    "running",
    "waiting_for_approval",
    "stopping",
    "completed",
    "failed",
    "cancelled",
}


async def start_run(a: Api, input: object = "do it", **body: object) -> str:
    started = await a.post(RUNS, {"input": input, **body})
    assert started.status == 202, started.body
    assert started.json == {"run_id": started.json["run_id"], "status": "started"}
    assert started.json["run_id"].startswith("run_")
    return str(started.json["run_id"])


async def read_events(a: Api, run: str, last: str = ""):
    headers = {"Last-Event-ID": last} if last else {}
    return await a.get(f"{RUNS}/{run}/events", headers=headers)


async def get_state(a: Api, run: str) -> dict:
    found = (await a.get(f"{RUNS}/{run}")).json
    assert found["status"] in STATES
    return found


async def wait_for_approval(a: Api, run: str) -> dict:
    """Wait for an approval request and return it."""
    async with a.open_stream("GET", f"{RUNS}/{run}/events") as reading:
        got = await reading.until(b"event: approval.request")
    frame = got.strip().split(b"\n\n")[-1]
    assert (await get_state(a, run))["status"] == "waiting_for_approval"
    return json.loads(frame.split(b"data: ")[1])


# -- the request -----------------------------------------------------------------------------

BAD = {
    "no input": ({}, 400, "input"),
    "input 42": ({"input": 42}, 400, "input"),
    "an empty input": ({"input": ""}, 400, "input"),
    "no user": ({"input": [{"role": "assistant", "content": "x"}]}, 400, "input"),
    "a history of text": ({"input": "x", "conversation_history": ["x"]}, 400, "history"),
    "a history that is none": ({"input": "x", "conversation_history": "x"}, 400, "history"),
    "a long session id": ({"input": "x", "session_id": "a" * 257}, 400, "session_id"),
    "a session id with a line break": ({"input": "x", "session_id": "a\nb"}, 400, "session_id"),
    "an unknown response": ({"input": "x", "previous_response_id": "resp_x"}, 404, "resp_x"),
}


class TestRequests:
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    @pytest.mark.parametrize("case", BAD, ids=str)
    async def test_refused(self, shared: Api, case: str) -> None:
        body, code, named = BAD[case]
        answer = await shared.post(RUNS, body)
        assert answer.status == code and named in answer.error["message"]

    async def test_null_fields_count_as_absent(self, shared: Api) -> None:
        names = ("instructions", "session_id", "conversation_history", "previous_response_id")
        await read_events(shared, await start_run(shared, **dict.fromkeys(names)))

    async def test_every_field_of_a_run_request(self, shared: Api) -> None:
        history = [
            {"role": "user", "content": "before"},
            {"role": "assistant", "content": "indeed"},
        ]
        run = await start_run(
            shared, "now", instructions="Be brief.", conversation_history=history, model="m"
        )
        await read_events(shared, run)
        assert [c for _, c in sent_messages(shared)] == ["before", "indeed", "now"]
        assert "Be brief." in sent_system_prompt(shared)
        assert (await get_state(shared, run))["model"] == "m"

    async def test_a_run_continues_a_session(self, shared: Api) -> None:
        for words in ("one", "two"):
            run = await start_run(shared, words, session_id="runs-session")
            await read_events(shared, run)
            assert (await get_state(shared, run))["session_id"] == "runs-session"
        assert [c for _, c in sent_messages(shared)] == ["one", "Yes.", "two"]
        told = [{"role": "user", "content": "past"}, {"role": "assistant", "content": "so"}]
        for session in ("runs-session", "runs-other"):  # history in the request replaces it
            run = await start_run(shared, "three", session_id=session, conversation_history=told)
            await read_events(shared, run)
            assert (await get_state(shared, run))["session_id"] == session
            assert [c for _, c in sent_messages(shared)] == ["past", "so", "three"]

    async def test_a_run_continues_a_response(self, shared: Api) -> None:
        made = await shared.ask("alpha", instructions="Be kind.")
        run = await start_run(shared, "beta", previous_response_id=made.json["id"])
        await read_events(shared, run)
        assert [c for _, c in sent_messages(shared)] == ["alpha", "Yes.", "beta"]
        assert "Be kind." in sent_system_prompt(shared)
        session = made.headers["X-Hermes-Session-Id"]
        assert (await get_state(shared, run))["session_id"] == session

    @pytest.mark.parametrize("what", ["", "/events"])
    async def test_unknown_runs(self, shared: Api, what: str) -> None:
        assert (await shared.get(f"{RUNS}/run_unknown{what}")).status == 404

    @pytest.mark.parametrize(
        ("what", "body"),
        [("stop", None), ("approval", {"choice": "once"}), ("steer", {"text": "x"})],
    )
    async def test_unknown_runs_cannot_be_changed(
        self, shared: Api, what: str, body: dict | None
    ) -> None:
        answer = await shared.post(f"{RUNS}/run_unknown/{what}", body)
        assert answer.status == 404 and answer.error["code"] == "run_not_found"

    @pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 30, "٣"])
    async def test_last_event_ids(self, shared: Api, last: str) -> None:
        run = await start_run(shared)
        await read_events(shared, run)
        answer = await read_events(shared, run, last)
        assert answer.status == (200 if last.isascii() and last.isdigit() else 400)
        assert answer.status == 400 or answer.body == b""


# -- states and events -----------------------------------------------------------------------


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
        found = (await a.get(f"/v1/runs/{run}")).json
        assert found["status"] == "completed" and found["output"] == "Done it."
        assert found["object"] == "hermes.run" and found["last_event"] == "run.completed"
        assert found["usage"].keys() == {"input_tokens", "output_tokens", "total_tokens"}


async def test_every_kind_of_event(tmp_path: Path) -> None:
    script = [
        (think("Hmm.") + call(("c1", "read_file", {"path": "none.txt"}))).usage(Tokens(10, 1)),
        say("Done ", "it.").usage(Tokens(20, 2)),
    ]
    async with api(tmp_path, script) as a:
        run = await start_run(a)
        followed = await read_events(a, run)
        assert followed.headers["Content-Type"].startswith("text/event-stream")
        events = followed.events
        for name, data in events:
            assert data["event"] == name and data["run_id"] == run
            assert isinstance(data["timestamp"], float)
        ids = [line for line in followed.body.decode().split("\n") if line.startswith("id: ")]
        assert ids == [f"id: {n}" for n in range(1, len(events) + 1)]
        by_name = {name: data for name, data in events}
        assert by_name["reasoning.available"]["text"] == "Hmm."
        started, completed = by_name["tool.started"], by_name["tool.completed"]
        assert started["tool"] == completed["tool"] == "read_file"
        assert started["toolCallId"] == completed["toolCallId"] == "c1"
        assert "none.txt" in started["preview"]
        assert completed["duration"] >= 0 and completed["error"] is True
        assert "".join(d["delta"] for n, d in events if n == "message.delta") == "Done it."
        name, last = events[-1]
        usage = {"input_tokens": 30, "output_tokens": 3, "total_tokens": 33}
        assert name == "run.completed" and last["output"] == "Done it." and last["usage"] == usage
        found = await get_state(a, run)
        assert found["object"] == "hermes.run" and found["run_id"] == run
        assert found["status"] == "completed" and found["last_event"] == "run.completed"
        assert found["output"] == "Done it." and found["usage"] == usage
        assert found["model"] == "hermes-agent" and found["session_id"].startswith("api-")
        assert found["created_at"] <= found["updated_at"] and "error" not in found


async def test_a_run_that_fails(tmp_path: Path) -> None:
    async with api(tmp_path, then=status(404, f"no model for {KEY}")) as a:
        run = await start_run(a)
        followed = await read_events(a, run)
        name, last = followed.events[-1]
        assert name == "run.failed" and last["error"]
        found = await get_state(a, run)
        assert found["status"] == "failed" and found["error"] == last["error"]
        assert KEY.encode() not in followed.body and KEY not in json.dumps(found)


@only_one_node
async def test_the_state_of_a_run_while_it_runs(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [say("Half", " of it").hold(gate, after="text")]) as a:
        run = await start_run(a)
        await gate.reached()
        found = await get_state(a, run)
        assert found["status"] == "running" and "output" not in found
        assert (await a.get("/health/detailed")).json["active_agents"] == 1
        gate.open()
        await read_events(a, run)
        assert (await get_state(a, run))["status"] == "completed"
        assert (await a.get("/health/detailed")).json["active_agents"] == 0


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


async def test_R11_live_streams_cut_anywhere_resume_byte_identically(tmp_path: Path) -> None:
    """A reader that is cut off again and again sees the same bytes as two that are not."""
    rng = random.Random(5)
    words = [f"word{n} " for n in range(60)]
    async with api(tmp_path, then=say(*words).slow(0.003)) as a:
        cuts = 0
        while cuts <= 30:
            run = await start_run(a)
            readers = [asyncio.create_task(read_events(a, run)) for _ in range(2)]
            pieces = b""
            while b"event: run.completed" not in pieces:
                last = str(pieces.count(b"\nevent: "))
                headers = {"Last-Event-ID": last} if last != "0" else {}
                async with a.open_stream("GET", f"{RUNS}/{run}/events", **headers) as reading:
                    for _ in range(rng.randrange(1, 6)):
                        piece = await reading.until(b"\n\n")
                        pieces += piece
                        if b"event: run.completed" in piece:
                            break
                cuts += 1
            one, two = [await reader for reader in readers]
            assert pieces == one.body == two.body
            assert (await read_events(a, run)).body == one.body


async def test_a_hundred_late_readers(tmp_path: Path) -> None:
    async with api(tmp_path, [say("One ", "two.")]) as a:
        run = await start_run(a)
        bodies = {x.body for x in await asyncio.gather(*(read_events(a, run) for _ in range(100)))}
        assert len(bodies) == 1


async def test_readers_that_leave_do_not_stop_the_run(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [say("Half", " of it").hold(gate, after="text")]) as a:
        run = await start_run(a)
        for _ in range(3):
            async with a.open_stream("GET", f"{RUNS}/{run}/events") as reading:
                await reading.until(b"Half")
        gate.open()
        assert (await read_events(a, run)).events[-1][0] == "run.completed"


async def test_old_runs_are_deleted_but_no_active_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_RUNS", 3)
    gate = Gate()
    script = [say("Half", " of it").hold(gate, after="text")]
    async with api(tmp_path, script, then=say("x")) as a:
        waits = await start_run(a)
        await gate.reached()
        short = []
        for _ in range(6):
            short.append(await start_run(a))
            await read_events(a, short[-1])
        assert (await get_state(a, waits))["status"] == "running"
        gate.open()
        told = await read_events(a, waits)
        deltas = "".join(data["delta"] for name, data in told.events if name == "message.delta")
        assert deltas == "Half of it" and told.events[-1][0] == "run.completed"
        found = [(await a.get(f"{RUNS}/{run}")).status for run in short]
        assert found[0] == found[1] == 404 and found[-2:] == [200, 200]


# -- stop, steer -----------------------------------------------------------------------------


async def test_stop_at_any_moment(tmp_path: Path) -> None:
    """A stopped run ends as cancelled."""
    async with api(tmp_path, then=say("Half", " of it").hold(Gate(), after="text")) as a:
        for n in range(8):
            run = await start_run(a)
            for _ in range(n):
                await asyncio.sleep(0)
            assert (await a.post(f"{RUNS}/{run}/stop")).status == 200
            followed = await read_events(a, run)
            assert followed.events[-1][0] == "run.cancelled"
            assert (await get_state(a, run))["status"] == "cancelled"


async def test_stop_ends_a_run_as_cancelled(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [say("Half", " of it").hold(gate, after="text")]) as a:
        run = (await a.post("/v1/runs", {"input": "talk"})).json["run_id"]
        await gate.reached()
        stopped = await a.post(f"/v1/runs/{run}/stop")
        assert stopped.json["status"] in ("stopping", "cancelled")
        await read_events(a, run)
        found = await get_state(a, run)
        assert found["status"] == "cancelled" and found["last_event"] == "run.cancelled"


async def test_stop_kills_the_tool(tmp_path: Path) -> None:
    work = call(("c1", "terminal", {"command": "touch begun; sleep 300; touch after"}))
    async with api(tmp_path, [work]) as a:
        run = await start_run(a)
        async with asyncio.timeout(90):
            while not (a.home.work / "begun").exists():
                await asyncio.sleep(0.02)
        await a.post(f"{RUNS}/{run}/stop")
        await read_events(a, run)
        assert (await get_state(a, run))["status"] == "cancelled"
        assert (await a.post(f"{RUNS}/{run}/stop")).json["status"] == "cancelled"  # again


async def test_steer(tmp_path: Path) -> None:
    gate = Gate()
    first = call(("c1", "todo", {})).hold(gate, n=0)
    async with api(tmp_path, [first, say("As you wish.")]) as a:
        run = await start_run(a)
        await gate.reached()
        assert (await a.post(f"{RUNS}/{run}/steer", {"text": "look left"})).status == 200
        gate.open()
        await read_events(a, run)
        assert b"look left" in a.provider.last.body
        late = await a.post(f"{RUNS}/{run}/steer", {"text": "x"})
        assert late.status == 409
        assert (await a.post(f"{RUNS}/{run}/steer", {"text": ""})).status == 400
        assert (await a.post(f"{RUNS}/{run}/steer", {})).status == 400


async def test_steering_after_the_last_call_adds_another_turn(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [say("One", ".").hold(gate, after="text"), say("Two.")]) as a:
        run = await start_run(a)
        await gate.reached()
        await a.post(f"{RUNS}/{run}/steer", {"text": "one more thing"})
        gate.open()
        followed = await read_events(a, run)
        assert [n for n, _ in followed.events].count("run.completed") == 1
        assert followed.events[-1][1]["output"] == "Two."


# -- two servers of one home -----------------------------------------------------------------


@pytest.mark.skipif(os.environ.get(STORE) == "postgres", reason="nodes take orders")
async def test_runs_of_another_server_can_be_followed_but_not_changed(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [say("Half ", "done").hold(gate, "text")]) as a:
        run = await start_run(a)
        async with a.open_stream("GET", f"{RUNS}/{run}/events") as reading:
            await reading.until(b"Half ")
        second = Server(a.server.runtime, a.server.settings)
        async with second.listen() as url:
            other = Api(url, second, a.provider, a.home, a.key)
            other.http = a.http
            assert (await get_state(other, run))["status"] == "running"
            for what, body in (("stop", None), ("approval", {"choice": "once"})):
                answer = await other.post(f"{RUNS}/{run}/{what}", body)
                assert answer.status == 409 and answer.error["code"] == "elsewhere"
            following = asyncio.create_task(read_events(other, run))
            gate.open()
            told = await read_events(a, run)
            assert [name for name, _ in told.events] == ["message.delta"] * 2 + ["run.completed"]
            assert (await following).body == told.body


# -- approvals -------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["once", "session", "always", "deny"])
async def test_an_approval_waits_and_is_answered(tmp_path: Path, choice: str) -> None:
    async with api(tmp_path, [WRITE, say("ok")]) as a:
        run = await start_run(a)
        asked = await wait_for_approval(a, run)
        assert asked["approval_id"] and asked["command"] and "once" in asked["choices"]
        for wrong in ({"choice": "maybe"}, {"choice": 1}, {"choice": None}, {}):
            assert (await a.post(f"{RUNS}/{run}/approval", wrong)).status == 400
        other = {"choice": choice, "approval_id": "another"}
        assert (await a.post(f"{RUNS}/{run}/approval", other)).status == 409
        answered = await a.post(f"{RUNS}/{run}/approval", {"choice": choice})
        assert answered.status == 200
        events = (await read_events(a, run)).events
        (responded,) = [d for n, d in events if n == "approval.responded"]
        assert responded["choice"] == answered.json["choice"] == choice
        assert ("applied" in responded) == (choice not in asked["choices"])
        assert events[-1][0] == "run.completed"
        assert (tmp_path / "out.txt").exists() == (choice != "deny")
        assert (await a.post(f"{RUNS}/{run}/approval", {"choice": choice})).status == 409


@only_one_node
@pytest.mark.parametrize(("scope", "saved"), [((), False), (("admin",), True)])
async def test_only_an_admin_saves_rules_with_a_named_key(
    tmp_path: Path, scope: tuple[str, ...], saved: bool
) -> None:
    """For another the rule ends with the session."""
    keys = [{"name": "ann", "key_env": "ANN_KEY", "scopes": ["chat", "runs", "approve", *scope]}]
    drop = call(("c1", "terminal", {"command": "git stash drop"}))
    env = {"ANN_KEY": "ann-key-0123456789abcdef0123"}
    async with api(tmp_path, [drop, say("ok")], key="", settings={"keys": keys}, env=env) as a:
        a.key = env["ANN_KEY"]
        run = await start_run(a)
        assert "always" in (await wait_for_approval(a, run))["choices"]
        answered = (await a.post(f"{RUNS}/{run}/approval", {"choice": "always"})).json
        assert answered.get("applied") == (None if saved else "session")
        await read_events(a, run)
        config = (a.home.path / "config.yaml").read_text()
        assert ("stash" in config) == saved


async def test_a_run_continues_after_its_approval(tmp_path: Path) -> None:
    script = [call(("c1", "write_file", {"path": "../out.txt", "content": "x"})), say("ok")]
    async with api(tmp_path, script) as a:
        run = (await a.post("/v1/runs", {"input": "write"})).json["run_id"]
        async with a.http.get(
            f"{a.url}/v1/runs/{run}/events", headers={"Authorization": f"Bearer {a.key}"}
        ) as stream:
            async for line in stream.content:
                if line.startswith(b"event: approval.request"):
                    break
            found = (await a.get(f"/v1/runs/{run}")).json
            assert found["status"] == "waiting_for_approval"
            assert (await a.post(f"/v1/runs/{run}/approval", {"choice": "maybe"})).status == 400
            answered = await a.post(f"/v1/runs/{run}/approval", {"choice": "once"})
            assert answered.status == 200
            rest = await stream.content.read()
        assert b"approval.responded" in rest and b"run.completed" in rest
        assert (tmp_path / "out.txt").read_text() == "x"
        late = await a.post(f"/v1/runs/{run}/approval", {"choice": "once"})
        assert late.status == 409


async def test_without_a_pending_approval_the_answer_is_409(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [say("x").hold(gate, n=0)]) as a:
        run = await start_run(a)
        await gate.reached()
        answer = await a.post(f"{RUNS}/{run}/approval", {"choice": "once"})
        assert answer.status == 409 and answer.error["type"] == "conflict_error"
        gate.open()
        await read_events(a, run)


async def test_an_approval_is_denied_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    monkeypatch.setattr("hermes.app.live.interactions.APPROVAL_SECONDS", 0.2)
    async with api(tmp_path, [WRITE, say("Fine.").hold(gate, n=0)]) as a:
        run = await start_run(a)
        await gate.reached()
        async with asyncio.timeout(90):
            while (await get_state(a, run))["status"] != "running":
                await asyncio.sleep(0)  # clients see the stored state
        assert (await a.post(f"{RUNS}/{run}/approval", {"choice": "once"})).status == 409
        gate.open()
        assert (await read_events(a, run)).events[-1][0] == "run.completed"
        assert not (tmp_path / "out.txt").exists()


async def test_stop_while_an_approval_is_pending(tmp_path: Path) -> None:
    async with api(tmp_path, [WRITE]) as a:
        run = await start_run(a)
        await wait_for_approval(a, run)
        await a.post(f"{RUNS}/{run}/stop")
        assert (await read_events(a, run)).events[-1][0] == "run.cancelled"
        assert not (tmp_path / "out.txt").exists()


async def test_questions_are_not_answered(tmp_path: Path) -> None:
    """Clients of runs cannot answer questions; the run continues without an answer."""
    ask = call(("c1", "clarify", {"question": "Which one?"}))
    async with api(tmp_path, [ask, say("Then both.")]) as a:
        followed = await read_events(a, await start_run(a))
        assert followed.events[-1][0] == "run.completed"


# -- a restart -------------------------------------------------------------------------------


@pytest.mark.skipif(os.environ.get(STORE) == "postgres", reason="nodes hand runs over")
async def test_a_run_interrupted_by_a_restart_has_failed(tmp_path: Path) -> None:
    gate = Gate()
    settings = {"drain_seconds": 0}
    async with Provider([say("Half", " of it").hold(gate, after="text"), say("x")]) as provider:
        async with api(tmp_path, provider, settings=settings) as a:
            run = (await a.post("/v1/runs", {"input": "talk"})).json["run_id"]
            await gate.reached()
        async with api(tmp_path, provider, settings=settings) as b:
            found = (await b.get(f"/v1/runs/{run}")).json
            assert found["status"] in ("failed", "cancelled")
            followed = await b.get(f"/v1/runs/{run}/events")
            assert followed.events[-1][0] in ("run.failed", "run.cancelled")


@pytest.mark.skipif(os.environ.get(STORE) == "postgres", reason="nodes hand runs over")
async def test_a_stopping_server_ends_its_event_streams(tmp_path: Path) -> None:
    """F97: the last event has a reason and equals the stored one."""
    gate = Gate()
    async with Provider([say("Half", " of it").hold(gate, after="text"), say("x")]) as provider:
        async with api(tmp_path, provider, settings={"drain_seconds": 0.05}) as a:
            run = await start_run(a)
            opened = a.open_stream("GET", f"{RUNS}/{run}/events")
            reading = await opened.__aenter__()
            seen = await reading.until(b"Half")
            rest = asyncio.create_task(reading.rest())
            await asyncio.sleep(0)
        told = await rest
        await opened.__aexit__(None, None, None)
        assert b"event: run.failed" in told and b"session_id" in told
        async with api(tmp_path, provider) as b:
            found = await get_state(b, run)
            assert found["status"] == "failed" and "session_id" in found["error"]
            assert (await read_events(b, run)).body == seen + told


async def test_a_stopping_server_lets_runs_end(tmp_path: Path) -> None:
    gate = Gate()
    async with Provider([say("Half", " of it").hold(gate, after="text")]) as provider:
        async with api(tmp_path, provider) as a:
            run = await start_run(a)
            await gate.reached()
            asyncio.get_running_loop().call_later(0.2, gate.open)
        async with api(tmp_path, provider) as b:
            found = await get_state(b, run)
            assert found["status"] == "completed" and found["output"] == "Half of it"


async def test_a_stopping_server_ends_its_chats(tmp_path: Path) -> None:
    gate = Gate()
    async with api(
        tmp_path, [say("Half", " of it").hold(gate, after="text")], settings={"drain_seconds": 0.05}
    ) as a:
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
        opened = a.open_stream("POST", "/v1/chat/completions", body)
        reading = await opened.__aenter__()
        await reading.until(b"Half")
        rest = asyncio.create_task(reading.rest())
        await asyncio.sleep(0)
    told = await rest
    assert told.endswith(b"data: [DONE]\n\n") and b"server_stopping" in told
    assert b'"finish_reason":"error"' in told
    await opened.__aexit__(None, None, None)

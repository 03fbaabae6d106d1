"""Details that pages and other clients of the dashboard rely on."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from hermes.app.live.stored_queue import StoredQueue
from hermes.core.message import Message, Text, ToolCall, ToolReturn, user_message
from hermes.core.store import SessionMeta
from hermes.server.routes.operator import keys
from tests.kit import Gate, call, say, status
from tests.kit.api import api
from tests.kit.dashboard import ON, sign_in
from tests.kit.model_hub import open_hub
from tests.server.test_dashboard_live import texts

ALL = "/api/sessions"


async def test_guidance_is_stored_until_the_transcript_has_it(tmp_path: Path) -> None:
    gate = Gate()
    first = call(("c1", "write_file", {"path": "a.txt", "content": "x"})).hold(gate, n=0)
    async with api(tmp_path, [first], then=say("Steered."), config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        queue = StoredQueue(a.server.runtime.store.objects)
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "one", "c1")
            await feed.until("message", role="user")
            await gate.reached()
            (row,) = (await browser.get("/api/overview")).json["running"]
            assert row["doing"] == "thinks" and row["seconds"] > 0 and row["cost_usd"] == 0
            steered = (await browser.send(session, "rather two", "c2", busy="steer")).json
            assert steered["state"] == "steered"
            kept = {item.id: item.message.text for item in await queue.list_messages()}
            assert kept[steered["id"]] == "rather two"
            turns = (await feed.until("turns"))["turns"]
            while turns[-1]["state"] != "steered":
                turns = (await feed.until("turns"))["turns"]
            gate.open()
            await feed.until("end")
            async with asyncio.timeout(90):
                while await queue.list_messages():
                    await asyncio.sleep(0.02)
        stored = (await browser.get(f"{ALL}/{session}/messages")).json["data"]
        assert texts(stored).count("rather two") == 1 and texts(stored)[-1] == "Steered."


async def test_the_overview_names_what_failed(tmp_path: Path) -> None:
    async with api(tmp_path, [status(401)], config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "hello", "c1")
            await feed.until("end", status="failed")
        answer = await browser.get("/api/overview")
        assert answer.status == 200
        (row,) = answer.json["failures"]
        assert (row["id"], row["state"], row["message_count"]) == (session, "failed", 1)


async def test_guidance_that_a_stopped_turn_did_not_read_is_answered_next(tmp_path: Path) -> None:
    gate = Gate()
    held = say("Never", " said").hold(gate, n=0)
    async with api(tmp_path, [held], then=say("Answered."), config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "one", "c1")
            await feed.until("message", role="user")
            await gate.reached()
            steered = (await browser.send(session, "two", "c2", busy="steer")).json
            assert steered["state"] == "steered"
            assert (await browser.post(f"{ALL}/{session}/stop")).status == 200
            await feed.until("end", status="interrupted")
            await feed.until("end", status="completed")
        stored = (await browser.get(f"{ALL}/{session}/messages")).json["data"]
        said = [text for text in texts(stored) if text in ("one", "two", "Answered.")]
        assert said == ["one", "two", "Answered."]
        gate.open()


async def test_files_of_the_workspace_are_found(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser, work = await sign_in(a), a.home.work
        (work / ".gitignore").write_text("*.log\n")
        (work / "src").mkdir()
        for name in ("notes.txt", "src/notebook.py", "src/other.py", "src/note.log"):
            (work / name).write_text("x")
        session = await browser.create_session()
        for place in (f"&session={session}", ""):
            rows = (await browser.get(f"/api/files?q=NOTE{place}")).json["data"]
            assert [row["path"] for row in rows] == ["notes.txt", "src/notebook.py"]
        every = [row["path"] for row in (await browser.get("/api/files")).json["data"]]
        assert "src/other.py" in every and "src/note.log" not in every
        assert (await browser.get("/api/files?session=nothing")).status == 404


async def test_the_effort_of_a_session_is_kept(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        assert (await browser.get(f"{ALL}/{session}")).json["effort"] is None
        await browser.call("PATCH", f"{ALL}/{session}", {"effort": "high"})
        assert (await browser.get(f"{ALL}/{session}")).json["effort"] == "high"


async def test_a_job_is_edited(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        made = (await browser.post("/api/jobs", {"schedule": "daily 09:00", "prompt": "Tea."})).json
        path = f"/api/jobs/{made['id']}"
        dry = await browser.call("PATCH", path, {"schedule": "daily 10:00", "dry_run": True})
        assert dry.status == 200 and len(dry.json["next_times"]) == 5
        (job,) = (await browser.get("/api/jobs")).json["data"]
        assert job["schedule"] == made["schedule"]
        wrong = await browser.call("PATCH", path, {"schedule": "every blue moon"})
        assert wrong.status == 422 and wrong.error["message"]
        changed = await browser.call(
            "PATCH", path, {"schedule": "daily 10:00", "prompt": "Coffee."}
        )
        assert changed.status == 200
        (job,) = (await browser.get("/api/jobs")).json["data"]
        assert job["prompt"] == "Coffee." and job["schedule"] != made["schedule"]
        assert (await browser.call("PATCH", "/api/jobs/none", {"prompt": "x"})).status == 404


async def test_a_model_is_downloaded_with_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_hub() as hub, api(tmp_path, config=ON) as a:
        monkeypatch.setattr(keys, "find_model", {"tiny": hub.model}.get)
        browser, path = await sign_in(a), "/api/models/pull"

        async def wait_until(reached: Any) -> Any:
            async with asyncio.timeout(90):
                while True:
                    (row,) = (await browser.get(path)).json["data"]
                    if reached(row):
                        return row
                    await asyncio.sleep(0.02)

        assert (await browser.get(path)).json["data"] == []
        assert (await browser.post(path, {"name": "huge"})).status == 422
        for _ in range(2):
            assert (await browser.post(path, {"name": "tiny"})).status == 202
        row = await wait_until(lambda row: row["done"] > 0)
        assert row["state"] == "running" and row["done"] < row["total"] == hub.model.size
        hub.release.set()
        row = await wait_until(lambda row: row["state"] != "running")
        assert row["state"] == "done" and row["done"] == row["total"]
        found = list(a.home.path.rglob("tiny.gguf"))
        assert [file.stat().st_size for file in found] == [hub.model.size]


async def test_keys_that_variables_set_are_named(tmp_path: Path) -> None:
    env = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    async with api(tmp_path, config={**ON, "model": {}}, env=env) as a:
        browser, file = await sign_in(a), a.server.runtime.setup.home / "config.yaml"
        file.write_text("agent:\n  max_turns: 9\n")
        origin = (await browser.get("/api/config")).json["origin"]
        assert origin["model.base_url"] == origin["platforms"] == "environment"
        assert origin["agent.max_turns"] == "file" and origin["model.default"] == "default"


async def test_a_ticket_is_for_one_address_with_its_query(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        path = f"{ALL}/{session}/export?format=json"
        href = (await browser.post("/api/web/ticket", {"path": path})).json["href"]
        other = href.replace("format=json", "format=html")
        assert (await a.get(f"/{other}", key="")).status == 401
        assert (await a.get(f"/{href}", key="")).status == 401  # it was used up
        href = (await browser.post("/api/web/ticket", {"path": path})).json["href"]
        assert (await a.get(f"/{href}", key="")).status == 200


async def test_the_cookie_lasts_as_long_as_the_session(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        real = time.time
        try:
            time.time = lambda: real() + 20 * 86_400  # type: ignore[assignment]
            answer = await browser.get("/api/web/session")
            left = answer.json["expires_at"] - time.time()
        finally:
            time.time = real
        cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith(browser.cookie) and "HttpOnly" in cookie
        age = int(cookie.partition("Max-Age=")[2].partition(";")[0])
        assert all(29 * 86_400 < seconds <= 30 * 86_400 for seconds in (left, age))
        nobody = await a.get("/api/web/session", key="")
        assert nobody.json["principal"] is None and "Set-Cookie" not in nobody.headers


async def test_results_are_shortened_to_16_kb(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        long, short = "ä" * 10_000, "ok"
        messages = [
            user_message("read"),
            Message("assistant", (ToolCall("a", "read_file", "{}"), ToolCall("b", "todo", "{}"))),
            Message("tool", (ToolReturn("a", "read_file", (Text(long),)),)),
            Message("tool", (ToolReturn("b", "todo", (Text(short),)),)),
        ]
        meta = SessionMeta("big", source="cli", cwd=str(tmp_path))
        await a.server.runtime.store.sessions.append("big", messages, create=meta)
        data = (await browser.get(f"{ALL}/big/messages")).json["data"]
        first, second = data[2]["content"][0], data[3]["content"][0]
        assert (first["bytes"], first["more"]) == (20_000, True)
        assert len(first["text"].encode()) == 16 * 1024
        assert (second["bytes"], second["more"], second["text"]) == (2, False, "ok")
        assert first["diff"] == second["diff"] == ""
        assert (await browser.get(f"{ALL}/big/results/a")).body.decode() == long


async def test_an_approval_has_the_id_of_runs_too(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "git push origin main"})), say("Done.")]
    async with api(tmp_path, steps, config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "push it", "c1")
            asked = await feed.until("approval", session=session)
            assert asked["approval_id"] == asked["id"]
            answer = {"choice": "deny", "digest": asked["digest"]}
            path = f"{ALL}/{session}/approvals/{asked['approval_id']}"
            assert (await browser.post(path, answer)).status == 200
            await feed.until("end")


async def test_answers_are_not_kept_by_anybody(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        answers = [
            await browser.get(ALL),
            await browser.get(f"{ALL}/none"),
            await a.get(ALL),
            await a.get(ALL, key="", headers={"Cookie": browser.cookie}),
            await a.post("/api/web/login", {"code": "abc"}, key="", headers={"Origin": a.url}),
        ]
        assert [answer.status for answer in answers] == [200, 404, 200, 401, 400]
        assert {answer.headers["Cache-Control"] for answer in answers} == {"no-store"}
        wrong = {"schedule": "every blue moon", "prompt": "x"}
        refused = await browser.post("/api/jobs", wrong)
        assert refused.status == 422 and refused.error["type"] == "invalid_request_error"


async def test_notices_and_recoveries_are_those_of_stream_json(tmp_path: Path) -> None:
    async with api(tmp_path, [status(500), say("Yes.")], config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "hello", "c1")
            recovering = await feed.until("recovering")
            await feed.until("end", status="completed")
        assert recovering.keys() == {"session", "kind", "action", "wait_seconds"}

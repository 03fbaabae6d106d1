"""What happens outside sessions reaches the operator's pages, and nobody else's."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from hermes.config import paths
from hermes.gateway.process.state_file import (
    GatewayStatus,
    PlatformStatus,
    acquire_lock,
    write_status,
)
from tests.kit import say
from tests.kit.api import api
from tests.kit.dashboard import ON, Browser, sign_in
from tests.server.key_owners import ANN, ENV, SETTINGS


async def test_settings_jobs_platforms_budget_and_the_log_are_followed(tmp_path: Path) -> None:
    config = {**ON, "budget": {"daily_tokens": 1_000_000}}
    async with api(tmp_path, then=say("Yes."), config=config) as a:
        browser, home = await sign_in(a), a.server.runtime.setup.home
        session = await browser.create_session()
        async with browser.watch(f"{session}:-1&logs=warning") as feed:
            await feed.until("snapshot", session=session)
            version = (await browser.get("/api/config")).json["version"]
            body = {"version": version, "changes": {"agent.max_turns": 7}}
            changed = (await browser.call("PATCH", "/api/config", body)).json
            assert (await feed.until("config"))["version"] == changed["version"]

            job = {"schedule": "daily 09:00", "prompt": "Say good morning."}
            made = (await browser.post("/api/jobs", job)).json["id"]
            assert (await feed.until("job", id=made))["prompt"] == job["prompt"]
            await browser.call("DELETE", f"/api/jobs/{made}")
            await feed.until("job", id=made, deleted=True)

            records = [
                {"time": "2026-01-01T00:00:00Z", "level": "info", "message": "quiet"},
                {"time": "2026-01-01T00:00:01Z", "level": "error", "message": "loud"},
            ]
            file = paths.log_file(home)
            file.parent.mkdir(exist_ok=True)
            file.write_text("".join(json.dumps(record) + "\n" for record in records))
            assert (await feed.until("log"))["message"] == "loud"

            held = acquire_lock(home)
            assert held is not None
            status = GatewayStatus(1, "running", time.time())
            status.platforms = {"irc": PlatformStatus("connected")}
            write_status(home, status)
            assert (await feed.until("platform", id="irc"))["state"] == "connected"
            os.close(held)

            await browser.send(session, "hello")
            spent = await feed.until("budget")
            assert spent["levels"][0]["spent"] > 0


async def test_a_named_key_gets_none_of_it(tmp_path: Path) -> None:
    async with api(tmp_path, key="", settings=SETTINGS, env=ENV, config=ON) as a:
        answer = await a.post("/api/web/login", {"key": ANN}, key="", headers={"Origin": a.url})
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        ann = Browser(a, cookie, answer.json["page_token"])
        assert (await ann.get("/api/events?logs=info")).status == 403
        operator = await sign_in(a)
        assert (await operator.get("/api/events?logs=loud")).status == 400
        own = await ann.create_session()
        async with ann.watch(f"{own}:-1") as feed, operator.watch() as watched:
            await feed.until("snapshot", session=own)
            await watched.until("hello")
            version = (await operator.get("/api/config")).json["version"]
            body = {"version": version, "changes": {"agent.max_turns": 7}}
            await operator.call("PATCH", "/api/config", body)
            await watched.until("config")
            await ann.call("PATCH", f"/api/sessions/{own}", {"title": "mine"})
            await feed.until("session")
            assert "config" not in {name for name, _ in feed.seen}

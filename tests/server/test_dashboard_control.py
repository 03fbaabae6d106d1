"""The operator's control in the dashboard: connections, skills, doctor, keys, models, rules."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from hermes.core.store import Pairing
from hermes.gateway.people.pairing_desk import hash_code
from hermes.store.sqlite import SqliteStore
from tests.kit import say
from tests.kit.api import Api, api
from tests.kit.dashboard import ON, sign_in
from tests.kit.skills import write_skill

SECRET = "sk-very-secret-value-0123456789"


def find_row(answer: Any, name: str) -> Any:
    return next(row for row in answer.json["data"] if row["name"] == name)


async def test_platforms_say_whether_they_are_on_and_connected(tmp_path: Path) -> None:
    env = {"TELEGRAM_BOT_TOKEN": SECRET}
    async with api(tmp_path, env=env, config=ON) as a:
        found = await (await sign_in(a)).get("/api/platforms")
        assert find_row(found, "telegram")["enabled"] and not find_row(found, "irc")["enabled"]
        assert find_row(found, "telegram")["state"] == "stopped"
        assert found.json["gateway"] is None and SECRET.encode() not in found.body


async def wait_at_the_door(a: Api, code: str) -> None:
    store = a.server.runtime.store
    assert isinstance(store, SqliteStore)
    waiting = Pairing("telegram", "42", "Ann", "42", time.time(), code=hash_code(code))
    await store.pairings.put(waiting)


async def test_people_are_let_in_by_their_code(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        await wait_at_the_door(a, "ABCD2345")
        (row,) = (await browser.get("/api/pairing")).json["data"]
        assert row["state"] == "waiting" and "code" not in row
        body = {"verb": "approve", "platform": "telegram", "code": "WRONG234"}
        wrong = await browser.post("/api/pairing", body)
        assert wrong.status == 422 and "Nobody was let in" in wrong.error["message"]
        done = await browser.post("/api/pairing", {**body, "code": "abcd2345"})
        assert done.status == 200 and "may talk" in done.json["lines"][0]
        (row,) = (await browser.get("/api/pairing")).json["data"]
        assert row["state"] == "paired"
        out = {"verb": "revoke", "platform": "telegram", "user": "42"}
        assert (await browser.post("/api/pairing", out)).status == 200
        assert (await browser.post("/api/pairing", out)).status == 422
        assert (await browser.get("/api/pairing")).json["data"] == []


async def test_a_plugin_is_shown_before_it_is_installed(tmp_path: Path) -> None:
    source = tmp_path / "weather"
    source.mkdir()
    (source / "plugin.yaml").write_text("name: weather\nversion: '1'\ndescription: Rain.\n")
    (source / "__init__.py").write_text("def register(api):\n    pass\n")
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        body = {"verb": "install", "source": str(source)}
        shown = (await browser.post("/api/plugins", body)).json["preview"]
        assert shown["name"] == "weather" and not shown["blocked"]
        assert (await browser.get("/api/plugins")).json["data"] == []
        other = await browser.post("/api/plugins", {**body, "confirm": "0" * 64})
        assert other.status == 422
        done = await browser.post("/api/plugins", {**body, "confirm": shown["digest"]})
        assert done.status == 200, done.body
        for verb, state in (("enable", "enabled"), ("disable", "disabled")):
            assert (await browser.post("/api/plugins", {"verb": verb, "name": "weather"})).json
            assert find_row(await browser.get("/api/plugins"), "weather")["state"] == state
        assert (
            await browser.post("/api/plugins", {"verb": "remove", "name": "weather"})
        ).status == 200
        assert (await browser.get("/api/plugins")).json["data"] == []


async def test_skills_are_listed_read_installed_and_switched(tmp_path: Path) -> None:
    source = write_skill(tmp_path / "offered", "brewing", "Boil water first.")
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        body = {"verb": "install", "source": str(source)}
        shown = (await browser.post("/api/skills", body)).json["preview"]
        assert [file["name"] for file in shown["files"]] == ["SKILL.md"]
        done = await browser.post("/api/skills", {**body, "confirm": shown["digest"]})
        assert done.status == 200, done.body
        row = find_row(await browser.get("/api/skills?q=brewing"), "brewing")
        assert not row["disabled"] and row["installed_from"] == str(source)
        assert "Boil water" in (await browser.get("/api/skills/brewing")).json["text"]
        assert (await browser.get("/api/skills/nothing")).status == 404
        await browser.post("/api/skills", {"verb": "disable", "name": "brewing"})
        assert find_row(await browser.get("/api/skills"), "brewing")["disabled"]
        gone = {"verb": "remove", "name": "brewing"}
        assert (await browser.post("/api/skills", gone)).status == 200
        assert (await browser.post("/api/skills", {**gone, "verb": "restore"})).status == 200
        assert find_row(await browser.get("/api/skills"), "brewing")
        bad = await browser.post("/api/skills", {"verb": "remove", "name": "../x"})
        assert bad.status == 400


async def test_the_doctor_finds_and_repairs(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser, home = await sign_in(a), a.server.runtime.setup.home
        (home / "run").mkdir(exist_ok=True)
        left = home / "run" / f"{'0' * 32}.lock"
        left.touch(mode=0o600)
        found = await browser.post("/api/doctor")
        assert find_row(found, "leftovers")["fixable"]
        assert not find_row(found, "configuration")["fixable"]
        done = (await browser.post("/api/doctor/leftovers/fix")).json
        assert done["check"]["state"] == "ok" and not left.exists()
        assert (await browser.post("/api/doctor/sqlite/fix")).status == 409


async def test_keys_and_models_are_tried_with_a_real_call(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("OK"), config=ON) as a:
        browser = await sign_in(a)
        models = (await browser.get("/api/models")).json
        current = models["current"]
        assert current["model"] and "…" not in json.dumps(current["keys"])
        tried = (await browser.post("/api/models/test")).json
        assert tried["works"] and tried["model"] == current["model"], tried
        assert (await browser.post("/api/keys/NOT_SET_KEY/test")).status == 422
        put = await browser.call("PUT", "/api/keys/LAB_API_KEY", {"value": SECRET})
        assert put.status == 200
        unused = await browser.post("/api/keys/LAB_API_KEY/test")
        assert unused.status == 422 and SECRET.encode() not in unused.body
        row = find_row(await browser.get("/api/keys"), "LAB_API_KEY")
        assert row == {
            **{"name": "LAB_API_KEY", "set": True, "from": ".env", "provider": ""},
            **{"used_at": None, "failed": None},
        }


async def test_rules_are_added_counted_and_removed(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        path = "/api/approvals/rules"
        rule = {"decision": "deny", "prefix": "git push"}
        made = await browser.post(path, rule)
        assert made.status == 201, made.body
        check = {"command": "git push origin main"}
        assert (await browser.post("/api/approvals/check", check)).json["decision"] == "deny"
        (listed,) = (await browser.get(path)).json["data"]
        assert listed["id"] == made.json["id"] and "git push" in listed["text"]
        assert (await browser.call("DELETE", f"{path}?id={listed['id']}")).status == 200
        assert (await browser.get(path)).json["data"] == []
        assert (await browser.post("/api/approvals/check", check)).json["decision"] != "deny"
        assert (await browser.post(path, {"decision": "maybe", "prefix": "x"})).status == 400


async def test_the_budget_and_usage_by_two_properties(tmp_path: Path) -> None:
    config = {**ON, "budget": {"daily_tokens": 1_000_000, "daily_usd": 5}}
    async with api(tmp_path, then=say("Yes."), config=config) as a:
        browser = await sign_in(a)
        before = (await browser.get("/api/budget")).json
        assert [level["cap"] for level in before["levels"]] == ["daily_usd", "daily_tokens"]
        assert (await a.chat("hello")).status == 200
        usage = (await browser.get("/api/usage?by=purpose&split=model")).json
        (day,) = usage["split"]
        assert day["key"] == usage["days"][0]["key"] and day["parts"][0]["calls"] == 1
        today = usage["to"]
        same = (await browser.get(f"/api/usage?from={today}&to={today}")).json
        assert same["total"]["calls"] == 1
        earlier = (await browser.get("/api/usage?from=2020-01-01&to=2020-01-31")).json
        assert earlier["total"]["calls"] == 0
        for query in ("from=yesterday", "from=2026-02-01&to=2026-01-01", "split=colour"):
            assert (await browser.get(f"/api/usage?{query}")).status == 400
        tokens = (await browser.get("/api/budget")).json["levels"][1]
        assert tokens["spent"] == usage["total"]["input"] + usage["total"]["output"]

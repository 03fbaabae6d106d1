"""The operator's pages: configuration, keys, rules, usage, what runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hermes.config.catalogue import CATEGORIES, list_fields
from hermes.config.schema import Config
from tests.kit import call, say, status
from tests.kit.api import api
from tests.kit.dashboard import ON, Browser, sign_in

SECRET = "sk-very-secret-value-0123456789"
_SLOWLY = "head -c 24 notes.txt; sleep 0.5; tail -c +25 notes.txt; sleep 0.5; echo done"


async def patch(browser: Browser, version: str, changes: dict[str, Any], **more: Any) -> Any:
    return await browser.call(
        "PATCH", "/api/config", {"version": version, "changes": changes, **more}
    )


def test_every_section_is_in_one_category_of_several_fields() -> None:
    sections = [section for found in CATEGORIES.values() for section in found]
    assert sorted(sections) == sorted(Config.__struct_fields__)
    fields = list_fields()
    for category in CATEGORIES:
        assert sum(field.category == category for field in fields) >= 2
    for field in fields:
        name = field.key.rpartition(".")[2].replace("_", " ")
        assert len(field.help) > len(name) + 2 and field.help.endswith("."), field.key


async def test_a_change_keeps_comments_and_can_be_undone(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        file = a.server.runtime.setup.home / "config.yaml"
        before = file.read_text() + "# mine\nagent:\n  max_turns: 12  # enough\n"
        file.write_text(before)
        shown = (await browser.get("/api/config")).json
        assert shown["values"]["agent.max_turns"] == 12
        assert shown["origin"]["agent.max_turns"] == "file"
        assert shown["origin"]["agent.api_max_retries"] == "default"
        dry = await patch(browser, shown["version"], {"agent.max_turns": 20}, dry_run=True)
        assert "+  max_turns: 20  # enough" in dry.json["diff"] and file.read_text() == before
        done = await patch(browser, shown["version"], {"agent.max_turns": 20})
        assert done.status == 200
        assert file.read_text() == before.replace("max_turns: 12", "max_turns: 20")
        assert (await patch(browser, shown["version"], {"agent.max_turns": 1})).status == 409
        versions = (await browser.get("/api/config/versions")).json["data"]
        assert len(versions) == 1
        restored = {"version": versions[0]["version"]}
        assert (await browser.post("/api/config/restore", restored)).status == 200
        assert file.read_text() == before


async def test_a_wrong_value_changes_nothing(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        file = a.server.runtime.setup.home / "config.yaml"
        before = file.read_text()
        version = (await browser.get("/api/config")).json["version"]
        wrong = {"agent.api_max_retries": 2, "agent.max_turns": "many"}
        answer = await patch(browser, version, wrong)
        assert answer.status == 422 and answer.error["param"] == "agent.max_turns"
        several = {"agent.max_turns": "many", "agent.nothing": 1, "agent.api_max_retries": 2}
        refused = (await patch(browser, version, several)).error["problems"]
        assert refused.keys() == {"agent.max_turns", "agent.nothing"}
        assert (await patch(browser, version, {"agent.nothing": 1})).status == 422
        for value in (["a"], {"a": 1}):
            answer = await patch(browser, version, {"model.default": value})
            assert answer.status == 422 and "model.default must be" in answer.error["message"]
        for key in (" sandbox.mode", '"sandbox".mode', "agent.max_turns\nsandbox", "", "__proto__"):
            assert (await patch(browser, version, {key: "full-access"})).status == 422, key
        assert file.read_text() == before


async def test_a_value_is_never_more_than_a_value(tmp_path: Path) -> None:
    """Whatever it contains: other keys keep what they have."""
    values = ["x\nsandbox: {mode: full-access}", "x # y", "*alias", "!!python/object:os.system x"]
    values += ["'\"", "\u2028sandbox: 1", "x\u0000y", "${HOME}", "{a: 1}", "- x", "null", "x: y"]
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        before = (await browser.get("/api/config")).json
        version = before["version"]
        for value in values:
            done = await patch(browser, version, {"model.default": value})
            assert done.status == 200, done.body
            version = done.json["version"]
            shown = (await browser.get("/api/config")).json
            assert shown["values"] == {**before["values"], "model.default": value}
            assert shown["problems"] == []


async def test_what_the_agent_may_do_is_changed_only_as_it_was_shown(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        version = (await browser.get("/api/config")).json["version"]
        change = {"sandbox.required": True}
        assert (await patch(browser, version, change)).status == 409
        confirm = (await patch(browser, version, change, dry_run=True)).json["confirm"]
        other = {"sandbox.mode": "full-access"}
        assert (await patch(browser, version, other, confirm=confirm)).status == 409
        assert (await patch(browser, version, change, confirm=confirm)).status == 200


async def test_a_key_is_stored_and_never_shown(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        assert (await browser.call("PUT", "/api/keys/LAB_API_KEY", {"value": SECRET})).status == 200
        env = a.server.runtime.setup.home / ".env"
        assert SECRET in env.read_text() and env.stat().st_mode & 0o777 == 0o600
        listed = await browser.get("/api/keys")
        row = next(k for k in listed.json["data"] if k["name"] == "LAB_API_KEY")
        assert row["set"] and row["from"] == ".env"
        for path in ("/api/keys", "/api/config", "/api/logs", "/api/overview"):
            assert SECRET.encode() not in (await browser.get(path)).body
        bad = await browser.call("PUT", "/api/keys/LAB_API_KEY", {"value": SECRET + "\n"})
        assert bad.status == 422 and SECRET.encode() not in bad.body
        assert (await browser.call("DELETE", "/api/keys/LAB_API_KEY")).status == 200
        assert SECRET not in env.read_text()


async def test_only_keys_are_stored_as_keys(tmp_path: Path) -> None:
    """Other variables change settings that need to be confirmed, or nothing at all."""
    async with api(tmp_path, config=ON) as a:
        browser, env = await sign_in(a), a.server.runtime.setup.home / ".env"
        for name in ("PATH", "LD_PRELOAD", "API_SERVER_CORS_ORIGINS", "OPENAI_BASE_URL", "lower"):
            answer = await browser.call("PUT", f"/api/keys/{name}", {"value": "somewhere"})
            assert answer.status == 422 and name in answer.error["message"], name
        assert not env.exists()
        for name in ("KIT_KEY", "SOME_API_KEY", "MY_PASSWORD"):
            answer = await browser.call("PUT", f"/api/keys/{name}", {"value": SECRET})
            assert answer.status == 200, name


async def test_a_stored_key_of_no_known_shape_is_in_no_later_answer(tmp_path: Path) -> None:
    secret = "zebra crossing 47 bakers street"
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        stored = await browser.call("PUT", "/api/keys/SOME_API_KEY", {"value": secret})
        assert stored.status == 200
        shown = (await browser.get("/api/config")).json
        changes = {"model.default": secret, "agent.max_turns": f"x {secret}"}
        for change in ({"model.default": secret}, changes):
            answer = await patch(browser, shown["version"], change, dry_run=True)
            assert answer.status in (200, 422) and secret.encode() not in answer.body
        for path in ("keys", "config", "config/versions", "models", "overview", "logs"):
            assert secret.encode() not in (await browser.get(f"/api/{path}")).body


async def test_a_stored_key_is_in_no_later_event_or_answer(tmp_path: Path) -> None:
    """Whatever brings it up: a file that the agent reads, a provider that names it."""
    secret = "zebra crossing 48 bakers street"
    steps = [
        call(("c1", "read_file", {"path": "notes.txt"})),
        call(("c2", "terminal", {"command": _SLOWLY})),
        status(400, f"{secret} is not a key"),
    ]
    async with api(tmp_path, steps, config=ON) as a:
        browser = await sign_in(a)
        await browser.call("PUT", "/api/keys/SOME_API_KEY", {"value": secret})
        session = await browser.create_session()
        one = f"/api/sessions/{session}"
        work = Path((await browser.get(one)).json["cwd"])
        (work / "notes.txt").write_text(f"the password is {secret}\n")
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "read the notes")
            end = await feed.until("end", session=session)
            assert "is not a key" in end["error"]
        assert "the password is" in json.dumps(feed.seen)
        assert any(name == "progress" for name, _ in feed.seen)
        assert "zebra" not in json.dumps(feed.seen)
        formats = ("markdown", "json", "jsonl", "html")
        paths = [f"{one}/{n}" for n in ("messages", "outline", "trace", "results/c2", "changes")]
        paths += [one, *(f"{one}/export?format={name}" for name in formats)]
        paths += [f"/api/{n}" for n in ("logs", "overview", "usage", "sessions", "config", "keys")]
        for path in paths:
            answer = await browser.get(path)
            assert answer.status == 200 and secret.encode() not in answer.body, path


async def test_secrets_in_the_file_are_masked(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        file = a.server.runtime.setup.home / "config.yaml"
        servers = f"mcp_servers: {{x: {{url: 'https://x', api_key: {SECRET}}}}}"
        file.write_text(f"{file.read_text()}\n{servers}\n")
        shown = await browser.get("/api/config")
        assert shown.status == 200 and SECRET.encode() not in shown.body
        dry = await patch(browser, shown.json["version"], {"agent.max_turns": 3}, dry_run=True)
        assert SECRET.encode() not in dry.body
        await patch(browser, shown.json["version"], {"agent.max_turns": 3})
        versions = await browser.get("/api/config/versions")
        assert versions.json["data"] and SECRET.encode() not in versions.body


async def test_a_file_that_cannot_be_used_is_shown_with_what_is_wrong(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        file = a.server.runtime.setup.home / "config.yaml"
        good = file.read_text()
        for broken in ("agent: {max_turns: many}\n", "agent: [\n"):
            file.write_text(broken)
            shown = (await browser.get("/api/config")).json
            assert len(shown["problems"]) == 1 and shown["values"]["agent.max_turns"] == 90
        file.write_text(good)
        assert (await browser.get("/api/config")).json["problems"] == []


async def test_rules_are_tried_without_running_anything(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        for command, decision in (("ls", "allow"), ("rm -rf /", "deny")):
            found = await browser.post("/api/approvals/check", {"command": command})
            assert found.json["decision"] == decision, found.json


async def test_now_shows_what_waits_and_usage_what_it_cost(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "git push origin main"})), say("Done.")]
    async with api(tmp_path, steps, config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "push")
            await feed.until("approval")
            now = (await browser.get("/api/overview")).json
            assert [row["session"] for row in now["running"]] == [session]
            asked = now["waiting"][0]["approval"]
            assert asked["command"] == "git push origin main"
            answer = {"choice": "deny", "digest": asked["digest"]}
            path = f"/api/sessions/{session}/approvals/{asked['id']}"
            assert (await browser.post(path, answer)).status == 200
            await feed.until("end")
        usage = (await browser.get("/api/usage?by=model&days=7")).json
        assert usage["total"]["calls"] == 2 and len(usage["days"]) == 1
        assert (await browser.get("/api/usage?by=colour")).status == 400
        exported = await browser.get(f"/api/sessions/{session}/export?format=markdown")
        assert b"git push origin main" in exported.body
        assert "attachment" in exported.headers["Content-Disposition"]


async def test_jobs_are_previewed_added_paused_and_removed(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Good morning."), config=ON) as a:
        browser = await sign_in(a)
        body = {"schedule": "daily 09:00", "prompt": "Say good morning."}
        preview = await browser.post("/api/jobs", {**body, "dry_run": True})
        assert preview.status == 201 and len(preview.json["next_times"]) == 5
        assert (await browser.get("/api/jobs")).json["data"] == []
        job = (await browser.post("/api/jobs", body)).json["id"]
        paused = await browser.post(f"/api/jobs/{job}", {"action": "pause"})
        assert paused.json["paused"]
        assert [j["id"] for j in (await browser.get("/api/jobs")).json["data"]] == [job]
        assert (await browser.call("DELETE", f"/api/jobs/{job}")).status == 200
        assert (await browser.get("/api/jobs")).json["data"] == []


async def test_facts_are_added_listed_and_forgotten(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        body = {"verb": "add", "words": "The build runs on Debian."}
        assert (await browser.post("/api/memory", body)).status == 200
        (row,) = (await browser.get("/api/memory")).json["data"]
        assert [fact["text"] for fact in row["facts"]] == ["The build runs on Debian."]
        gone = {"verb": "remove", "words": row["facts"][0]["name"]}
        assert (await browser.post("/api/memory", gone)).status == 200
        assert (await browser.get("/api/memory")).json["data"][0]["facts"] == []

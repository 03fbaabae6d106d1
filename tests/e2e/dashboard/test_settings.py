"""Whole tasks on the other pages: settings, keys, rules, connections, skills, checks, the log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec import structs
from playwright.async_api import Page, expect

from hermes.config.paths import log_file
from hermes.llm.local.models import MODELS
from hermes.server.routes.operator import keys
from tests.e2e.dashboard.conftest import Visit, visit
from tests.kit import say
from tests.kit.dashboard import sign_in
from tests.kit.model_hub import open_hub

COMMENT = "# kept because it is mine\n"
SECRET = "sk-browser-test-0123456789abcdef"


async def _open(v: Visit, place: str) -> Page:
    await v.page.goto(f"{v.api.url}/#/{place}")
    await v.page.locator(".content > *").first.wait_for()
    return v.page


async def _save(page: Page) -> None:
    await page.get_by_role("button", name="Review and save").click()
    dialog = page.get_by_role("dialog", name="Review and save")
    await dialog.get_by_role("button", name="Save", exact=True).click()
    await dialog.wait_for(state="detached")


async def test_a_setting_is_changed_refused_and_undone(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        file = v.api.home.path / "config.yaml"
        before = COMMENT + file.read_text()
        file.write_text(before)
        page = await _open(v, "settings/Dashboard")
        days = page.get_by_role("spinbutton", name="dashboard.session_days")
        await days.fill("-3")
        await page.get_by_role("button", name="Review and save").click()
        await page.locator("[data-key='dashboard.session_days']").get_by_role("alert").wait_for()
        assert file.read_text() == before
        await days.fill("12")
        await page.get_by_text("changed: 30 → 12").wait_for()
        await _save(page)
        await page.get_by_text("Unsaved changes").wait_for(state="detached")
        changed = file.read_text()
        assert changed.startswith(COMMENT) and "session_days: 12" in changed
        assert len(set(changed.splitlines()) ^ set(before.splitlines())) <= 2
        await page.get_by_role("button", name="Versions").click()
        await page.locator("details.version summary").first.click()
        await page.get_by_role("button", name="Restore").first.click()
        async with asyncio.timeout(90):
            while file.read_text() != before:
                await asyncio.sleep(0.05)
        await page.get_by_role("button", name="Dashboard", exact=True).click()
        await expect(days).to_have_value("30", timeout=90_000)


async def test_a_list_is_written_line_by_line(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        page = await _open(v, "settings/Safety")
        field = page.get_by_role("textbox", name="sandbox.network.allow")
        await field.focus()
        await page.keyboard.type("one.example")
        await page.keyboard.press("Enter")
        await page.keyboard.type("two.example")
        await page.get_by_text("one.example, two.example").wait_for()
        await _save(page)
        await page.get_by_text("Unsaved changes").wait_for(state="detached")
        written = (v.api.home.path / "config.yaml").read_text()
        assert "one.example" in written and "two.example" in written


async def test_a_key_is_set_and_never_shown_again(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        page = await _open(v, "settings/Models")
        seen: list[str] = []
        field = page.get_by_role("textbox", name="New value: OPENROUTER_API_KEY")
        await field.fill(SECRET)
        page.on("response", lambda r: seen.append(r.url))
        row = page.locator(".field", has=page.get_by_role("heading", name="OPENROUTER_API_KEY"))
        await row.get_by_role("button", name="Set").click()
        await row.get_by_text("set (.env)").wait_for()
        assert SECRET in (v.api.home.path / ".env").read_text()
        assert await field.input_value() == ""
        await page.reload()
        await row.get_by_text("set (.env)").wait_for()
        assert SECRET not in await page.content()
        assert seen and not any(SECRET in url for url in seen)
        await row.get_by_role("button", name="Delete").click()
        await row.get_by_text("not set").wait_for()
        assert SECRET not in (v.api.home.path / ".env").read_text()


async def test_rules_are_tried_added_and_removed(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        page = await _open(v, "settings/Safety")
        command = page.get_by_role("textbox", name="Try a command")
        answer = page.locator("form", has=command).get_by_role("status")
        await command.fill("git push origin main")
        await page.keyboard.press("Enter")
        await expect(answer).to_contain_text("allowed", timeout=90_000)
        await page.get_by_label("Decision").select_option("deny")
        await page.get_by_role("textbox", name="how the command begins").fill("git push")
        await page.get_by_role("button", name="Add").click()
        remove = page.get_by_role("button", name="Delete: git push")
        await remove.wait_for()
        await page.get_by_role("button", name="Try", exact=True).click()
        await expect(answer).to_contain_text("denied", timeout=90_000)
        await remove.click()
        await remove.wait_for(state="detached")


async def test_the_model_is_tested(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say("4")) as v:
        page = await _open(v, "settings/Models")
        model = page.locator(".field", has=page.get_by_role("heading", name="Model", exact=True))
        await model.get_by_text("kit-model").wait_for()
        await model.get_by_role("button", name="Test").click()
        await model.get_by_text("It works").wait_for()


async def test_health_checks_and_follows_the_log(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        page = await _open(v, "health")
        checks = page.get_by_role("region", name="Checks")
        await checks.get_by_text("configuration", exact=True).wait_for()
        home = v.api.home.path
        await asyncio.to_thread(home.chmod, 0o755)
        await checks.get_by_role("button", name="Check again").click()
        await checks.get_by_role("button", name="Repair").first.click()
        await checks.get_by_role("button", name="Repair").first.wait_for(state="detached")
        assert home.stat().st_mode & 0o777 == 0o700
        logs = page.locator(".logs")
        await page.get_by_label("Level").select_option("warning")
        await page.get_by_role("searchbox", name="Filter").fill("zebra")
        await expect(logs).to_contain_text("No records.", timeout=90_000)
        log = log_file(home)
        log.parent.mkdir(exist_ok=True)
        record = {"time": "2026-01-31T10:00:00", "level": "warning", "message": "a zebra"}
        with log.open("a") as out:
            out.write(json.dumps(record) + "\n")
        await expect(logs).to_contain_text("a zebra", timeout=90_000)


async def test_connections_and_skills_are_changed(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        page = await _open(v, "connections")
        servers = page.get_by_role("region", name="MCP servers")
        await servers.get_by_role("textbox", name="Name").fill("broken")
        await servers.get_by_role("textbox", name="Address or command").fill("no-such-program x")
        await servers.get_by_role("button", name="Add").click()
        row = servers.locator("li", has_text="broken")
        await row.get_by_role("button", name="Test").click()
        await row.get_by_text("failed").wait_for()
        await row.get_by_role("button", name="Disable").click()
        await row.get_by_role("button", name="Enable").wait_for()
        await row.get_by_role("button", name="Delete: broken").click()
        await row.wait_for(state="detached")
        people = page.get_by_role("region", name="People")
        await people.get_by_role("textbox", name="Messenger").fill("telegram")
        await people.get_by_role("textbox", name="Pairing code").fill("WRONGCODE")
        await people.get_by_role("button", name="Let in").click()
        await page.locator(".toast").wait_for()
        await _open(v, "knowledge")
        skills = page.get_by_role("region", name="Skills")
        await skills.get_by_role("button", name="Open: research").click()
        dialog = page.get_by_role("dialog", name="research")
        await dialog.get_by_text("The scan found nothing.").wait_for()
        await dialog.get_by_role("button", name="Close").click()
        await skills.get_by_role("button", name="Disable: research").click()
        await skills.get_by_role("button", name="Enable: research").wait_for()
        memory = page.get_by_role("textbox", name="Remember this")
        await memory.fill("The user likes tea.")
        await page.keyboard.press("Enter")
        await page.get_by_text("The user likes tea.").wait_for()


async def test_a_job_is_added_and_paused(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        page = await _open(v, "schedule")
        await page.get_by_role("textbox", name="When").fill("daily 09:00")
        await page.get_by_role("textbox", name="What to do").fill("Water the plants.")
        await page.keyboard.press("Tab")
        await page.get_by_role("status").get_by_text("Next").wait_for()
        await page.get_by_role("button", name="Add").click()
        await page.get_by_role("button", name="Pause").click()
        await page.get_by_role("button", name="Resume").wait_for()
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_text("No jobs yet.").wait_for()


async def test_a_job_is_edited(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        job = {"schedule": "daily 09:00", "prompt": "Water the plants.", "name": "plants"}
        assert (await (await sign_in(v.api)).post("/api/jobs", job)).status == 201
        page = await _open(v, "schedule")
        await page.get_by_role("button", name="Edit: plants").click()
        form = page.locator("form").filter(has=page.get_by_role("heading", name="Edit: plants"))
        times = form.get_by_role("status").locator("time")
        await expect(times).to_have_count(5, timeout=90_000)
        await form.get_by_role("textbox", name="When").fill("every blue moon")
        await page.keyboard.press("Tab")
        await form.get_by_role("alert").wait_for()
        await form.get_by_role("textbox", name="When").fill("daily 10:30")
        await page.keyboard.press("Tab")
        await times.first.filter(has_text="10:30").wait_for()
        await form.get_by_role("textbox", name="Name").fill("garden")
        await form.get_by_role("button", name="Save").click()
        await page.get_by_role("heading", name="garden", exact=True).wait_for()
        jobs = (await (await sign_in(v.api)).get("/api/jobs")).json["data"]
        assert [(row["name"], row["prompt"]) for row in jobs] == [("garden", "Water the plants.")]
        assert all("T10:30:00" in time for time in jobs[0]["next_times"])


async def test_a_model_is_downloaded_with_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_hub() as hub, visit(tmp_path) as v:
        name = MODELS[0].name
        model = structs.replace(hub.model, name=name)
        monkeypatch.setattr(keys, "find_model", {name: model}.get)
        monkeypatch.setattr(keys, "MODELS", (model,))
        page = await _open(v, "settings")
        await page.get_by_role("button", name=f"Download: {name}").click()
        progress = page.get_by_role("progressbar", name=f"Downloading: {name}")
        await page.locator("progress:not([value='0'])").and_(progress).wait_for()
        await page.reload()
        await progress.wait_for()
        hub.release.set()
        await page.get_by_text("downloaded", exact=True).wait_for()
        await progress.wait_for(state="detached")

"""What models, tools, people and files are called or say stays text, on every page."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.async_api import expect

from hermes.config.paths import log_file
from hermes.core.ledger import Account, Entry
from hermes.core.message import Media, Message, Target, Text, ToolCall, ToolReturn, user_message
from hermes.core.store import SessionMeta
from tests.e2e.dashboard.conftest import Visit, visit
from tests.e2e.dashboard.payloads import FORBIDDEN, PAYLOADS
from tests.kit import call, say, status
from tests.kit.dashboard import sign_in

_IMAGE = "<img src=x onerror=alert(1)>"
_PER_SESSION = 7
pytestmark = pytest.mark.timeout(900)


async def _check(v: Visit, place: object) -> None:
    assert await v.page.locator(FORBIDDEN).count() == 0, place


def _note_foreign_requests(v: Visit) -> list[str]:
    found = list[str]()
    v.page.on(
        "request",
        lambda r: found.append(r.url) if not r.url.startswith((v.api.url, "blob:")) else None,
    )
    return found


def _make_messages(payloads: tuple[str, ...]) -> list[Message]:
    """Each payload as a question, an answer, a tool's name, argument, result and failure, the name
    of a file, and what thinks."""
    found: list[Message] = []
    for n, payload in enumerate(payloads):
        called = ToolCall(f"c{n}", payload, json.dumps({"command": payload, "path": payload}))
        origin = Target(payload, payload, "chat")
        result = ToolReturn(f"c{n}", payload, (Text(payload),), error=bool(n % 2))
        file = Media("text/html" if n % 2 else "image/png", payload.encode(), name=payload)
        found += [
            user_message(payload, file),
            Message("assistant", (Text(payload), called), origin=origin),
            Message("tool", (result,)),
            Message("assistant", (Text(payload), file), origin=origin),
        ]
    return found


async def test_a_conversation_stays_text(tmp_path: Path) -> None:
    assert len(PAYLOADS) >= 60
    async with visit(tmp_path) as v:
        page, foreign = v.page, _note_foreign_requests(v)
        store = v.api.server.runtime.store.sessions
        for first in range(0, len(PAYLOADS), _PER_SESSION):
            messages = _make_messages(PAYLOADS[first : first + _PER_SESSION])
            meta = SessionMeta(f"payload-{first}", source="cli", cwd=str(tmp_path))
            await store.append(meta.id, messages, create=meta)
            await page.goto(f"{v.api.url}/#/c/{meta.id}")
            last = f"[data-group='0']:has([data-seq='{len(messages) - 1}'])"
            tools = page.locator(f"{last} details.tool")
            await expect(tools).to_have_count(len(messages) // 4, timeout=90_000)
            await tools.evaluate_all("all => all.forEach(tool => { tool.open = true; })")
            await _check(v, meta.id)
        assert await page.locator("#app").count() == 1
        assert foreign == []


async def test_titles_and_models_stay_text(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        page, foreign = v.page, _note_foreign_requests(v)
        runtime = v.api.server.runtime
        for n, payload in enumerate(PAYLOADS):
            title = payload[:150]
            meta = SessionMeta(
                f"title-{n}", source="cli", cwd=str(tmp_path), title=title, model=payload
            )
            await runtime.store.sessions.append(meta.id, [user_message("hello")], create=meta)
            day, account = datetime.now(UTC).strftime("%Y-%m-%d"), Account(meta.id, meta.id)
            runtime.store.ledger.settle_call(
                Entry(time.time_ns() + n, day, account, payload, payload, input=1, tools=(payload,))
            )
        await page.reload()
        await expect(page.locator(".session a")).to_have_count(len(PAYLOADS), timeout=90_000)
        await _check(v, "rail")
        for n in range(len(PAYLOADS)):
            await page.goto(f"{v.api.url}/#/c/title-{n}")
            await page.locator(f".session a[href='#/c/title-{n}'][aria-current]").wait_for()
            await page.get_by_role("article", name="You").get_by_text("hello").wait_for()
            await _check(v, PAYLOADS[n])
        for by in ("Model", "Tool"):
            await page.goto(f"{v.api.url}/#/usage")
            await page.locator(".content > *").first.wait_for()
            await page.locator(".skeleton").first.wait_for(state="detached")
            await page.get_by_role("button", name=by, exact=True).first.click()
            await page.get_by_text(_IMAGE, exact=True).first.wait_for()
            await _check(v, by)
        assert foreign == []


async def _fill_home(v: Visit) -> None:
    """Each payload as a job, a fact, a skill and a line of the log."""
    browser, lines = await sign_in(v.api), []
    for n, payload in enumerate(PAYLOADS):
        lines.append(json.dumps({"time": "2026", "level": "error", "message": payload}))
        job = {"schedule": "daily 09:00", "prompt": payload, "name": f"{n} {payload[:60]}"}
        await browser.post("/api/jobs", job)
        await browser.post("/api/memory", {"verb": "add", "words": payload})
        skill = v.api.home.path / "skills" / f"odd-{n}" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        head = f"name: odd-{n}\ndescription: {json.dumps(payload)}"
        skill.write_text(f"---\n{head}\n---\n\n{payload}\n")
    log = log_file(v.api.home.path)
    log.parent.mkdir(exist_ok=True)
    log.write_text("\n".join(lines) + "\n")


async def test_jobs_facts_skills_and_the_log_stay_text(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        page, foreign = v.page, _note_foreign_requests(v)
        await _fill_home(v)
        for name in ("schedule", "knowledge", "health", "now"):
            await page.goto(f"{v.api.url}/#/{name}")
            await page.locator(".content > *").first.wait_for()
            await page.locator(".skeleton").first.wait_for(state="detached")
            if name in ("schedule", "knowledge", "health"):
                await page.locator(".content").get_by_text(_IMAGE).first.wait_for()
            await _check(v, name)
        await page.goto(f"{v.api.url}/#/knowledge")
        for n in range(len(PAYLOADS)):
            await page.get_by_role("button", name=f"Open: odd-{n}", exact=True).click()
            dialog = page.get_by_role("dialog", name=f"odd-{n}", exact=True)
            await dialog.get_by_role("button", name="Close").wait_for()
            await _check(v, PAYLOADS[n])
            await page.keyboard.press("Escape")
            await dialog.wait_for(state="detached")
        assert foreign == []


async def test_failures_stay_text(tmp_path: Path) -> None:
    steps = [
        status(400, error="refused", message=f"refused {n}: {payload}")
        for n, payload in enumerate(PAYLOADS)
    ]
    async with visit(tmp_path, steps) as v:
        page, foreign = v.page, _note_foreign_requests(v)
        for n in range(len(PAYLOADS)):
            await v.send("go")
            await page.get_by_role("alert").get_by_text(f"refused {n}:").wait_for()
            await page.get_by_role("button", name="Send").wait_for()
            await _check(v, PAYLOADS[n])
        assert foreign == []


async def test_names_of_changed_files_stay_text(tmp_path: Path) -> None:
    names = sorted({p.replace("/", "_").strip("` ")[:80] for p in PAYLOADS if p.isprintable()})
    written = [
        (f"c{n}", "write_file", {"path": name, "content": name}) for n, name in enumerate(names)
    ]
    async with visit(tmp_path, [call(*written), say("Written.")]) as v:
        page, foreign = v.page, _note_foreign_requests(v)
        await v.send("go")
        await v.wait_until_answered("Written.")
        rows = page.get_by_role("complementary", name="Details").locator("li.fact button.ellipsis")
        await expect(rows).to_have_count(len(names), timeout=90_000)
        await _check(v, "changed files")
        for n in range(len(names)):
            name = await rows.nth(n).inner_text()
            await rows.nth(n).click()
            await page.get_by_role("dialog").get_by_text(f"+{name}", exact=True).wait_for()
            await _check(v, name)
            await page.keyboard.press("Escape")
            await page.get_by_role("dialog").wait_for(state="detached")
        assert foreign == []


async def test_names_of_files_failures_questions_and_skills_stay_text(tmp_path: Path) -> None:
    asked = {"question": f"Which {_IMAGE}?", "choices": [_IMAGE, "<script>alert(1)</script>"]}
    steps = [
        call(("c1", "write_file", {"path": f"{_IMAGE}.txt", "content": _IMAGE})),
        call(("c2", "terminal", {"command": f"git push '{_IMAGE}'"})),
        call(("c3", "clarify", asked)),
        status(400, {"error": {"message": f"refused {_IMAGE}"}}),
    ]
    servers = {"mcp_servers": {"files": {"command": f"no-such {_IMAGE}"}}}
    async with visit(tmp_path, steps, config=servers) as v:
        page, skill = v.page, v.api.home.path / "skills" / "odd" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(f"---\nname: odd\ndescription: '{_IMAGE}'\n---\n\n{_IMAGE}\n")
        chooser = page.locator("input[type=file]")
        file = {"name": f"{_IMAGE}.csv", "mimeType": "text/csv", "buffer": b"a"}
        await chooser.set_input_files(file)
        await page.get_by_role("button", name=f"{_IMAGE}.csv").wait_for()
        await v.send("go")
        await page.get_by_role("button", name="Deny").wait_for()
        await _check(v, "talk")
        await page.get_by_role("button", name="Deny").click()
        await page.get_by_role("group", name="Hermes asks").get_by_text("Which <img").wait_for()
        await _check(v, "talk")
        await page.get_by_role("button", name=_IMAGE, exact=True).click()
        await page.get_by_role("alert").get_by_text(_IMAGE).wait_for()
        panel = page.get_by_role("complementary", name="Details")
        await panel.get_by_role("button", name=f"{_IMAGE}.txt").click()
        await page.get_by_role("dialog").get_by_text(f"+{_IMAGE}").wait_for()
        await _check(v, "talk")
        for name, shown in (("knowledge", "odd"), ("connections", "files"), ("now", "failed")):
            await page.goto(f"{v.api.url}/#/{name}")
            await page.reload()
            await page.locator(".content").get_by_text(shown, exact=True).first.wait_for()
            await _check(v, name)
        await page.goto(f"{v.api.url}/#/knowledge")
        await page.get_by_role("button", name="Open: odd").click()
        await page.get_by_role("dialog", name="odd").get_by_text(_IMAGE).first.wait_for()
        await _check(v, "talk")

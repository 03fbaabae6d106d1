"""What models, tools and people write stays text; every page can be used by everybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from hermes.config.paths import log_file
from hermes.core.message import Message, Target, Text, ToolCall, ToolReturn, user_message
from hermes.core.store import SessionMeta
from tests.e2e.dashboard.conftest import Visit, visit
from tests.kit import call, say, status
from tests.kit.dashboard import sign_in

_SCRIPTS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<iframe src='javascript:alert(1)'></iframe>",
    "<style>*{display:none}</style>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<base href=//evil.example/>",
    "<form action=//evil.example><button>x</button></form>",
    "<math><mtext></mtext><img src=1 onerror=alert(1)></math>",
    "<video><source onerror=alert(1)></video>",
    "[link](javascript:alert(1))",
    "[link](data:text/html,<script>alert(1)</script>)",
    "[link](vbscript:x)",
    "![picture](https://evil.example/p.png)",
    "![picture](javascript:alert(1))",
    "<https://evil.example/<script>>",
    "`<img src=x onerror=alert(1)>`",
    "```html\n<script>alert(1)</script>\n```",
    "| <b>a</b> | <img src=x onerror=alert(1)> |\n|---|---|\n| x | y |",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\u202e<script>gpj.exe",
    "${alert(1)}{{constructor.constructor('alert(1)')()}}",
    "\"'><script>alert(1)</script>",
    "<a href='//evil.example' target=_top>x</a>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<object data=//evil.example></object>",
    "<embed src=//evil.example>",
    "<details open ontoggle=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<template><script>alert(1)</script></template>",
    "<body onload=alert(1)>",
    "<marquee onstart=alert(1)>",
    "<a href=javascript:alert(1)>x</a>",
    "<a href='java\tscript:alert(1)'>x</a>",
    "[link](JaVaScRiPt:alert(1))",
    "[link](  javascript:alert(1))",
    "[link](&#106;avascript:alert(1))",
    "[link](//evil.example)",
    "[link](file:///etc/passwd)",
    "[link](blob:https://evil.example/x)",
    "[ref]\n\n[ref]: javascript:alert(1)",
    "<javascript:alert(1)>",
    "![p](data:image/svg+xml,<svg onload=alert(1)>)",
    "![p](//evil.example/x.png)",
    "![p][r]\n\n[r]: https://evil.example/y.png",
    "<picture><source srcset=//evil.example/z></picture>",
    "<img srcset='//evil.example/a 2x'>",
    "<image href=//evil.example/b>",
    "<svg><use href='//evil.example/#x'/></svg>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<math href='javascript:alert(1)'>x</math>",
    "<textarea autofocus onfocus=alert(1)>",
    "<select onfocus=alert(1) autofocus>",
    "<audio src=//evil.example/s autoplay>",
    "<p style='background:url(//evil.example/c)'>",
    "<div id=app>other</div>",
    "<!--<script>-->alert(1)<!--</script>-->",
    "]]><script>alert(1)</script>",
    "<script\x20type='module'>import '//evil.example/m.js'</script>",
)
_CODE = "```python\nx = 1\n```"
_FORBIDDEN = (
    "script:not([src*='assets/']), iframe, object, embed, form[action], base, style, "
    "meta[http-equiv], [onerror], [onload], [ontoggle], [onfocus], a[href^='javascript'], "
    "a[href^='data'], img:not([src^='blob:'])"
)


_PER_SESSION = 7


async def _store_payloads(v: Visit, cwd: Path) -> None:
    """Each payload as a title, a message, a tool's name, argument and result, a model, an answer;
    as a job, a fact and a line of the log."""
    store = v.api.server.runtime.store.sessions
    browser, lines = await sign_in(v.api), []
    for number, payload in enumerate(_SCRIPTS):
        meta = SessionMeta(f"title-{number}", source="cli", cwd=str(cwd), title=payload[:80])
        await store.append(meta.id, [user_message(payload)], create=meta)
        lines.append(json.dumps({"time": "2026", "level": "error", "message": payload}))
        job = {"schedule": "daily 09:00", "prompt": payload, "name": f"{number} {payload[:60]}"}
        if number < _PER_SESSION:
            await browser.post("/api/jobs", job)
            await browser.post("/api/memory", {"verb": "add", "words": payload})
    log = log_file(v.api.home.path)
    log.parent.mkdir(exist_ok=True)
    log.write_text("\n".join(lines) + "\n")
    for first in range(0, len(_SCRIPTS), _PER_SESSION):
        messages: list[Message] = []
        for n, payload in enumerate(_SCRIPTS[first : first + _PER_SESSION]):
            called = ToolCall(f"c{n}", payload, json.dumps({"command": payload, "path": payload}))
            origin = Target(payload, payload, "chat")
            messages += [
                user_message(payload),
                Message("assistant", (Text(payload), called), origin=origin),
                Message("tool", (ToolReturn(f"c{n}", payload, (Text(payload),)),)),
                Message("assistant", (Text(payload),), origin=origin),
            ]
        meta = SessionMeta(f"payload-{first}", source="cli", cwd=str(cwd), model=_SCRIPTS[first])
        await store.append(meta.id, messages, create=meta)


async def test_nothing_that_was_written_becomes_an_element(tmp_path: Path) -> None:
    assert len(_SCRIPTS) >= 60
    async with visit(tmp_path) as v:
        page, foreign = v.page, list[str]()
        page.on(
            "request",
            lambda r: foreign.append(r.url) if not r.url.startswith((v.api.url, "blob:")) else None,
        )
        await _store_payloads(v, tmp_path)
        for first in range(0, len(_SCRIPTS), _PER_SESSION):
            await page.goto(f"{v.api.url}/#/c/payload-{first}")
            number = min(_PER_SESSION, len(_SCRIPTS) - first)
            tools = page.locator(
                f"[data-group='0']:has([data-seq='{4 * number - 1}']) details.tool"
            )
            await expect(tools).to_have_count(number, timeout=90_000)
            await tools.evaluate_all("all => all.forEach(tool => { tool.open = true; })")
            assert await page.locator(_FORBIDDEN).count() == 0, first
        for name in ("now", "schedule", "knowledge", "health"):
            await page.goto(f"{v.api.url}/#/{name}")
            await page.locator(".content > *").first.wait_for()
            await page.locator(".skeleton").first.wait_for(state="detached")
            assert await page.locator(_FORBIDDEN).count() == 0, name
        assert await page.locator("#app").count() == 1
        assert foreign == []


_IMAGE = "<img src=x onerror=alert(1)>"


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
        assert await page.locator(_FORBIDDEN).count() == 0
        await page.get_by_role("button", name="Deny").click()
        await page.get_by_role("group", name="Hermes asks").get_by_text("Which <img").wait_for()
        assert await page.locator(_FORBIDDEN).count() == 0
        await page.get_by_role("button", name=_IMAGE, exact=True).click()
        await page.get_by_role("alert").get_by_text(_IMAGE).wait_for()
        panel = page.get_by_role("complementary", name="Details")
        await panel.get_by_role("button", name=f"{_IMAGE}.txt").click()
        await page.get_by_role("dialog").get_by_text(f"+{_IMAGE}").wait_for()
        assert await page.locator(_FORBIDDEN).count() == 0
        for name, shown in (("knowledge", "odd"), ("connections", "files"), ("now", "failed")):
            await page.goto(f"{v.api.url}/#/{name}")
            await page.reload()
            await page.locator(".content").get_by_text(shown, exact=True).first.wait_for()
            assert await page.locator(_FORBIDDEN).count() == 0, name
        await page.goto(f"{v.api.url}/#/knowledge")
        await page.get_by_role("button", name="Open: odd").click()
        await page.get_by_role("dialog", name="odd").get_by_text(_IMAGE).first.wait_for()
        assert await page.locator(_FORBIDDEN).count() == 0


async def test_a_framed_page_stays_empty(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        page = await v.context.new_page()
        await page.goto(f"{v.api.url}/health")
        await page.evaluate(
            "url => { const f = document.createElement('iframe'); f.src = url;"
            " document.body.append(f); }",
            v.api.url,
        )
        await page.wait_for_timeout(500)
        frames = [frame for frame in page.frames if frame != page.main_frame]
        for frame in frames:
            assert await frame.locator("#app").count() == 0


async def _check_page(page: Any, name: str) -> None:
    found = await Axe().run(
        page,
        options={
            "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]}
        },
    )
    problems = [
        (v["id"], [node["html"][:160] for node in v["nodes"][:3]])
        for v in found.response["violations"]
    ]
    assert problems == [], name


PAGES = ("now", "usage", "schedule", "knowledge", "connections", "settings", "health")


async def _check_width(page: Any, name: str) -> None:
    wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not wide, f"{name} scrolls sideways"


async def _open_page(v: Visit, name: str) -> None:
    await v.page.goto(f"{v.api.url}/#/{name}")
    await v.page.locator(".content > *").first.wait_for()
    await v.page.locator(".skeleton").first.wait_for(state="detached")


async def _check_states(v: Visit) -> None:
    """What opens over a page: the palette, completions, a dialog, a refused change."""
    page = v.page
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Search or run a command").wait_for()
    await _check_page(page, "palette")
    await page.keyboard.press("Escape")
    await page.get_by_role("textbox", name="Message").fill("/")
    await page.get_by_role("option", name="/new").wait_for()
    await _check_page(page, "completions")
    await page.get_by_role("textbox", name="Message").fill("")
    await _open_page(v, "settings/Dashboard")
    days = page.get_by_role("spinbutton", name="dashboard.session_days")
    await days.fill("-3")
    await page.get_by_role("button", name="Review and save").click()
    await page.locator("[data-key='dashboard.session_days']").get_by_role("alert").wait_for()
    await _check_page(page, "error")
    await days.fill("12")
    await page.get_by_role("button", name="Review and save").click()
    await page.get_by_role("dialog").wait_for()
    await _check_page(page, "dialog")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
async def test_every_page_is_accessible(tmp_path: Path, scheme: Any, width: int) -> None:
    steps = [
        say("# Title\n\nText with `code` and [a link](https://example.org).\n\n" + _CODE),
        call(("c1", "terminal", {"command": "git push origin main"})),
    ]
    async with visit(tmp_path, steps, then=say("Yes.")) as v:
        await v.open_context(color_scheme=scheme, viewport={"width": width, "height": 844})
        await v.send("hello")
        await v.wait_until_answered("Text with")
        await _check_page(v.page, "talk")
        await v.send("push")
        await v.page.get_by_role("button", name="Allow once").wait_for()
        await _check_page(v.page, "approval")
        for name in PAGES:
            await _open_page(v, name)
            await _check_page(v.page, name)
            await _check_width(v.page, name)
        await v.page.goto(f"{v.api.url}/#/talk")
        await _check_states(v)


async def test_nothing_scrolls_sideways_on_a_narrow_page(tmp_path: Path) -> None:
    """320 px is also what 200 % zoom leaves of 640 px."""
    table = "| a long heading | another long heading | a third |\n|---|---|---|\n| x | y | z |\n\n"
    steps = [
        say(table + "```\n" + "long " * 60 + "\n```\n\n" + "w" * 200),
        call(("c1", "terminal", {"command": "git push origin " + "branch" * 30})),
    ]
    async with visit(tmp_path, steps, then=say("Yes.")) as v:
        await v.open_context(viewport={"width": 320, "height": 640})
        await v.send("h" * 100)
        await v.wait_until_answered("a long heading")
        await _check_width(v.page, "talk")
        await v.send("push")
        await v.page.get_by_role("button", name="Allow once").wait_for()
        await _check_width(v.page, "approval")
        for name in PAGES:
            await _open_page(v, name)
            await _check_width(v.page, name)

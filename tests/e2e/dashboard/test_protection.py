"""What models, tools and people write stays text; every page can be used by everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe

from hermes.core.message import Message, Text, ToolCall, ToolReturn, user_message
from hermes.core.store import SessionMeta
from tests.e2e.dashboard.conftest import Visit, visit
from tests.kit import call, say

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
)
_CODE = "```python\nx = 1\n```"
_FORBIDDEN = (
    "script:not([src*='assets/']), iframe, object, embed, form[action], base, style, "
    "meta[http-equiv], [onerror], [onload], [ontoggle], [onfocus], a[href^='javascript'], "
    "a[href^='data'], img:not([src^='blob:'])"
)


async def _store_payloads(v: Visit, cwd: Path) -> None:
    store = v.api.server.runtime.store.sessions
    for number, payload in enumerate(_SCRIPTS):
        meta = SessionMeta(f"payload-{number}", source="cli", cwd=str(cwd), title=payload[:80])
        calls = ToolCall("c1", "terminal", '{"command": ' + _quote(payload) + "}")
        messages = [
            user_message(payload),
            Message("assistant", (Text(payload), calls)),
            Message("tool", (ToolReturn("c1", "terminal", (Text(payload),)),)),
            Message("assistant", (Text(payload),)),
        ]
        await store.append(meta.id, messages, create=meta)


def _quote(text: str) -> str:
    import json

    return json.dumps(text)


async def test_nothing_that_was_written_becomes_an_element(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        foreign: list[str] = []
        v.page.on(
            "request",
            lambda r: foreign.append(r.url) if not r.url.startswith((v.api.url, "blob:")) else None,
        )
        await _store_payloads(v, tmp_path)
        for number in range(len(_SCRIPTS)):
            await v.page.goto(f"{v.api.url}/#/c/payload-{number}")
            articles = v.page.get_by_role("article", name="Hermes")
            await articles.first.wait_for()
            for summary in await v.page.locator("details.tool > summary").all():
                await summary.click()
            assert await v.page.locator(_FORBIDDEN).count() == 0, _SCRIPTS[number]
        assert foreign == []


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
    await page.get_by_role("option", name="/find").wait_for()
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

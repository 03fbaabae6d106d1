"""What models, tools and people write stays text; every page can be used by everybody."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe

from tests.e2e.dashboard.conftest import Visit, visit
from tests.kit import Gate, call, say, status

_CODE = "```python\nx = 1\n```"


async def test_a_framed_page_stays_empty(tmp_path: Path) -> None:
    """Another page loads in a frame of the same page, the dashboard does not."""
    async with visit(tmp_path) as v:
        page = await v.context.new_page()
        frames = "<iframe name=own src=/></iframe><iframe name=other src=/other></iframe>"
        for path, body in (("framing", frames), ("other", "<main id=app></main>")):
            fulfil = partial(_fulfil, body=body)
            await page.route(f"{v.api.url}/{path}", fulfil)
        await page.goto(f"{v.api.url}/framing")
        own, other = page.frame("own"), page.frame("other")
        assert own is not None and other is not None
        await other.locator("#app").wait_for(state="attached")
        assert own.url.startswith("chrome-error:") and await own.locator("#app").count() == 0


async def _fulfil(route: Any, *, body: str) -> None:
    await route.fulfill(body=body, content_type="text/html")


async def _check_page(page: Any, name: str, *, part: str = "") -> None:
    found = await Axe().run(
        page,
        context=part or None,
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


async def _check_state(page: Any, name: str, *, part: str = "") -> None:
    await _check_page(page, name, part=part)
    await _check_width(page, name)


async def _check_sign_in(v: Visit, **look: Any) -> None:
    page = await (await v.make_context(**look)).new_page()
    await page.goto(v.api.url)
    await page.get_by_role("textbox", name="Sign-in code").fill("0000-0000")
    await page.keyboard.press("Enter")
    await page.get_by_role("alert").wait_for()
    await _check_state(page, "sign-in")
    await page.context.close()


async def _check_turns(v: Visit, gate: Gate) -> None:
    """A turn that writes, a queued message, its edit, a question, a failure."""
    page = v.page
    await v.send("Count to three.")
    await page.get_by_text("Counting").wait_for()
    await v.send("Then ask me where to push " + "x" * 80)
    await page.get_by_text("queued", exact=True).wait_for()
    await _check_state(page, "busy")
    await page.get_by_role("button", name="Edit", exact=True).click()
    await page.get_by_role("textbox", name="Edit", exact=True).fill("Ask me where to push.")
    await _check_state(page, "edited")
    await page.get_by_role("button", name="Save").click()
    gate.open()
    await page.get_by_role("group", name="Hermes asks").wait_for()
    await _check_state(page, "question")
    await page.get_by_role("button", name="main", exact=True).click()
    await page.get_by_role("alert").wait_for()
    await _check_state(page, "failed")


async def _check_overlays(v: Visit, *, is_narrow: bool) -> None:
    """Menus, the words to find, the panel, the drawer, the offer to undo."""
    page = v.page
    await page.get_by_role("button", name="More").click()
    # What it covers in part cannot be used anyway.
    await _check_state(page, "menu", part=".top .menu")
    await page.get_by_role("button", name="Find find words").click()
    await page.get_by_role("searchbox", name="Find in this conversation").fill("three")
    await _check_state(page, "find")
    await page.keyboard.press("Escape")
    if is_narrow:
        await page.get_by_role("button", name="Details").click()
        panel = page.get_by_role("complementary", name="Details")
        await panel.wait_for()
        await _check_state(page, "panel")
        await panel.get_by_role("button", name="Close").click()
        await panel.wait_for(state="detached")
        await page.get_by_role("button", name="Menu").click()
        await _check_state(page, "drawer")
    row = page.locator(".session").first
    await row.hover()
    await row.locator("summary").click()
    await _check_state(page, "session menu", part=".session-menu .menu")
    await row.get_by_role("button", name="Delete").click()
    undo = page.get_by_role("button", name="Undo")
    await undo.wait_for()
    await _check_state(page, "undo")
    await undo.click()


@pytest.mark.parametrize(
    ("scheme", "width"),
    [("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390), ("light", 320)],
)
async def test_every_state_is_accessible(tmp_path: Path, scheme: Any, width: int) -> None:
    """320 px is also what 200 % zoom leaves of 640 px."""
    look = {"color_scheme": scheme, "viewport": {"width": width, "height": 844}}
    asked = {"question": "Which branch shall I push to?", "choices": ["main", "a new one"]}
    gate = Gate()
    held = say("Counting ", "to three.").hold(gate, after="text")
    async with visit(tmp_path, [held, call(("c1", "clarify", asked)), status(401)]) as v:
        await _check_sign_in(v, **look)
        await v.open_context(**look)
        await _check_turns(v, gate)
        await _check_overlays(v, is_narrow=width < 720)
        await v.context.set_offline(offline=True)
        v.api.server.services.dashboard.end_feeds()  # type: ignore[union-attr]
        await v.page.get_by_text("Connection lost. Trying").wait_for()
        await _check_state(v.page, "lost")


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

"""Presses a key in the browser."""

from __future__ import annotations

from msgspec import Struct

from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools.browser._browser import browser_of
from hermes.tools.browser._moving import Moving
from hermes.tools.browser._view import acted

_FOCUS = """() => {
    const e = document.activeElement;
    return e ? (e.tagName + ' ' + (e.getAttribute('aria-label') || e.name || e.innerText || ''))
        .slice(0, 80) : '';
}"""


class Params(Struct, frozen=True):
    key: str


@tool(
    "Press a key or a combination: Enter, Tab, Escape, ArrowDown, Control+a.",
    toolset="browser",
    risk="network",
    exclusive=True,
    timeout=60,
)
async def browser_press(p: Params, ctx: ToolContext) -> ToolResult:
    browser = browser_of(ctx)
    async with browser.use(ctx) as page:
        with Moving(page) as moving:
            await page.keyboard.press(p.key)
            focus = str(await page.evaluate(_FOCUS)).strip()
            return await acted(browser, page, moving, f"Pressed {p.key}. Focus: {focus or 'none'}.")

"""Scrolls the page in the browser."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools.browser._browser import HEIGHT, WIDTH, browser_of
from hermes.tools.browser._snapshot import WAIT, locate, shown

_STEP = int(HEIGHT * 0.85)
_WHERE = """() => {
    const e = document.scrollingElement || document.documentElement;
    return [Math.round(e.scrollTop), e.scrollHeight];
}"""
_QUIET = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Params(Struct, frozen=True):
    direction: Literal["down", "up"] = "down"
    ref: str = ""


@tool(
    "Scroll by about a screen, or to the element with this ref.",
    toolset="browser",
    risk="network",
    exclusive=True,
    timeout=60,
    sends=False,
)
async def browser_scroll(p: Params, ctx: ToolContext) -> ToolResult:
    browser = browser_of(ctx)
    async with browser.use(ctx) as page:
        if p.ref:
            await (await locate(page, p.ref)).scroll_into_view_if_needed(timeout=WAIT)
        else:
            await page.mouse.move(WIDTH / 2, HEIGHT / 2)
            await page.mouse.wheel(0, _STEP if p.direction == "down" else -_STEP)
        await page.evaluate(_QUIET)
        top, height = (int(n) for n in await page.evaluate(_WHERE))
        return await shown(browser, page, said=f"At {top} of {height} pixels.", rows=())

"""Scrolls the page in the browser."""

from typing import Literal

from msgspec import Struct

from hermes.core.tool import ToolContext, ToolResult
from hermes.tools.browser._browser import HEIGHT, WIDTH, browser_tool, get_browser
from hermes.tools.browser._snapshot import ELEMENT_TIMEOUT, find_element, show_page

_STEP_PIXELS = int(HEIGHT * 0.85)
_POSITION_SCRIPT = """() => {
    const e = document.scrollingElement || document.documentElement;
    return [Math.round(e.scrollTop), e.scrollHeight];
}"""
_RENDER_SCRIPT = (
    "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
)


class Params(Struct, frozen=True):
    direction: Literal["down", "up"] = "down"
    ref: str = ""


@browser_tool("Scroll by about a screen, or to the element with this ref.", timeout=60, sends=False)
async def browser_scroll(p: Params, ctx: ToolContext) -> ToolResult:
    browser = get_browser(ctx)
    async with browser.use_page(ctx) as page:
        if p.ref:
            await (await find_element(page, p.ref)).scroll_into_view_if_needed(
                timeout=ELEMENT_TIMEOUT
            )
        else:
            await page.mouse.move(WIDTH / 2, HEIGHT / 2)
            await page.mouse.wheel(0, _STEP_PIXELS if p.direction == "down" else -_STEP_PIXELS)
        await page.evaluate(_RENDER_SCRIPT)
        top, height = (int(n) for n in await page.evaluate(_POSITION_SCRIPT))
        return await show_page(browser, page, summary=f"At {top} of {height} pixels.", rows=())

"""Clicks an element of the page in the browser."""

from msgspec import Struct

from hermes.core.tool import ToolContext, ToolResult
from hermes.tools.browser._browser import browser_tool, get_browser
from hermes.tools.browser._navigation import NavigationWatch
from hermes.tools.browser._snapshot import ELEMENT_TIMEOUT, find_element, show_changes


class Params(Struct, frozen=True):
    ref: str


@browser_tool(
    "Click the element with this ref.", timeout=60, words="button link press submit form log login"
)
async def browser_click(p: Params, ctx: ToolContext) -> ToolResult:
    browser = get_browser(ctx)
    async with browser.use_page(ctx) as page:
        with NavigationWatch(page) as watch:
            await (await find_element(page, p.ref)).click(timeout=ELEMENT_TIMEOUT)
            return await show_changes(browser, page, watch, f"Clicked {p.ref}.")

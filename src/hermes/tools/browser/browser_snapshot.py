"""Shows the page in the browser as an accessibility tree."""

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult
from hermes.tools.browser._browser import browser_tool, get_browser
from hermes.tools.browser._snapshot import MAX_CHARS, show_later_part, show_page


class Params(Struct, frozen=True):
    offset: int = 0


@browser_tool(
    "The browser's page as it is now: an accessibility tree with refs. offset: a later part.",
    timeout=60,
    sends=False,
)
async def browser_snapshot(p: Params, ctx: ToolContext) -> ToolResult:
    if p.offset < 0:
        raise ToolError("offset counts characters from 0.")
    browser = get_browser(ctx)
    async with browser.use_page(ctx) as page:
        if p.offset and browser.snapshot:
            return show_later_part(browser, p.offset)
        return await show_page(browser, page, size=MAX_CHARS)

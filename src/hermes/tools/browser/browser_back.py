"""Goes back in the browser."""

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult
from hermes.tools.browser._browser import browser_tool, get_browser
from hermes.tools.browser._snapshot import show_page, wait_for_load

_LOAD_TIMEOUT = 20_000
_BLANK = "about:blank"


class Params(Struct, frozen=True):
    pass


@browser_tool(
    "Go back to the page before; a page another one opened is closed.", timeout=60, sends=False
)
async def browser_back(p: Params, ctx: ToolContext) -> ToolResult:
    browser = get_browser(ctx)
    async with browser.use_page(ctx) as page:
        before = page.url
        await page.go_back(wait_until="domcontentloaded", timeout=_LOAD_TIMEOUT)
        if page.url == _BLANK and before != _BLANK:
            await page.go_forward(timeout=_LOAD_TIMEOUT)
        if page.url == before:
            if browser.tabs.count < 2:
                raise ToolError("There is no page before this one.")
            await browser.tabs.close_current()
            page = await browser.tabs.get_current(page.context)
        await wait_for_load(page)
        return await show_page(browser, page)

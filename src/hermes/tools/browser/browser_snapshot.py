"""Shows the page in the browser as an accessibility tree."""

from __future__ import annotations

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools.browser._browser import browser_of
from hermes.tools.browser._snapshot import PART, more, shown


class Params(Struct, frozen=True):
    offset: int = 0


@tool(
    "The browser's page as it is now: an accessibility tree with refs. offset: a later part.",
    toolset="browser",
    risk="network",
    exclusive=True,
    timeout=60,
    sends=False,
)
async def browser_snapshot(p: Params, ctx: ToolContext) -> ToolResult:
    if p.offset < 0:
        raise ToolError("offset counts characters from 0.")
    browser = browser_of(ctx)
    async with browser.use(ctx) as page:
        if p.offset and browser.part:
            return more(browser, p.offset)
        return await shown(browser, page, size=PART)

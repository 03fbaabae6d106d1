"""Clicks an element of the page in the browser."""

from __future__ import annotations

from msgspec import Struct

from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools.browser._browser import browser_of
from hermes.tools.browser._navigation import Moving
from hermes.tools.browser._snapshot import WAIT, acted, locate


class Params(Struct, frozen=True):
    ref: str


@tool(
    "Click the element with this ref.",
    toolset="browser",
    risk="network",
    exclusive=True,
    timeout=60,
    words="button link press submit form log login",
)
async def browser_click(p: Params, ctx: ToolContext) -> ToolResult:
    browser = browser_of(ctx)
    async with browser.use(ctx) as page:
        with Moving(page) as moving:
            await (await locate(page, p.ref)).click(timeout=WAIT)
            return await acted(browser, page, moving, f"Clicked {p.ref}.")

"""Writes into a field of the page in the browser."""

from __future__ import annotations

from msgspec import Struct

from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools.browser._browser import browser_of
from hermes.tools.browser._moving import Moving
from hermes.tools.browser._view import WAIT, acted, locate

_SELECT = "e => e.tagName === 'SELECT'"


class Params(Struct, frozen=True):
    ref: str
    text: str
    submit: bool = False


@tool(
    "Replace what is in the field with this ref (or choose an option of a list); submit: then "
    "press Enter.",
    toolset="browser",
    risk="network",
    exclusive=True,
    timeout=60,
)
async def browser_type(p: Params, ctx: ToolContext) -> ToolResult:
    browser = browser_of(ctx)
    async with browser.use(ctx) as page:
        with Moving(page) as moving:
            field = await locate(page, p.ref)
            if await field.evaluate(_SELECT):
                await field.select_option(p.text, timeout=WAIT)
            else:
                await field.fill(p.text, timeout=WAIT)
            if p.submit:
                await field.press("Enter", timeout=WAIT)
            return await acted(browser, page, moving, f"Wrote {len(p.text)} characters to {p.ref}.")

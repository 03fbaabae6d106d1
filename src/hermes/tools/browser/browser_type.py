"""Writes into a field of the page in the browser."""

from __future__ import annotations

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools.browser._browser import browser_of
from hermes.tools.browser._navigation import Moving
from hermes.tools.browser._snapshot import WAIT, acted, locate

_OPTIONS = "e => e.tagName === 'SELECT' ? [...e.options].map(o => [o.value, o.label]) : null"
_SHOWN = 50
_TICKED = "e => e.tagName === 'INPUT' && ['checkbox', 'radio'].includes(e.type)"


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
    words="fill in form input text enter select log login",
)
async def browser_type(p: Params, ctx: ToolContext) -> ToolResult:
    browser = browser_of(ctx)
    async with browser.use(ctx) as page:
        with Moving(page) as moving:
            field = await locate(page, p.ref)
            if (options := await field.evaluate(_OPTIONS)) is not None:
                await field.select_option(_meant(p.text, options), timeout=WAIT)
            elif await field.evaluate(_TICKED):
                raise ToolError(f"{p.ref} is a box to tick: use browser_click.")
            else:
                await field.fill(p.text, timeout=WAIT)
            if p.submit:
                await field.press("Enter", timeout=WAIT)
            return await acted(browser, page, moving, f"Wrote {len(p.text)} characters to {p.ref}.")


def _meant(text: str, options: list[list[str]]) -> str:
    """The value or label of the option, whatever the case it was written in."""
    for form in (str, lambda said: " ".join(said.split()).casefold()):
        for option in options:
            if form(text) in map(form, option):
                return next(said for said in option if form(said) == form(text))
    labels = ", ".join(repr(label) for _, label in options[:_SHOWN])
    raise ToolError(f"The list has no {text[:100]!r}; it has: {labels[:2000]}.")

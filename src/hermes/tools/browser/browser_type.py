"""Writes into a field of the page in the browser."""

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult
from hermes.tools.browser._browser import browser_tool, get_browser
from hermes.tools.browser._navigation import NavigationWatch
from hermes.tools.browser._snapshot import ELEMENT_TIMEOUT, find_element, show_changes

_OPTIONS_SCRIPT = "e => e.tagName === 'SELECT' ? [...e.options].map(o => [o.value, o.label]) : null"
_MAX_LISTED = 50
_IS_BOX_SCRIPT = "e => e.tagName === 'INPUT' && ['checkbox', 'radio'].includes(e.type)"


class Params(Struct, frozen=True):
    ref: str
    text: str
    submit: bool = False


@browser_tool(
    "Replace what is in the field with this ref (or choose an option of a list); submit: then "
    "press Enter.",
    timeout=60,
    words="fill in form input text enter select log login",
)
async def browser_type(p: Params, ctx: ToolContext) -> ToolResult:
    browser = get_browser(ctx)
    async with browser.use_page(ctx) as page:
        with NavigationWatch(page) as watch:
            field = await find_element(page, p.ref)
            if (options := await field.evaluate(_OPTIONS_SCRIPT)) is not None:
                await field.select_option(_match_option(p.text, options), timeout=ELEMENT_TIMEOUT)
            elif await field.evaluate(_IS_BOX_SCRIPT):
                raise ToolError(f"{p.ref} is a checkbox or radio button; use browser_click.")
            else:
                await field.fill(p.text, timeout=ELEMENT_TIMEOUT)
            if p.submit:
                await field.press("Enter", timeout=ELEMENT_TIMEOUT)
            return await show_changes(
                browser, page, watch, f"Wrote {len(p.text)} characters to {p.ref}."
            )


def _match_option(text: str, options: list[list[str]]) -> str:
    """The value or label of the option, ignoring case and white space."""
    for form in (str, lambda value: " ".join(value.split()).casefold()):
        for option in options:
            if form(text) in map(form, option):
                return next(value for value in option if form(value) == form(text))
    labels = ", ".join(repr(label) for _, label in options[:_MAX_LISTED])
    raise ToolError(f"The list has no option {text[:100]!r}; it has: {labels[:2000]}.")

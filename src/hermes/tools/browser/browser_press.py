"""Presses a key in the browser."""

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult
from hermes.tools.browser._browser import browser_tool, get_browser
from hermes.tools.browser._navigation import NavigationWatch
from hermes.tools.browser._snapshot import show_changes

_FOCUS_SCRIPT = """() => {
    const e = document.activeElement;
    return e ? (e.tagName + ' ' + (e.getAttribute('aria-label') || e.name || e.innerText || ''))
        .slice(0, 80) : '';
}"""
_KEY_ALIASES = {
    "ctrl": "Control",
    "cmd": "Meta",
    "command": "Meta",
    "option": "Alt",
    "esc": "Escape",
    "return": "Enter",
    "space": "Space",
    "del": "Delete",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
}
_KEY_NAMES = (
    "Enter Tab Escape Backspace Delete Insert Home End PageUp PageDown ArrowUp ArrowDown ArrowLeft "
    "ArrowRight Control Shift Alt Meta Space".split()
)


class Params(Struct, frozen=True):
    key: str


@browser_tool(
    "Press a key or a combination: Enter, Tab, Escape, ArrowDown, Control+a.",
    timeout=60,
    words="keyboard shortcut",
)
async def browser_press(p: Params, ctx: ToolContext) -> ToolResult:
    from playwright.async_api import Error

    browser = get_browser(ctx)
    async with browser.use_page(ctx) as page:
        with NavigationWatch(page) as watch:
            key = "+".join(map(_normalize_key, p.key.split("+"))) if len(p.key) > 1 else p.key
            try:
                await page.keyboard.press(key)
            except Error as error:
                if "Unknown key" not in str(error):
                    raise
                raise ToolError(
                    f"There is no key {p.key!r}; nothing was pressed. Give one character, or "
                    f"{', '.join(_KEY_NAMES)}, F1-F12, joined by +. To write text use browser_type."
                ) from None
            focus = str(await page.evaluate(_FOCUS_SCRIPT)).strip()
            return await show_changes(
                browser, page, watch, f"Pressed {p.key}. Focus: {focus or 'none'}."
            )


def _normalize_key(name: str) -> str:
    plain = name.strip().casefold()
    known = {key.casefold(): key for key in _KEY_NAMES} | _KEY_ALIASES
    return known.get(plain, name.strip() or name)

"""Opens a URL in the session's browser."""

from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult
from hermes.tools._services import require_web
from hermes.tools.browser._browser import Browser, browser_tool, get_browser
from hermes.tools.browser._snapshot import show_page, wait_for_load

if TYPE_CHECKING:
    from playwright.async_api import Page, Response

_LOAD_TIMEOUT = 30_000


class Params(Struct, frozen=True):
    url: str


@browser_tool(
    "Open a web page in a browser; shows it as a tree whose refs other browser tools take.",
    timeout=150,
    fetches=lambda p: p.url,
    words="visit go website site url link log login internet",
)
async def browser_navigate(p: Params, ctx: ToolContext) -> ToolResult:
    url = p.url.strip()
    # Only for a clear message: the proxy checks for itself.
    await require_web(ctx).fetcher.check_url(url)
    browser = get_browser(ctx)
    async with browser.use_page(ctx, may_start=True) as page:
        answer = await _open_url(browser, page, url)
        status = answer.status if answer is not None else 200
        summary = "" if 200 <= status < 300 else f"Status: {status}"
        return await show_page(browser, page, summary=summary)


async def _open_url(browser: Browser, page: "Page", url: str) -> "Response | None":
    """Open the URL; a page that keeps loading is shown as far as it has come."""
    from playwright.async_api import TimeoutError as Late

    before = page.url
    try:
        answer = await page.goto(url, wait_until="domcontentloaded", timeout=_LOAD_TIMEOUT)
    except Late:
        if page.url == before:
            raise ToolError(
                f"{url[:200]} did not answer within {_LOAD_TIMEOUT // 1000} s."
            ) from None
        browser.tabs.add_note("the page is still loading")
        return None
    await wait_for_load(page)
    return answer

"""The pages of a browser: which one is at hand, and what happened on them since the last look."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from playwright.async_api import (
        Browser,
        BrowserContext,
        ConsoleMessage,
        Dialog,
        Download,
        Error,
        FileChooser,
        Page,
    )

MOST = 6
"""Pages at once; what a page opens beyond that is closed."""
_KEPT = 200
_LONGEST = 1000
_NOTES = 8
_WORDS = 200


class Said(Struct, frozen=True):
    """One line of a page's console."""

    kind: str
    text: str
    where: str = ""


class Tabs:
    """Dialogs are dismissed and downloads refused; both are noted. A page that another opens comes
    to the front, and goes back when it is closed."""

    def __init__(self, notes: list[str] | None = None) -> None:
        self.connected = True
        self.notes: list[str] = [] if notes is None else notes
        self.console: deque[Said] = deque(maxlen=_KEPT)
        self._pages: list[Page] = []

    def watch(self, browser: Browser, context: BrowserContext) -> None:
        browser.on("disconnected", self._gone)
        context.on("page", self._opened)
        context.on("dialog", self._dialog)
        context.on("console", self._printed)
        context.on("weberror", lambda error: self._failed(error.error))

    async def current(self, context: BrowserContext) -> Page:
        """The page at hand; a new one when there is none."""
        if not self._pages:
            page = await context.new_page()
            if page not in self._pages:
                self._pages.append(page)
        return self._pages[-1]

    @property
    def count(self) -> int:
        return len(self._pages)

    async def drop(self) -> None:
        """Close the page at hand."""
        if self._pages:
            await self._pages[-1].close()

    def note(self, text: str) -> None:
        line = " ".join(text.split())[:_WORDS]
        if len(self.notes) < _NOTES and line not in self.notes:
            self.notes.append(line)

    def take_notes(self) -> list[str]:
        taken, self.notes[:] = list(self.notes), []
        return taken

    def _gone(self, _: Browser) -> None:
        self.connected = False

    async def _opened(self, page: Page) -> None:
        page.on("close", self._closed)
        page.on("crash", self._crashed)
        page.on("download", self._download)
        page.on("filechooser", self._wants_file)
        if page in self._pages:
            return
        if len(self._pages) >= MOST:
            self.note("the page opened too many others; one was closed")
            await page.close()
            return
        if self._pages:
            self.note("a new page was opened and is shown now; browser_back closes it")
        self._pages.append(page)

    def _closed(self, page: Page) -> None:
        if page in self._pages:
            self._pages.remove(page)

    async def _crashed(self, page: Page) -> None:
        self.note("the page crashed and was closed")
        self._closed(page)
        await page.close()

    async def _dialog(self, dialog: Dialog) -> None:
        if dialog.type == "beforeunload":
            await dialog.accept()
            return
        self.note(f"a dialog ({dialog.type}) was dismissed; it said: {dialog.message}")
        await dialog.dismiss()

    def _wants_file(self, _: FileChooser) -> None:
        self.note("the page asks for a file; none can be given from here")

    async def _download(self, download: Download) -> None:
        self.note(f"a download was refused: {download.suggested_filename} from {download.url}")
        await download.cancel()

    def _printed(self, message: ConsoleMessage) -> None:
        place = message.location
        where = f"{place['url']}:{place['lineNumber']}" if place.get("url") else ""
        self.console.append(Said(message.type, message.text[:_LONGEST], where[:_WORDS]))

    def _failed(self, error: Error) -> None:
        self.console.append(Said("exception", str(error)[:_LONGEST]))

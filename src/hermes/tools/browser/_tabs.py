"""The pages of a browser: which one is current, and what has happened on them."""

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

MAX_PAGES = 6
"""Pages opened beyond that are closed."""
_MAX_CONSOLE_ENTRIES = 200
_MAX_CONSOLE_CHARS = 1000
_MAX_NOTES = 8
_MAX_NOTE_CHARS = 200


class ConsoleEntry(Struct, frozen=True):
    """One line of a page's console."""

    kind: str
    text: str
    where: str = ""


class Tabs:
    """Dismisses dialogs and refuses downloads, noting both. A page that another one opens becomes
    the current page until it is closed."""

    def __init__(self, notes: list[str] | None = None) -> None:
        self.connected = True
        self.notes: list[str] = [] if notes is None else notes
        self.console: deque[ConsoleEntry] = deque(maxlen=_MAX_CONSOLE_ENTRIES)
        self._pages: list[Page] = []

    def watch(self, browser: Browser, context: BrowserContext) -> None:
        browser.on("disconnected", self._on_disconnect)
        context.on("page", self._on_page)
        context.on("dialog", self._on_dialog)
        context.on("console", self._on_console)
        context.on("weberror", lambda error: self._on_error(error.error))

    async def get_current(self, context: BrowserContext) -> Page:
        """The current page; a new one when there is none."""
        if not self._pages:
            page = await context.new_page()
            if page not in self._pages:
                self._pages.append(page)
        return self._pages[-1]

    @property
    def count(self) -> int:
        return len(self._pages)

    async def close_current(self) -> None:
        if self._pages:
            await self._pages[-1].close()

    def add_note(self, text: str) -> None:
        line = " ".join(text.split())[:_MAX_NOTE_CHARS]
        if len(self.notes) < _MAX_NOTES and line not in self.notes:
            self.notes.append(line)

    def take_notes(self) -> list[str]:
        taken, self.notes[:] = list(self.notes), []
        return taken

    def _on_disconnect(self, _: Browser) -> None:
        self.connected = False

    async def _on_page(self, page: Page) -> None:
        page.on("close", self._on_close)
        page.on("crash", self._on_crash)
        page.on("download", self._on_download)
        page.on("filechooser", self._on_file_chooser)
        if page in self._pages:
            return
        if len(self._pages) >= MAX_PAGES:
            self.add_note("the page opened too many others; one was closed")
            await page.close()
            return
        if self._pages:
            self.add_note(
                "a new page was opened and is now the current one; browser_back closes it"
            )
        self._pages.append(page)

    def _on_close(self, page: Page) -> None:
        if page in self._pages:
            self._pages.remove(page)

    async def _on_crash(self, page: Page) -> None:
        self.add_note("the page crashed and was closed")
        self._on_close(page)
        await page.close()

    async def _on_dialog(self, dialog: Dialog) -> None:
        if dialog.type == "beforeunload":
            await dialog.accept()
            return
        self.add_note(f"a dialog ({dialog.type}) was dismissed; it said: {dialog.message}")
        await dialog.dismiss()

    def _on_file_chooser(self, _: FileChooser) -> None:
        self.add_note("the page asks for a file; uploads are not possible")

    async def _on_download(self, download: Download) -> None:
        self.add_note(f"a download was refused: {download.suggested_filename} from {download.url}")
        await download.cancel()

    def _on_console(self, message: ConsoleMessage) -> None:
        location = message.location
        where = f"{location['url']}:{location['lineNumber']}" if location.get("url") else ""
        self.console.append(
            ConsoleEntry(message.type, message.text[:_MAX_CONSOLE_CHARS], where[:_MAX_NOTE_CHARS])
        )

    def _on_error(self, error: Error) -> None:
        self.console.append(ConsoleEntry("exception", str(error)[:_MAX_CONSOLE_CHARS]))

"""Chromium with the real pages and the real server; whatever the page complains about fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page

from hermes.app.live.sign_in_codes import create_code
from hermes.exec.chromium import find_browser
from hermes.tools.browser._browser import start_driver
from tests.kit.api import Api, api
from tests.kit.dashboard import ON

LOOPBACK_ONLY = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
"""Nothing but this machine exists for the browser."""


class Visit:
    """A server, and a browser that has signed in to it."""

    def __init__(self, a: Api, browser: Browser, complaints: list[str]) -> None:
        self.api = a
        self.browser = browser
        self.complaints = complaints
        self.context: BrowserContext
        self.page: Page

    async def make_context(self, **options: Any) -> BrowserContext:
        """A browser that has seen nothing yet."""
        context = await self.browser.new_context(
            **{"viewport": {"width": 1440, "height": 900}, **options}
        )
        context.set_default_timeout(90_000)
        return context

    async def open_context(self, **options: Any) -> Page:
        self.context = await self.make_context(**options)
        self.page = await self.open_page()
        code = await create_code(self.api.server.runtime.store.objects)
        await self.page.goto(f"{self.api.url}/#code={code}")
        await self.wait_until_live()
        return self.page

    async def open_page(self) -> Page:
        page = await self.context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._note_message)
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        return page

    def _note_message(self, message: Any) -> None:
        expected = "Failed to load resource" in message.text or "net::ERR" in message.text
        if message.type in ("error", "warning") and not expected:
            self.complaints.append(message.text)

    async def wait_until_live(self, page: Page | None = None) -> None:
        found = (page or self.page).get_by_role("status", name="Connection")
        await found.and_((page or self.page).locator("[data-state=live]")).wait_for()

    async def send(self, text: str) -> None:
        await self.page.get_by_role("textbox", name="Message").fill(text)
        await self.page.keyboard.press("Enter")

    async def wait_until_answered(self, text: str) -> None:
        log = self.page.get_by_role("log", name="Conversation")
        await log.get_by_text(text).first.wait_for()
        await self.page.get_by_role("button", name="Send").wait_for()

    async def read_log(self, page: Page | None = None) -> str:
        return await (page or self.page).get_by_role("log", name="Conversation").inner_text()


@asynccontextmanager
async def visit(root: Path, steps: Any = (), **options: Any) -> AsyncIterator[Visit]:
    import os

    config = {**ON, **options.pop("config", {})}
    complaints: list[str] = []
    # The driver's environment is that of whoever started one before in this process.
    driver = start_driver(dict(os.environ))
    async with api(root, steps, config=config, **options) as a, driver as playwright:
        browser = await playwright.chromium.launch(
            executable_path=find_browser("", os.environ), args=["--no-sandbox", LOOPBACK_ONLY]
        )
        found = Visit(a, browser, complaints)
        await found.open_context()
        try:
            yield found
        finally:
            await browser.close()
    assert complaints == []


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path

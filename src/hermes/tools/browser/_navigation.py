"""Notices whether an action leads the page elsewhere, and waits until it is there."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Download, Frame, Page, Request

_MOMENT = 0.3
"""Seconds in which an action begins to lead elsewhere, if it does."""
_ARRIVAL = 15.0


class Moving:
    """Around an action on a page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.before = page.url
        self._begun = asyncio.Event()
        self._arrived = asyncio.Event()

    def __enter__(self) -> Moving:
        self.page.on("request", self._asks)
        self.page.on("requestfailed", self._fails)
        self.page.on("framenavigated", self._arrives)
        self.page.on("popup", self._opens)
        self.page.on("download", self._opens)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.page.remove_listener("request", self._asks)
        self.page.remove_listener("requestfailed", self._fails)
        self.page.remove_listener("framenavigated", self._arrives)
        self.page.remove_listener("popup", self._opens)
        self.page.remove_listener("download", self._opens)

    async def settle(self) -> None:
        try:
            async with asyncio.timeout(_MOMENT):
                await self._begun.wait()
        except TimeoutError:
            return
        try:
            async with asyncio.timeout(_ARRIVAL):
                await self._arrived.wait()
        except TimeoutError:
            return

    def _main(self, request: Request) -> bool:
        return request.is_navigation_request() and request.frame == self.page.main_frame

    def _asks(self, request: Request) -> None:
        if self._main(request):
            self._begun.set()

    def _fails(self, request: Request) -> None:
        if self._main(request):
            self._arrived.set()

    def _arrives(self, frame: Frame) -> None:
        if frame == self.page.main_frame:
            self._begun.set()
            self._arrived.set()

    def _opens(self, _: Page | Download) -> None:
        self._begun.set()
        self._arrived.set()

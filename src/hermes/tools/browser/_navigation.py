"""Notices whether an action makes the page navigate, and waits until it has arrived."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Download, Frame, Page, Request

_START_TIMEOUT = 0.3
"""Seconds within which an action starts a navigation, if it does."""
_ARRIVAL_TIMEOUT = 15.0


class NavigationWatch:
    """A context around one action on a page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.start_url = page.url
        self._begun = asyncio.Event()
        self._arrived = asyncio.Event()

    def __enter__(self) -> NavigationWatch:
        self.page.on("request", self._on_request)
        self.page.on("requestfailed", self._on_failure)
        self.page.on("framenavigated", self._on_navigation)
        self.page.on("popup", self._on_new_target)
        self.page.on("download", self._on_new_target)
        return self

    def __exit__(self, *_: object) -> None:
        self.page.remove_listener("request", self._on_request)
        self.page.remove_listener("requestfailed", self._on_failure)
        self.page.remove_listener("framenavigated", self._on_navigation)
        self.page.remove_listener("popup", self._on_new_target)
        self.page.remove_listener("download", self._on_new_target)

    async def wait_for_arrival(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_TIMEOUT):
                await self._begun.wait()
            async with asyncio.timeout(_ARRIVAL_TIMEOUT):
                await self._arrived.wait()

    def _is_main_frame(self, request: Request) -> bool:
        return request.is_navigation_request() and request.frame == self.page.main_frame

    def _on_request(self, request: Request) -> None:
        if self._is_main_frame(request):
            self._begun.set()

    def _on_failure(self, request: Request) -> None:
        if self._is_main_frame(request):
            self._arrived.set()

    def _on_navigation(self, frame: Frame) -> None:
        if frame == self.page.main_frame:
            self._begun.set()
            self._arrived.set()

    def _on_new_target(self, _: Page | Download) -> None:
        self._begun.set()
        self._arrived.set()

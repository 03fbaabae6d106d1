"""The browser of a session: started on first use, closed when idle, restarted when it has ended."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from msgspec import structs

from hermes.config.paths import cache_folder
from hermes.config.schema import BrowserSection as Settings
from hermes.core.errors import ToolError
from hermes.core.lifecycle import register_closer
from hermes.core.services import ServiceKey
from hermes.core.tool import ToolContext, tool
from hermes.exec import chromium
from hermes.net.cdp_bridge import open_bridge
from hermes.net.egress_proxy import Refusal, serve_loopback_proxy, serve_unix_proxy
from hermes.net.ssrf import SsrfGuard
from hermes.tools._services import BROWSER_SETTINGS, require_web
from hermes.tools.browser._tabs import Tabs

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page, Playwright, ProxySettings

    from hermes.exec.sandbox import SandboxPolicy


log = logging.getLogger(__name__)

WIDTH, HEIGHT = 1280, 800
_ACTION_TIMEOUT = 40.0
"""Seconds after which a page that does not answer is closed."""
_START_TIMEOUT = 45.0
_END_TIMEOUT = 1.0
_STOP_TIMEOUT = 10.0
_ENV_FUNCTION = "get_driver_env"
_DRIVER_ENV = {"NODE_NO_WARNINGS": "1", "PW_LANG_NAME": "python"}
_RELAY_URL = "http://127.0.0.1:3128"
_BLOCKED_REASON = re.compile(
    r"(element is (?:not \w+|outside of the viewport)|<[^\n]{1,250}? intercepts pointer events)"
)
"""The reason in Playwright's log why an element could not be used."""
_ENDED = (
    "The browser ended; its pages, cookies and logins are lost. browser_navigate starts another."
)
_MISSING = (
    "No browser was started: Playwright is not installed. Install the extra `browser` "
    "(pip install 'hermes-runtime[browser]')."
)
_running: WeakSet[Browser] = WeakSet()
browser_tool = partial(tool, toolset="browser", risk="network", exclusive=True)


class Browser:
    """At most one process at a time; calls never overlap, because the tools are exclusive."""

    def __init__(self, settings: Settings, guard: SsrfGuard) -> None:
        self._settings = settings
        self._guard = guard
        self._resources = AsyncExitStack()
        self._pipe: chromium.BrowserPipe | None = None
        self._context: BrowserContext | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self._why_closed = ""
        self._starting = asyncio.Lock()
        self.tabs = Tabs()
        self.snapshot = ""
        """The last snapshot, which is read in parts."""

    @property
    def alive(self) -> bool:
        return self._pipe is not None and not self._pipe.ended.done() and self.tabs.connected

    @asynccontextmanager
    async def use_page(self, ctx: ToolContext, *, may_start: bool = False) -> AsyncIterator[Page]:
        """The current page. `may_start`: start a browser when there is none. Playwright's errors
        inside become ToolErrors."""
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as Late

        self._set_idle_timer(None)
        limit = _ACTION_TIMEOUT + (_START_TIMEOUT if may_start and not self.alive else 0)
        try:
            async with asyncio.timeout(limit):
                yield await self._get_page(ctx, may_start=may_start)
        except Error as error:
            if not isinstance(error, Late) and await self._has_ended(error):
                raise ToolError(_ENDED) from None
            raise self._make_error(error) from None
        except TimeoutError:
            await self._close_stuck_page()
            raise ToolError(
                "The page did not answer for a long time (a script may be stuck) and was closed. "
                "browser_navigate opens another."
            ) from None
        finally:
            self._set_idle_timer(self._settings.idle_timeout)

    def _make_error(self, error: Exception) -> ToolError:
        """Playwright's message, with the notes of what else happened."""
        notes = [f"[{note}]" for note in self.tabs.take_notes()]
        return ToolError("\n".join([describe_error(error), *notes]))

    async def _has_ended(self, error: Exception) -> bool:
        """Whether the browser has ended; a closed page may be the first sign."""
        if "closed" in str(error) and self.alive and self._pipe is not None:
            await asyncio.wait([self._pipe.ended], timeout=_END_TIMEOUT)
        return not self.alive

    async def _get_page(self, ctx: ToolContext, *, may_start: bool) -> Page:
        async with self._starting:
            if self._closing is not None:
                await asyncio.shield(self._closing)
            if not self.alive:
                ended = self._pipe is not None
                await self.aclose()
                if not may_start:
                    raise ToolError(self._why_closed or (_ENDED if ended else _NO_PAGE))
                if ended:
                    self.tabs.add_note("the browser had ended; this is a new one")
                await self._start(ctx)
        assert self._context is not None
        return await self.tabs.get_current(self._context)

    async def _start(self, ctx: ToolContext) -> None:
        executable = chromium.find_browser(self._settings.executable, ctx.workspace.child_env)
        ctx.progress("starting the browser")
        async with AsyncExitStack() as stack:
            home = stack.enter_context(chromium.temporary_profile())
            proxy, policy = await self._open_proxy(ctx, home, stack)
            env = ctx.workspace.child_env
            pipe, playwright = await _start_processes(executable, home, env, policy, stack)
            endpoint = await stack.enter_async_context(open_bridge(pipe.reader, pipe.writer))
            browser = await playwright.chromium.connect_over_cdp(
                endpoint, is_local=True, artifacts_dir=home / "artifacts"
            )
            context = await browser.new_context(
                viewport={"width": WIDTH, "height": HEIGHT},
                accept_downloads=False,
                service_workers="block",
                proxy=proxy,
            )
            self.tabs = Tabs(notes=self.tabs.notes)
            self.tabs.watch(browser, context)
            self._pipe, self._context, self._why_closed = pipe, context, ""
            self._resources = stack.pop_all()
            _running.add(self)

    async def _open_proxy(
        self, ctx: ToolContext, home: Path, stack: AsyncExitStack
    ) -> tuple[ProxySettings, SandboxPolicy | None]:
        """Open the egress proxy for the browser. As root a browser cannot confine itself, so it
        is confined like a command where possible and has no network but the proxy. Otherwise the
        proxy listens on loopback with a password, and the browser is set to use it."""
        policy = await _build_root_policy(ctx, home) if os.geteuid() == 0 else None
        if policy is None:
            local = await stack.enter_async_context(
                serve_loopback_proxy(self._guard, on_refusal=self._note_refusal)
            )
            login: ProxySettings = {"username": local.user, "password": local.password}
            return {"server": local.url, "bypass": "<-loopback>", **login}, None
        path = await stack.enter_async_context(
            serve_unix_proxy(home / "way", None, self._guard, None, self._note_refusal)
        )
        proxy: ProxySettings = {"server": _RELAY_URL, "bypass": "<-loopback>"}
        return proxy, structs.replace(policy, network=str(path))

    def _note_refusal(self, refusal: Refusal) -> None:
        self.tabs.add_note(f"refused: {refusal.reason}")

    async def _close_stuck_page(self) -> None:
        """Close the page that does not answer or, when that fails too, the browser."""
        try:
            async with asyncio.timeout(5):
                await self.tabs.close_current()
        except TimeoutError:
            await self.aclose()

    def _set_idle_timer(self, seconds: float | None) -> None:
        """Close after this many seconds without use; None: stop the timer."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if seconds and self.alive:
            self._idle = asyncio.get_running_loop().call_later(seconds, self._close_idle)

    def _close_idle(self) -> None:
        minutes = self._settings.idle_timeout / 60
        self._why_closed = (
            f"The browser was closed after {minutes:g} minutes without use; its pages, cookies "
            "and logins are lost. browser_navigate starts a new one."
        )
        self._closing = asyncio.ensure_future(self.aclose())
        self._closing.add_done_callback(self._log_close_failure)

    def _log_close_failure(self, closing: asyncio.Task[None]) -> None:
        self._closing = None
        if not closing.cancelled() and (error := closing.exception()) is not None:
            log.error("the idle browser was not closed cleanly", exc_info=error)

    async def aclose(self) -> None:
        """End the process with everything it started, and remove its files."""
        self._set_idle_timer(None)
        _running.discard(self)
        self._pipe = self._context = None
        self.snapshot = ""
        resources, self._resources = self._resources, AsyncExitStack()
        await resources.aclose()


_NO_PAGE = "No page is open; browser_navigate opens one."
_SESSION_BROWSER: ServiceKey[Browser] = ServiceKey("browser")


def get_browser(ctx: ToolContext) -> Browser:
    """The session's browser, which starts on first use."""
    settings = ctx.services.get(BROWSER_SETTINGS) or Settings()
    guard = require_web(ctx).fetcher.guard
    return ctx.services.get_or_make(_SESSION_BROWSER, lambda: Browser(settings, guard))


async def stop_browsers() -> None:
    """End the browsers of sessions that were not closed."""
    for browser in list(_running):
        with suppress(ToolError):
            await browser.aclose()


register_closer(stop_browsers)


async def _start_processes(
    executable: str,
    home: Path,
    env: Mapping[str, str],
    policy: SandboxPolicy | None,
    stack: AsyncExitStack,
) -> tuple[chromium.BrowserPipe, Playwright]:
    """Start the browser and the driver side by side."""
    path = env.get("PATH", os.defpath)
    own = {**_DRIVER_ENV, "PATH": path, "HOME": str(home), "TMPDIR": str(home)}
    enter = stack.enter_async_context
    try:
        async with asyncio.TaskGroup() as group:
            pipe = group.create_task(
                enter(chromium.run_browser(executable, home, env=env, policy=policy))
            )
            playwright = group.create_task(enter(start_driver(own)))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return pipe.result(), playwright.result()


async def _build_root_policy(ctx: ToolContext, home: Path) -> SandboxPolicy | None:
    from hermes.exec.sandbox import build_policy
    from hermes.exec.sandbox_probe import probe_tier

    if (await probe_tier(cache_folder(ctx.workspace.home))).level != 1:
        if ctx.workspace.sandbox_required:
            raise ToolError(
                "sandbox.required is true, but a browser run by root cannot be confined here; it "
                "was not started. Install bubblewrap, or run the agent as another user."
            )
        return None
    user = ctx.workspace.child_env.get("HOME")
    policy = build_policy(
        "workspace-write", home, ctx.workspace.home, Path(user) if user else Path.home()
    )
    return structs.replace(policy, protected=())


def describe_error(error: Exception) -> str:
    """Playwright's message without its log, but with what it waited for."""
    text, _, log = str(error).partition("\nCall log:")
    if "Timeout" in text and (reasons := _BLOCKED_REASON.findall(log)):
        return f"The element cannot be used now: {reasons[-1][:300]}. Nothing was done."
    if "Download is starting" in text:
        return "That URL is a file to download, not a page; it was not downloaded."
    caller, _, rest = text.strip().partition(": ")
    text = rest if rest and "." in caller else text.strip()
    return text.removeprefix("Error: ")[:500]


@asynccontextmanager
async def start_driver(env: Mapping[str, str]) -> AsyncIterator[Playwright]:
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        raise ToolError(_MISSING) from None
    _replace_driver_env(dict(env))
    playwright = async_playwright()
    # Shielded: a half-started driver cannot be stopped.
    started = asyncio.ensure_future(playwright.start())
    try:
        yield await asyncio.shield(started)
    finally:
        await asyncio.wait([started], timeout=_STOP_TIMEOUT)
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                await playwright.__aexit__()


def _replace_driver_env(env: dict[str, str]) -> None:
    """Replace the function that makes the driver's environment wherever it was imported: it hands
    over our whole environment, keys included, and Playwright has no parameter for it."""
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("playwright._impl")]
    importers = [m for m in modules if hasattr(m, _ENV_FUNCTION)]
    if not importers:
        raise ToolError(
            "No browser was started: this version of Playwright would pass secrets to its driver. "
            "Install the version that the extra `browser` names."
        )
    for module in importers:
        setattr(module, _ENV_FUNCTION, lambda: env)

"""One session's browser: started by the first use, closed when idle, started anew after its end."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from msgspec import Struct, structs

from hermes.config.paths import cache_folder
from hermes.config.schema import Browser as Settings
from hermes.core.errors import ToolError
from hermes.core.services import ServiceKey
from hermes.core.shutdown import register_closer
from hermes.core.tool import ToolContext
from hermes.exec import chromium
from hermes.net.cdp_bridge import open_bridge
from hermes.net.egress_proxy import LoopbackProxy, serve_loopback_proxy, serve_unix_proxy
from hermes.net.ssrf import SsrfGuard
from hermes.tools._services import BROWSER_SETTINGS, require_web
from hermes.tools.browser._driver import driver
from hermes.tools.browser._tabs import Tabs

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page, Playwright, ProxySettings

    from hermes.exec.sandbox import SandboxPolicy

log = logging.getLogger(__name__)

"""Under this name a session's tools find their Browser, or before that its settings."""
WIDTH, HEIGHT = 1280, 800
_STUCK = 40.0
"""Seconds after which a page that does not answer is given up."""
_SIGN = 1.0
_DRIVER = {"NODE_NO_WARNINGS": "1", "PW_LANG_NAME": "python"}
_RELAY = "http://127.0.0.1:3128"
_WAITED = re.compile(
    r"(element is (?:not \w+|outside of the viewport)|<[^\n]{1,250}? intercepts pointer events)"
)
"""Why an element could not be used, in Playwright's log."""
_ENDED = "The browser ended; its pages, cookies and logins are gone. browser_navigate starts anew."
_open: WeakSet[Browser] = WeakSet()


class _Way(Struct, frozen=True):
    """How the browser reaches the door: the address of a proxy, and the login it asks for."""

    proxy: str
    login: LoopbackProxy | None = None
    policy: SandboxPolicy | None = None


class Browser:
    """At most one process at a time. Calls come one after the other (the tools are exclusive)."""

    def __init__(self, settings: Settings, gate: SsrfGuard) -> None:
        self._settings = settings
        self._gate = gate
        self._held = AsyncExitStack()
        self._pipe: chromium.BrowserPipe | None = None
        self._context: BrowserContext | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self._why_closed = ""
        self._starting = asyncio.Lock()
        self.tabs = Tabs()
        self.part = ""
        """The snapshot that is being read in parts."""

    @property
    def alive(self) -> bool:
        return self._pipe is not None and not self._pipe.ended.done() and self.tabs.connected

    @asynccontextmanager
    async def use(self, ctx: ToolContext, *, fresh: bool = False) -> AsyncIterator[Page]:
        """The page at hand. `fresh`: a browser may be started for it; otherwise there must be
        one. What Playwright raises inside becomes a sentence."""
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as Late

        self._rest(None)
        try:
            async with asyncio.timeout(_STUCK + self._start_seconds(fresh)):
                page = await self._page(ctx, fresh=fresh)
                yield page
        except Late as error:
            raise self._failure(error) from None
        except Error as error:
            if await self._has_ended(error):
                raise ToolError(_ENDED) from None
            raise self._failure(error) from None
        except TimeoutError:
            await self._give_up()
            raise ToolError(
                "The page did not answer for a long time (its script may never end); it was "
                "closed. browser_navigate opens another."
            ) from None
        finally:
            self._rest(self._settings.idle_timeout)

    def _failure(self, error: Exception) -> ToolError:
        """In Playwright's words, with what happened besides."""
        notes = [f"[{note}]" for note in self.tabs.take_notes()]
        return ToolError("\n".join([reason(error), *notes]))

    async def _has_ended(self, error: Exception) -> bool:
        """A page that is gone may be the first sign of it."""
        if "closed" in str(error) and self.alive and self._pipe is not None:
            await asyncio.wait([self._pipe.ended], timeout=_SIGN)
        return not self.alive

    def _start_seconds(self, fresh: bool) -> float:
        return 45.0 if fresh and not self.alive else 0.0

    async def _page(self, ctx: ToolContext, *, fresh: bool) -> Page:
        async with self._starting:
            if self._closing is not None:
                await asyncio.shield(self._closing)
            if not self.alive:
                ended = self._pipe is not None
                await self.aclose()
                if not fresh:
                    raise ToolError(self._why_closed or (_ENDED if ended else _NONE))
                if ended:
                    self.tabs.note("the browser had ended and was started again: it is a new one")
                await self._start(ctx)
        assert self._context is not None
        return await self.tabs.current(self._context)

    async def _start(self, ctx: ToolContext) -> None:
        executable = chromium.find_browser(self._settings.executable, ctx.workspace.child_env)
        ctx.progress("starting the browser")
        async with AsyncExitStack() as stack:
            home = stack.enter_context(chromium.temporary_profile())
            way = await self._way(ctx, home, stack)
            pipe, playwright = await _both(
                executable, home, ctx.workspace.child_env, way.policy, stack
            )
            endpoint = await stack.enter_async_context(open_bridge(pipe.reader, pipe.writer))
            browser = await playwright.chromium.connect_over_cdp(
                endpoint, is_local=True, artifacts_dir=home / "artifacts"
            )
            proxy: ProxySettings = {"server": way.proxy, "bypass": "<-loopback>"}
            if way.login is not None:
                proxy |= {"username": way.login.user, "password": way.login.password}
            context = await browser.new_context(
                viewport={"width": WIDTH, "height": HEIGHT},
                accept_downloads=False,
                service_workers="block",
                proxy=proxy,
            )
            self.tabs = Tabs(notes=self.tabs.notes)
            self.tabs.watch(browser, context)
            self._pipe, self._context, self._why_closed = pipe, context, ""
            self._held = stack.pop_all()
            _open.add(self)

    async def _way(self, ctx: ToolContext, home: Path, stack: AsyncExitStack) -> _Way:
        """A browser of root cannot confine itself, so it is confined like a command where that is
        possible: it then has no network but the door. Elsewhere it finds the door on loopback,
        with a password, and its settings lead everything there."""
        refused = self.tabs_refused
        policy = await _walls(ctx, home) if os.geteuid() == 0 else None
        if policy is None:
            local = await stack.enter_async_context(
                serve_loopback_proxy(self._gate, on_refusal=refused)
            )
            return _Way(local.url, local)
        path = await stack.enter_async_context(
            serve_unix_proxy(home / "way", None, self._gate, None, refused)
        )
        return _Way(_RELAY, policy=structs.replace(policy, network=str(path)))

    def tabs_refused(self, reason: str) -> None:
        self.tabs.note(f"refused: {reason}")

    async def _give_up(self) -> None:
        """Close the page that does not answer; when not even that works, the browser."""
        try:
            async with asyncio.timeout(5):
                await self.tabs.drop()
        except TimeoutError:
            await self.aclose()

    def _rest(self, seconds: float | None) -> None:
        """Close after this many seconds without use; None: not while it is in use."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if seconds and self.alive:
            self._idle = asyncio.get_running_loop().call_later(seconds, self._tire)

    def _tire(self) -> None:
        minutes = self._settings.idle_timeout / 60
        self._why_closed = (
            f"The browser was closed after {minutes:g} minutes without use; its pages, cookies "
            "and logins are gone. browser_navigate starts a new one."
        )
        self._closing = asyncio.ensure_future(self.aclose())
        self._closing.add_done_callback(self._closed)

    def _closed(self, closing: asyncio.Task[None]) -> None:
        self._closing = None
        if not closing.cancelled() and (error := closing.exception()) is not None:
            log.error("the idle browser was not closed cleanly", exc_info=error)

    async def aclose(self) -> None:
        """End the process with everything it started; what it kept on disk is removed."""
        self._rest(None)
        _open.discard(self)
        self._pipe = self._context = None
        self.part = ""
        held, self._held = self._held, AsyncExitStack()
        await held.aclose()


_NONE = "No page is open; browser_navigate opens one."
_BROWSER: ServiceKey[Browser] = ServiceKey("browser")


def browser_of(ctx: ToolContext) -> Browser:
    """The session's browser; it is started by its first use."""
    settings = ctx.services.get(BROWSER_SETTINGS) or Settings()
    guard = require_web(ctx).fetcher.guard
    return ctx.services.get_or_make(_BROWSER, lambda: Browser(settings, guard))


async def stop_all() -> None:
    """End the browsers of sessions that were not closed."""
    for browser in list(_open):
        with suppress(ToolError):
            await browser.aclose()


register_closer(stop_all)


async def _both(
    executable: str,
    home: Path,
    env: Mapping[str, str],
    policy: SandboxPolicy | None,
    stack: AsyncExitStack,
) -> tuple[chromium.BrowserPipe, Playwright]:
    """The browser and the driver, started side by side."""
    path = env.get("PATH", os.defpath)
    own = {**_DRIVER, "PATH": path, "HOME": str(home), "TMPDIR": str(home)}
    enter = stack.enter_async_context
    try:
        async with asyncio.TaskGroup() as group:
            pipe = group.create_task(
                enter(chromium.run_browser(executable, home, env=env, policy=policy))
            )
            playwright = group.create_task(enter(driver(own)))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return pipe.result(), playwright.result()


async def _walls(ctx: ToolContext, home: Path) -> SandboxPolicy | None:
    from hermes.exec.sandbox import build_policy
    from hermes.exec.sandbox_probe import probe_tier

    if (await probe_tier(cache_folder(ctx.workspace.home))).level != 1:
        if ctx.workspace.sandbox_required:
            raise ToolError(
                "sandbox.required is true, and a browser of root cannot be confined here: install "
                "bubblewrap, or run the agent as another user."
            )
        return None
    user = ctx.workspace.child_env.get("HOME")
    policy = build_policy(
        "workspace-write", home, ctx.workspace.home, Path(user) if user else Path.home()
    )
    return structs.replace(policy, protected=())


def reason(error: Exception) -> str:
    """Playwright's own words without its log of attempts, but with what it waited for."""
    text, _, log = str(error).partition("\nCall log:")
    if "Timeout" in text and (reasons := _WAITED.findall(log)):
        return f"It cannot be used now: {reasons[-1][:300]}. Nothing was done."
    if "Download is starting" in text:
        return "That address is a file to download, not a page; it was not downloaded."
    text = text.strip()
    _, colon, rest = text.partition(": ")
    text = rest if colon and "." in text.partition(": ")[0] else text
    return text.removeprefix("Error: ")[:500]

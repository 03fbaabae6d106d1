"""The server itself: its routes, who may call them, what runs, and how it starts and stops."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from hermes.config.api_server import ApiServer
from hermes.config.instances import is_in_progress, mark_in_progress
from hermes.core.redaction.redactor import Redactor
from hermes.core.tool import Tool
from hermes.server import routes
from hermes.server.http import listener as port
from hermes.server.http import web
from hermes.server.http.connection import Acceptor
from hermes.server.http.early_listener import Lobby, opened
from hermes.server.http.errors import ApiError
from hermes.server.http.metrics import Metrics
from hermes.server.http.middleware import note, respond
from hermes.server.http.principals import Principal, Principals, checked_keys
from hermes.server.http.route import Route
from hermes.server.turns.runs import end_lost
from hermes.server.turns.sessions import SOURCE
from hermes.tools.registry import select_tools

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes.app.runtime import Runtime
    from hermes.app.session import Session
    from hermes.server.http.idempotency import Answered
    from hermes.server.turns.runs import Run

BUSY_RETRY = "5"
LAST_SECONDS = 5.0
"""For what was interrupted to say so."""


def all_routes() -> tuple[Route, ...]:
    """Every module of `routes` brings its own, under the name ROUTES."""
    found: list[Route] = []
    for module in sorted(m.name for m in iter_modules(routes.__path__)):
        found += import_module(f"{routes.__name__}.{module}").ROUTES
    return tuple(found)


class Server:
    """Serves one Runtime. Constructing it opens nothing."""

    def __init__(self, runtime: Runtime, settings: ApiServer) -> None:
        keys = checked_keys(settings, runtime.setup.secrets)
        self.runtime = runtime
        self.settings = settings
        self.principals = Principals(settings, keys)
        self.metrics = Metrics()
        self.model = settings.model_name or _name_of(runtime.setup.profile)
        self.routes = all_routes()
        self._clean = Redactor({*runtime.setup.secrets.redactable_values(), *keys.values()}).redact
        self.stopping = asyncio.Event()
        self.token = secrets.token_hex(8)
        """On what this server is at work with, for others that serve the same home."""
        self.runs: dict[str, Run] = {}
        """Those that are going on."""
        self.sessions: set[Session] = set()
        """Those with a turn."""
        self.replays: dict[str, asyncio.Future[Answered]] = {}
        """Requests under an idempotency key that are being answered."""
        self.unfinished: set[str] = set()
        """Stored responses that are being told; one that is deleted is not stored again."""
        self.turns: dict[str, tuple[asyncio.Lock, int]] = {}
        """Stored conversations with a turn: its lock, and how many hold or await it."""
        self._static: dict[tuple[str, str], Route] = {
            (r.method, r.path): r for r in self.routes if "{" not in r.path
        }
        self._patterns = [(_pattern(r.path), r) for r in self.routes if "{" in r.path]
        self._running: Counter[str] = Counter()
        self._hosts: frozenset[str] = frozenset()
        self._acceptor: Acceptor | None = None
        self._empty: asyncio.Future[None] | None = None
        """Done when nothing runs any more; there while somebody waits for that."""

    # -- finding the way -----------------------------------------------------------------------

    def find(self, method: str, path: str) -> tuple[Route | None, dict[str, str]]:
        """The route and what stands for the names in its path."""
        wanted = "GET" if method == "HEAD" else method
        if (route := self._static.get((wanted, path))) is not None:
            return route, {}
        for pattern, candidate in self._patterns:
            if candidate.method == wanted and (found := pattern.fullmatch(path)):
                return candidate, found.groupdict()
        return None, {}

    def methods_at(self, path: str) -> frozenset[str]:
        there = {method for method, known in self._static if known == path}
        there |= {r.method for pattern, r in self._patterns if pattern.fullmatch(path)}
        return frozenset(there)

    def known_host(self, host: str) -> bool:
        return port.goes_by(self._hosts, host)

    def elsewhere(self, token: str) -> bool:
        """Whether another server works at what bears this token."""
        return token != self.token and is_in_progress(self.runtime.setup.home, token)

    def redact(self, error: str) -> str:
        """Fit for clients: no secret in it, and not where this machine keeps our files."""
        return self._clean(error).replace(str(self.runtime.setup.home), "HERMES_HOME")

    # -- what runs -----------------------------------------------------------------------------

    @property
    def active(self) -> int:
        return self._running.total()

    @property
    def connections(self) -> int:
        return self._acceptor.total if self._acceptor else 0

    def tools(self) -> Mapping[str, Tool[Any]]:
        """Those a session of this server has."""
        config = self.runtime.setup.config
        return select_tools(self.settings.toolsets, platform=SOURCE, settings=config.tools)

    @contextmanager
    def running(self, principal: Principal) -> Iterator[None]:
        """A place among those that run at the same time, or 429."""
        own = principal.concurrent_runs
        full = self.active >= self.settings.concurrent_runs
        if full or (own is not None and self._running[principal.name] >= own):
            raise ApiError(
                429,
                f"Too many runs at the same time. Try again in {BUSY_RETRY} s.",
                code="too_many_runs",
                headers={"Retry-After": BUSY_RETRY},
            )
        if self.stopping.is_set():
            raise ApiError(
                503,
                "The server is stopping.",
                code="stopping",
                headers={"Retry-After": BUSY_RETRY},
            )
        self._running[principal.name] += 1
        try:
            yield
        finally:
            self._running[principal.name] -= 1
            if self._empty is not None and not self.active and not self._empty.done():
                self._empty.set_result(None)

    # -- life ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def listening(self, lobby: Lobby | None = None) -> AsyncIterator[str]:
        """Serve at the port that is open already, or open it; its address meanwhile. On leaving,
        what runs is drained."""
        async with AsyncExitStack() as stack:
            if lobby is None:
                lobby = await stack.enter_async_context(opened(self.settings))
            stack.enter_context(mark_in_progress(self.runtime.setup.home, self.token))
            await end_lost(self)
            self._hosts = lobby.names
            self._acceptor = Acceptor(
                self._handle,
                most=self.settings.max_connections,
                most_each=self.settings.max_connections_per_address,
            )
            self._acceptor.names = lobby.names
            self._acceptor.noted = partial(note, self)
            lobby.hand_over(self._acceptor)
            for answered in lobby.answered:
                note(self, answered)
            try:
                yield lobby.address
            finally:
                self.stopping.set()
                lobby.close()
                self._acceptor.dismiss_idle()
                await self._drain()
                self._acceptor.dismiss_idle()
                await self._acceptor.shutdown(1.0)

    async def _drain(self) -> None:
        """Those that run may end by themselves for a while; then they are interrupted, and their
        clients are told."""
        if await self._ended(self.settings.drain_seconds):
            return
        for run in list(self.runs.values()):
            run.lose()
        for session in list(self.sessions):
            session.interrupt()
        await self._ended(LAST_SECONDS)

    async def _ended(self, seconds: float) -> bool:
        """Whether nothing runs any more, at the latest after so long."""
        if self.active:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait({self._empty}, timeout=seconds)
        return not self.active

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        return await respond(self, request)


def _name_of(profile: str) -> str:
    return profile if profile and profile != "default" else "hermes-agent"


def _pattern(path: str) -> re.Pattern[str]:
    """`{id}` takes what our ids are made of, and nothing that could mean something elsewhere."""
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[A-Za-z0-9._:-]{1,256})", path))

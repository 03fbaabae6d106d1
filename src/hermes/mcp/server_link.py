"""A server as sessions use it: started when it is needed, replaced when it broke, and checked
against what the operator agreed to."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct

from hermes.core.errors import HermesError, ToolError
from hermes.core.services import ServiceKey
from hermes.core.tool import (
    Tool,
    ToolContext,
    ToolResult,
    UserQuestion,
    ignore_progress,
    nobody_answers,
)
from hermes.mcp.agreement import Agreement
from hermes.mcp.definitions import ToolDefinition
from hermes.mcp.failures import BrokenConnection, ServerUnavailable, SessionEnded
from hermes.mcp.pins import PinStore
from hermes.mcp.server_config import ServerConfig
from hermes.mcp.server_tools import make_tools

if TYPE_CHECKING:
    from types import ModuleType

    from hermes.mcp.connection import ServerConnection

log = logging.getLogger(__name__)
T = TypeVar("T")
Notify: TypeAlias = Callable[[str, str], None]
"""Shows a notice: its code and its text."""
NOTIFY: ServiceKey[Notify] = ServiceKey("notices of MCP servers")
_MAX_DELAY = 60.0
_MAX_WAIT = 5.0
"""Seconds that somebody may have to wait for the next attempt to connect."""
_CLOSE_SECONDS = 10.0
_UNKNOWN_EFFECT = "The connection broke while {} ran; whether it took effect is not known."
_NO_LIBRARY = (
    "MCP servers need the extra `mcp`, which is not installed: pip install 'hermes-runtime[mcp]'"
)


def ignore_notice(code: str, text: str) -> None:
    """Shows nothing: nobody is there."""


class LinkSeams(Struct, frozen=True):
    """What links take from the process they run in."""

    home: Path
    get_variable: Callable[[str], str | None]
    """The value of a variable of the environment or of .env."""
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class _Caller(Struct, frozen=True):
    """Who waits for an answer."""

    session: str
    ask: UserQuestion
    clock: asyncio.Timeout


class ServerLink:
    """One server of this process. At most one connection exists, and one attempt to make it; the
    processes of an old one have ended before another starts."""

    def __init__(self, config: ServerConfig, seams: LinkSeams) -> None:
        self.config = config
        self.agreement = Agreement(config, PinStore(seams.home))
        self.failure = ""
        """Why the last attempt to connect failed; empty: it did not."""
        self._seams = seams
        self._tools: tuple[list[ToolDefinition], tuple[Tool[Any], ...]] | None = None
        self._connection: ServerConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._connecting = asyncio.Lock()
        self._slot = asyncio.Lock()
        self._callers: list[_Caller] = []
        self._failures = 0
        self._not_before = 0.0
        self._notify: Notify = ignore_notice
        self._refresh: asyncio.Task[None] | None = None

    @property
    def tools(self) -> tuple[Tool[Any], ...]:
        """The tools that the operator has agreed to; before the first connection, as they were
        last seen."""
        agreed = self.agreement.read_tools()
        if self._tools is None or self._tools[0] is not agreed:
            self._tools = (agreed, make_tools(self.config, agreed, self.call_tool))
        return self._tools[1]

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._callers)

    @property
    def is_resting(self) -> bool:
        """Whether it failed and is not tried again yet."""
        return bool(self.failure) and self._not_before > asyncio.get_running_loop().time()

    @property
    def needs_discovery(self) -> bool:
        """Whether its tools are not known before it is started."""
        return not self.config.problem and not self.agreement.was_checked and not self.tools

    async def call_tool(
        self, tool: ToolDefinition, arguments: dict[str, Any], ctx: ToolContext | None = None
    ) -> ToolResult:
        """Call a tool. When the connection broke, it is called again only if it can be repeated or
        has certainly not run."""
        notify = (ctx.services.get(NOTIFY) if ctx else None) or ignore_notice
        progress = ctx.progress if ctx else ignore_progress

        async def call(connection: ServerConnection) -> ToolResult:
            self.agreement.require_tool(tool)
            return await connection.call_tool(tool.name, arguments, progress)

        async with self._hold_slot():
            try:
                return await self._run_request(call, ctx, notify)
            except SessionEnded:
                pass
            except BrokenConnection:
                if not tool.is_repeatable:
                    raise ToolError(_UNKNOWN_EFFECT.format(tool.name)) from None
            try:
                return await self._run_request(call, ctx, notify)
            except BrokenConnection:
                raise ToolError(_UNKNOWN_EFFECT.format(tool.name)) from None

    async def read(
        self, request: Callable[[ServerConnection], Awaitable[T]], ctx: ToolContext | None = None
    ) -> T:
        """The answer to a request that changes nothing, such as a list of resources."""
        notify = (ctx.services.get(NOTIFY) if ctx else None) or self._notify
        try:
            try:
                return await self._run_request(request, ctx, notify)
            except SessionEnded:
                return await self._run_request(request, ctx, notify)
        except BrokenConnection:
            raise ServerUnavailable(
                f"The connection to MCP {self.config.name} broke; nothing was changed."
            ) from None

    async def connect(self, notify: Notify = ignore_notice) -> ServerConnection:
        """The connection, made if there is none. ServerUnavailable says why it cannot be."""
        self._notify = notify
        async with self._connecting:
            if self._connection is not None and self._task is not None and not self._task.done():
                return self._connection
            await self._end_connection()
            await self._wait_for_turn()
            try:
                connection = await self._make_connection()
                await self._check_tools(connection)
            except (HermesError, BrokenConnection) as error:
                self._note_failure()
                await self._end_connection()
                unavailable = self._explain_failure(error)
                self.failure = str(unavailable)
                raise unavailable from None
            self._failures, self.failure = 0, ""
            self._connection = connection
            return connection

    async def close(self) -> None:
        """End the connection and all processes of the server."""
        async with self._connecting:
            await self._end_connection()

    async def agree(self) -> None:
        """Agree to everything the server offers now."""
        definitions = await self.read(lambda connection: connection.list_tools())
        await asyncio.to_thread(self.agreement.save_tools, definitions)

    # -- connections ------------------------------------------------------------------------

    async def _make_connection(self) -> ServerConnection:
        if self.config.problem:
            raise ServerUnavailable(
                f"MCP {self.config.name} cannot be used: {self.config.problem}."
            )
        config = self.config.expand_variables(self._seams.get_variable)
        module = await load_connections()
        ready: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        run = self._run_connection(config, module, ready)
        self._task = self._seams.spawn(run, f"MCP {config.name}")
        seconds = config.settings.connect_timeout
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(ready)
        except TimeoutError:
            raise ServerUnavailable(
                f"MCP {config.name} did not answer within {seconds:g} s."
            ) from None

    async def _run_connection(
        self, config: ServerConfig, module: ModuleType, ready: asyncio.Future[ServerConnection]
    ) -> None:
        """Hold one connection until it ends or is stopped."""
        events = module.ConnectionEvents(self._begin_refresh, self._find_person, self._pause_clock)
        try:
            async with module.open_connection(config, self._seams.home, events) as (made, ended):
                if not ready.done():
                    ready.set_result(made)
                async with asyncio.TaskGroup() as tasks:
                    watch = tasks.create_task(made.watch_changes(self._begin_refresh))
                    waits = [tasks.create_task(e.wait()) for e in (self._stop, ended)]
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                    self._connection = None
                    for task in (watch, *waits):
                        task.cancel()
        except (HermesError, OSError) as error:
            log.info("MCP %s: %s", config.name, error)
            if not ready.done():
                ready.set_exception(error)
        finally:
            if not ready.done():
                ready.set_exception(BrokenConnection())
            ready.exception()  # nobody may be waiting any more
            self._connection = None

    async def _end_connection(self) -> None:
        """Return when nothing of the old connection is left."""
        task, connection = self._task, self._connection
        self._task = self._connection = None
        if task is None:
            return
        self._stop.set()
        if connection is not None:
            await asyncio.wait([task], timeout=_CLOSE_SECONDS)
        task.cancel()  # it may still be in its handshake, where nobody looks at the event
        await asyncio.wait([task])

    def _note_failure(self) -> None:
        self._failures += 1
        delay = min(_MAX_DELAY, 2.0 ** (self._failures - 1))
        self._not_before = asyncio.get_running_loop().time() + delay * random.uniform(0.5, 1.0)

    async def _wait_for_turn(self) -> None:
        """Wait until the next attempt is due, unless that is far off."""
        left = self._not_before - asyncio.get_running_loop().time()
        if left > _MAX_WAIT:
            raise ServerUnavailable(f"{self.failure} It is tried again in {left:.0f} s.")
        if left > 0:
            await self._seams.sleep(left)

    def _explain_failure(self, error: Exception) -> ServerUnavailable:
        if isinstance(error, ServerUnavailable):
            return error
        name = self.config.name
        if isinstance(error, BrokenConnection):
            return ServerUnavailable(
                f"MCP {name} ended before it was ready; its output is in logs/mcp-{name}.log."
            )
        return ServerUnavailable(str(error))

    # -- requests ---------------------------------------------------------------------------

    @asynccontextmanager
    async def _hold_slot(self) -> AsyncIterator[None]:
        if self.config.settings.parallel:
            yield
            return
        async with self._slot:
            yield

    async def _run_request(
        self,
        request: Callable[[ServerConnection], Awaitable[T]],
        ctx: ToolContext | None,
        notify: Notify,
    ) -> T:
        connection = await self.connect(notify)
        seconds = self.config.settings.timeout
        try:
            async with asyncio.timeout(seconds) as clock:
                ask = ctx.user.ask if ctx else nobody_answers
                caller = _Caller(ctx.session_id if ctx else "", ask, clock)
                self._callers.append(caller)
                try:
                    return await request(connection)
                finally:
                    self._callers.remove(caller)
        except TimeoutError:
            raise ToolError(f"Timed out after {seconds:g} s and was stopped.") from None
        except BrokenConnection:
            if self._connection is connection:  # another call may have made a new one
                self._connection = None
                self._note_failure()
            raise

    def _find_person(self) -> UserQuestion:
        """Who can answer the server: with calls of several sessions nobody knows whom it means."""
        sessions = {caller.session for caller in self._callers}
        return self._callers[0].ask if len(sessions) == 1 else nobody_answers

    @asynccontextmanager
    async def _pause_clock(self) -> AsyncIterator[None]:
        clocks = [caller.clock for caller in self._callers]
        for clock in clocks:
            clock.reschedule(None)
        try:
            yield
        finally:
            until = asyncio.get_running_loop().time() + self.config.settings.timeout
            for caller in self._callers:
                if caller.clock in clocks:
                    caller.clock.reschedule(until)

    async def _check_tools(self, connection: ServerConnection) -> None:
        """Compare what the server offers with what was agreed to, and tell what is new."""
        found = await self._list_tools(connection)
        for code, text in await asyncio.to_thread(self.agreement.check_tools, found):
            self._notify(code, text)

    async def _list_tools(self, connection: ServerConnection) -> list[ToolDefinition]:
        """What the server offers. ServerUnavailable when it does not say so in time."""
        seconds = self.config.settings.connect_timeout
        try:
            async with asyncio.timeout(seconds):
                return await connection.list_tools()
        except TimeoutError:
            raise ServerUnavailable(
                f"MCP {self.config.name} did not list its tools within {seconds:g} s."
            ) from None

    def _begin_refresh(self) -> None:
        """The server says that its tools changed."""
        if self._connection is not None and (self._refresh is None or self._refresh.done()):
            work = self._read_changes(self._connection)
            self._refresh = self._seams.spawn(work, f"MCP {self.config.name} tools")

    async def _read_changes(self, connection: ServerConnection) -> None:
        try:
            await self._check_tools(connection)
        except (HermesError, BrokenConnection) as error:
            log.info("MCP %s: %s", self.config.name, error)


async def load_connections() -> ModuleType:
    """The part that makes connections."""
    return await load_library("hermes.mcp.connection")


async def load_library(module: str) -> ModuleType:
    """A module that needs the MCP library, imported on a thread: that takes most of a second."""
    try:
        return await asyncio.to_thread(_import_modules, module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("hermes"):
            raise
        raise ServerUnavailable(_NO_LIBRARY) from None


def _import_modules(module: str) -> ModuleType:
    import_module("jsonschema")  # the library would import it in the middle of the first call
    return import_module(module)

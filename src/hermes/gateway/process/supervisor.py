"""Keeps one platform connected: states, retries with growing waits, and what the owner is told."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from hermes.config.paths import make_private_folder
from hermes.gateway.adapter import ButtonPress, ConnectionFailure, Inbound
from hermes.gateway.process.state_file import PlatformState, PlatformStatus
from hermes.gateway.router import Router

log = logging.getLogger(__name__)

FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0


class Supervisor:
    """The `Receiver` of one platform."""

    def __init__(
        self,
        name: str,
        run: Callable[["Supervisor"], Awaitable[None]],
        on_fatal: Callable[[str, ConnectionFailure], Awaitable[None]],
        on_change: Callable[[], None],
    ) -> None:
        self.name = name
        self.status = PlatformStatus(since=time.time())
        self.tried = asyncio.Event()
        """Set when it has connected, or failed for the first time."""
        self.folder = Path()
        self.router: Router | None = None
        self.on_move: Callable[[str, str, str], Awaitable[None]] | None = None
        self._run = run
        self._on_fatal = on_fatal
        self.on_change = on_change
        self._failures = 0

    async def supervise(self) -> None:
        """Run until cancelled or until trying again is pointless."""
        try:
            while True:
                failure = await self._try_once()
                self.tried.set()
                if failure.fatal:
                    self._set_state("fatal", failure)
                    await self._on_fatal(self.name, failure)
                    return
                self._set_state("retrying", failure)
                await asyncio.sleep(self._next_wait(failure))
                self.status.state = "connecting"
        except asyncio.CancelledError:
            self._set_state("stopped")
            raise

    async def _try_once(self) -> ConnectionFailure:
        try:
            await self._run(self)
        except ConnectionFailure as failure:
            return failure
        except Exception as error:
            log.exception("platform %s failed", self.name)
            if self.router is not None:
                self.router.note_error(error)
            return ConnectionFailure("error", type(error).__name__)
        return ConnectionFailure("unreachable", "the connection ended")

    def _next_wait(self, failure: ConnectionFailure) -> float:
        if failure.wait is not None:
            return failure.wait * (1 + random.random() / 10)
        wait = min(LONGEST_WAIT, FIRST_WAIT * float(2**self._failures))
        self._failures = min(self._failures + 1, 10)
        return min(LONGEST_WAIT, wait * (1 + random.random() / 2))

    def _set_state(self, state: PlatformState, failure: ConnectionFailure | None = None) -> None:
        status = self.status
        if failure is not None and status.error_message != str(failure):
            log.warning("%s: %s (%s)", self.name, failure, failure.code)
        if status.state != state:
            status.state, status.since = state, time.time()
        status.error_code = failure.code if failure else ""
        status.error_message = str(failure) if failure else ""
        self.on_change()

    def open_folder(self) -> Path:
        make_private_folder(self.folder)
        return self.folder

    def report_connected(self) -> None:
        self._failures = 0
        self._set_state("connected")
        self.tried.set()

    async def receive_message(self, message: Inbound) -> bool:
        self.status.last_inbound_at = time.time()
        assert self.router is not None
        return await self.router.receive_message(self.name, message)

    async def receive_press(self, press: ButtonPress) -> str:
        assert self.router is not None
        return await self.router.receive_press(self.name, press)

    async def move_chat(self, old: str, new: str) -> None:
        if self.on_move is not None:
            await self.on_move(self.name, old, new)

    async def list_chats(self) -> tuple[str, ...]:
        assert self.router is not None
        return await self.router.list_chats(self.name)

    async def load_cursor(self) -> str:
        assert self.router is not None
        return await self.router.load_cursor(self.name)

    async def save_cursor(self, cursor: str) -> None:
        assert self.router is not None
        await self.router.save_cursor(self.name, cursor)

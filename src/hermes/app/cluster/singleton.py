"""Something that only one node of a cluster does at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from hermes.core.errors import HermesError, StoreError

if TYPE_CHECKING:
    from hermes.store.postgres.lease import NodeLease
    from hermes.store.postgres.shared.singletons import SingletonTable

log = logging.getLogger(__name__)
Serve = Callable[[asyncio.Event], Awaitable[None]]
"""Does it until the event is set."""
_RETRY_SECONDS = 5.0


class Singleton:
    """Held by one node: another one follows when it ends, dies, or is cut off for longer than its
    lease."""

    def __init__(self, name: str, serve: Serve, table: SingletonTable, lease: NodeLease) -> None:
        self._name = name
        self._serve = serve
        self._table = table
        self._lease = lease
        self._leaving = asyncio.Event()
        self._free = asyncio.Event()
        """Set while it is not held here."""
        self._free.set()

    async def announce(self) -> None:
        """Say that it is to be done by somebody, as soon as the database is there."""
        while not self._leaving.is_set():
            try:
                return await self._table.announce(self._name)
            except StoreError as error:
                log.warning("%s is not served here yet: %s", self._name, error)
            await self._pause(min(_RETRY_SECONDS, self._lease.seconds / 5))

    async def hold(self) -> None:
        """Do it as soon as no other node does, until this one leaves."""
        self._free.clear()
        try:
            while not self._leaving.is_set():
                if not await self._try_to_serve():
                    await self._pause(min(_RETRY_SECONDS, self._lease.seconds / 5))
            await self._table.release(self._name)
        finally:
            self._free.set()

    def leave(self) -> None:
        """Stop doing it here."""
        self._leaving.set()

    async def wait_until_left(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._free.wait()

    async def _try_to_serve(self) -> bool:
        """False: another node does it, or it failed."""
        if not await self._try_to_acquire():
            return False
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(self._serve_until(stop))
            while not serving.done():
                pause = tasks.create_task(self._pause(self._lease.seconds / 5))
                await asyncio.wait({serving, pause}, return_when="FIRST_COMPLETED")
                pause.cancel()
                if self._leaving.is_set() or self._lease.is_late:
                    stop.set()
                    await asyncio.wait({serving})
        return serving.result()

    async def _try_to_acquire(self) -> bool:
        try:
            return await self._table.acquire(self._name)
        except StoreError as error:  # the database is away
            log.warning("%s is not served here: %s", self._name, error)
            return False

    async def _serve_until(self, stop: asyncio.Event) -> bool:
        try:
            await self._serve(stop)
        except HermesError as error:
            log.warning("%s is not served here: %s", self._name, error)
        except Exception:
            log.exception("%s is not served here", self._name)
        else:
            return True
        return False

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._leaving.wait()

"""What the memory provider is still to be told, in the store until it has been."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct

from hermes.config.paths import make_private_folder, memories_folder
from hermes.config.private_files import open_lock, try_lock
from hermes.core.store import DELIVERIES, FactTable, Object, Store
from hermes.memory.page import JournalEntry, get_fact
from hermes.memory.provider import MemoryProvider, ProviderFailed
from hermes.memory.scope import hash_scope

log = logging.getLogger(__name__)

_MAX_AGE = 24 * 3600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0
_OTHERS_PAUSE = 0.5
"""How long another process that delivers is waited for at a time."""
_LOCK = ".deliveries.lock"


class Delivery(Struct, frozen=True):
    path: str
    body: dict[str, Any]
    key: str


def queue_delivery(table: FactTable, path: str, body: dict[str, Any]) -> None:
    """Add a delivery in the transaction that makes the change it tells about."""
    table.queue_delivery(msgspec.json.encode(Delivery(path, body, uuid4().hex)))


def queue_change(table: FactTable, change: JournalEntry) -> None:
    """Add the delivery that tells about a change of an entry, if anything came of it."""
    fact = get_fact(change.entry)
    if fact is None:
        return
    old = get_fact(change.replaced) if change.replaced is not None else None
    body = {
        "scope": hash_scope(fact.scope),
        "action": "replace" if old else "add" if change.replaced else change.action,
        "target": fact.target,
        "id": fact.name,
        "content": fact.text,
    }
    if old is not None:
        body["replaces"] = old.name
    queue_delivery(table, "/write", body)


class DeliveryQueue:
    """Deliveries are made one at a time, in order, by one process at a time. Each stays until it
    has arrived, was refused for good, or is a day old."""

    def __init__(self, store: Store, home: Path, provider: MemoryProvider) -> None:
        self._store = store
        self._folder = memories_folder(home)
        self.provider = provider
        self.is_resting = asyncio.Event()
        """Set while the provider cannot be reached and the next try is awaited."""
        self.is_ending = False
        """Whether no further delivery is begun."""

    async def add_delivery(self, path: str, body: dict[str, Any]) -> None:
        await self._store.facts.change(lambda table: queue_delivery(table, path, body))

    async def count_waiting(self) -> int:
        return len(await self._list_waiting())

    async def deliver_all(self) -> None:
        """Deliver until nothing waits."""
        pause = _FIRST_PAUSE
        while not self.is_ending and await self._list_waiting():
            try:
                async with self._hold_lock() as is_held:
                    if is_held:
                        await self._deliver_waiting()
                        pause = _FIRST_PAUSE
                        continue
                await self._rest(_OTHERS_PAUSE)
            except ProviderFailed as error:
                log.info("the memory provider is tried again in %g s: %s", pause, error)
                await self._rest(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _deliver_waiting(self) -> None:
        for waiting in await self._list_waiting():
            if self.is_ending:
                return
            if time.time() - waiting.created > _MAX_AGE:
                log.warning("a delivery to the memory provider was dropped: it is a day old")
            else:
                item = msgspec.json.decode(waiting.body, type=Delivery)
                if refusal := await self.provider.deliver(item.path, item.body, item.key):
                    log.warning("the memory provider refused a delivery: %s", refusal)
            await self._store.objects.remove(DELIVERIES, waiting.id, owner="")

    async def _list_waiting(self) -> list[Object]:
        found = await self._store.objects.list_all(DELIVERIES, owner="")
        return sorted(found, key=lambda waiting: waiting.id)

    async def _rest(self, seconds: float) -> None:
        self.is_resting.set()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.is_resting.clear()

    @asynccontextmanager
    async def _hold_lock(self) -> AsyncIterator[bool]:
        """Whether no other process delivers now."""
        make_private_folder(self._folder)
        handle = open_lock(self._folder / _LOCK)
        try:
            yield try_lock(handle)
        finally:
            os.close(handle)

"""A process's link to its memory provider: asks it in time or not at all, and tells it the rest."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from hermes.memory.delivery_queue import DeliveryQueue
from hermes.memory.provider import ProviderFailed, RecalledFact
from hermes.memory.scope import MemoryScope, hash_scope
from hermes.store.tables.tenancy import CURRENT_TENANT

log = logging.getLogger(__name__)

GRACE_SECONDS = 2.0
"""How long the process waits at its end for deliveries."""
_LAST_SECONDS = 3.0
"""How much longer it waits for the one that is under way: given up on, it would be repeated."""
_MAX_FAILURES = 3
_PAUSE_SECONDS = 60.0


class ExternalMemory:
    """A provider that fails costs a turn at most `seconds`; after three failures in a row it is not
    asked for a minute. Deliveries go on in the background."""

    def __init__(
        self,
        queue: DeliveryQueue,
        seconds: float,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._queue = queue
        self._seconds = seconds
        self._spawn = spawn
        self._failures = 0
        self._paused_until = 0.0
        self._deliveries: dict[int, asyncio.Task[None]] = {}
        """By tenant: a task sees what waits for the tenant in which it began."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def recall_facts(
        self, scope: MemoryScope, query: str, limit: int
    ) -> tuple[RecalledFact, ...]:
        """What it knows in these scopes, best first. ProviderFailed if it does not answer in
        time."""
        if time.monotonic() < self._paused_until:
            raise ProviderFailed("it has failed three times and is asked again in a minute")
        names = dict.fromkeys(hash_scope(name) for name, _ in scope.pairs)
        try:
            async with asyncio.timeout(self._seconds):
                found = await asyncio.gather(
                    *(self._queue.provider.recall_facts(name, query, limit) for name in names)
                )
        except TimeoutError:
            self._count_failure()
            raise ProviderFailed(f"it did not answer in {self._seconds:g} s") from None
        except ProviderFailed:
            self._count_failure()
            raise
        self._failures = 0
        return _take_turns(found)[:limit]

    def _count_failure(self) -> None:
        self._failures += 1
        if self._failures >= _MAX_FAILURES:
            self._failures = 0
            self._paused_until = time.monotonic() + _PAUSE_SECONDS

    @property
    def is_ending(self) -> bool:
        """Whether no further delivery is begun, because the process ends."""
        return self._queue.is_ending

    def begin_delivery(self) -> None:
        """Deliver what waits, without waiting for it."""
        if self.is_ending:
            return
        tenant = CURRENT_TENANT.get()
        delivery = self._deliveries.get(tenant)
        if delivery is None or delivery.done():
            delivery = self._spawn(self._deliver(), "deliveries to the memory provider")
            self._deliveries[tenant] = delivery

    async def _deliver(self) -> None:
        try:
            await self._queue.deliver_all()
        except OSError as error:
            log.warning("nothing is delivered to the memory provider: %s", error)

    async def queue_call(self, path: str, scope: MemoryScope, body: dict[str, Any]) -> None:
        """Tell it something about a conversation, durably."""
        whole = {"scope": hash_scope(scope.memory), **body}
        await self._queue.add_delivery(path, whole)
        self.begin_delivery()

    def begin_call(self, path: str, scope: MemoryScope, body: dict[str, Any]) -> None:
        """The same without waiting until it is stored."""
        task = self._spawn(self.queue_call(path, scope, body), f"{path} to the memory provider")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give deliveries a moment, unless the provider is known to be away."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        if deliveries := [task for task in self._deliveries.values() if not task.done()]:
            resting = asyncio.ensure_future(self._queue.is_resting.wait())
            delivered = asyncio.ensure_future(asyncio.wait(deliveries))
            for seconds in (GRACE_SECONDS, _LAST_SECONDS):
                await asyncio.wait(
                    {delivered, resting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                self._queue.is_ending = True
            resting.cancel()
            for task in deliveries:
                task.cancel()
            await delivered
        self._queue.is_ending = True
        await self._queue.provider.close()


def _take_turns(lists: Sequence[tuple[RecalledFact, ...]]) -> tuple[RecalledFact, ...]:
    """The best of each list, then the second best, and so on; equal texts once."""
    longest = max(map(len, lists), default=0)
    mixed = [facts[n] for n in range(longest) for facts in lists if n < len(facts)]
    return tuple({fact.text: fact for fact in reversed(mixed)}.values())[::-1]

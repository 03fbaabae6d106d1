"""Slots limit how many turns run at the same time, in total and per principal."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from hermes.server.http.errors import RETRY_AFTER, ApiError
from hermes.server.http.principals import Principal
from hermes.server.http.tenant_access import TenantAccess


class TurnSlots:
    """Limits the turns that run at the same time. After `close`, no new turn starts."""

    def __init__(self, limit: int, tenants: TenantAccess | None = None) -> None:
        self._limit = limit
        self.tenants = tenants
        self._used: Counter[str] = Counter()
        self._all_free: asyncio.Future[None] | None = None
        """Exists while `wait_until_free` waits."""
        self.closed = False

    @property
    def active_turns(self) -> int:
        return self._used.total()

    @asynccontextmanager
    async def reserve_slot(self, principal: Principal) -> AsyncIterator[None]:
        """Hold a slot for one turn; 429 if none is free, 503 if the server is stopping."""
        if self.active_turns >= self._limit or self.is_at_limit(principal):
            text = f"Too many turns are running. Try again in {RETRY_AFTER} s."
            retry = {"Retry-After": RETRY_AFTER}
            raise ApiError(429, text, code="too_many_runs", headers=retry)
        self.raise_if_closed()
        with self.count_turn(principal):
            if self.tenants is None or not principal.tenant:
                yield
                return
            await self.tenants.check_turn(principal)
            async with self.tenants.hold_turn(principal):
                yield

    def is_at_limit(self, principal: Principal) -> bool:
        """Whether as many turns of this principal run as it may have at a time."""
        own_limit = principal.concurrent_runs
        return own_limit is not None and self._used[principal.name] >= own_limit

    def raise_if_closed(self) -> None:
        if self.closed:
            retry = {"Retry-After": RETRY_AFTER}
            raise ApiError(503, "The server is stopping.", code="stopping", headers=retry)

    @contextmanager
    def count_turn(self, principal: Principal) -> Iterator[None]:
        """Count a turn that was admitted otherwise."""
        self._used[principal.name] += 1
        try:
            yield
        finally:
            self._used[principal.name] -= 1
            if self._all_free is not None and not self.active_turns and not self._all_free.done():
                self._all_free.set_result(None)

    def close(self) -> None:
        self.closed = True

    async def wait_until_free(self, seconds: float) -> bool:
        """Wait for all turns to end, for this long at most; returns whether they have."""
        if self.active_turns:
            self._all_free = asyncio.get_running_loop().create_future()
            await asyncio.wait({self._all_free}, timeout=seconds)
        return not self.active_turns

"""Slots limit how many turns run at the same time, in total and per principal."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from hermes.server.http.errors import ApiError
from hermes.server.http.principals import Principal
from hermes.server.http.tenant_access import TenantAccess

RETRY_AFTER = "5"


class TurnSlots:
    """Limits the turns that run at the same time. After `close`, no new turn starts."""

    def __init__(self, limit: int, tenants: TenantAccess | None = None) -> None:
        self._limit = limit
        self._tenants = tenants
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
        own_limit = principal.concurrent_runs
        retry = {"Retry-After": RETRY_AFTER}
        is_full = self.active_turns >= self._limit
        if is_full or (own_limit is not None and self._used[principal.name] >= own_limit):
            text = f"Too many turns are running. Try again in {RETRY_AFTER} s."
            raise ApiError(429, text, code="too_many_runs", headers=retry)
        if self.closed:
            raise ApiError(503, "The server is stopping.", code="stopping", headers=retry)
        self._used[principal.name] += 1
        try:
            async with AsyncExitStack() as stack:
                if self._tenants is not None and principal.tenant:
                    await stack.enter_async_context(self._tenants.hold_turn(principal))
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

"""Tenants of a cluster as callers: their keys, and the limits that all nodes count together."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hermes.config.api_server import SCOPES, ToolExecution
from hermes.server.http.errors import RETRY_AFTER, ApiError
from hermes.server.http.principals import BURST_SHARE, Principal, rate_error, unauthorized
from hermes.store.tables.tenancy import CURRENT_TENANT, KEY_PREFIX, REQUESTS, Tenant

if TYPE_CHECKING:
    from hermes.store.postgres.shared_limits import SharedLimits

_SUSPENDED = (
    "The tenant {} is suspended. Nothing was done; its data is kept. Ask the operator of this "
    "server."
)
_FULL = (
    "The storage of this tenant is full: {used:.1f} of {limit:g} MB. Nothing was saved. Delete "
    "sessions, or ask the operator of this server for more."
)
_BUSY = "This tenant runs {} turns at a time. Nothing was started. Try again in {} s."
_SLOT_WAITS = (0.02, 0.05, 0.1, 0.2, 0.4)
"""Seconds between attempts: a turn that has just ended may still be counted."""
_MEGABYTE = 1_000_000


class TenantAccess:
    """Knows the tenants of the cluster that this server is a node of."""

    def __init__(self, limits: "SharedLimits", tool_execution: ToolExecution | None) -> None:
        self._limits = limits
        self._tool_execution = tool_execution

    async def identify(self, headers: Sequence[str]) -> Principal | None:
        """The tenant whose key is in these Authorization headers; None: it is no key of a tenant.
        401 for one that is unknown, revoked or too old, 403 for that of a suspended tenant."""
        scheme, _, key = (headers[0] if len(headers) == 1 else "").partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not key.startswith(KEY_PREFIX):
            return None
        found = await self._limits.find_key_owner(key)
        if found is None:
            raise unauthorized("Invalid API key.")
        if found.is_expired:
            raise unauthorized("This API key has expired. Ask the operator for a new one.")
        if found.tenant.state != "active":
            raise ApiError(403, _SUSPENDED.format(found.tenant.name), code="tenant_suspended")
        return self._build_principal(found.tenant, found.scopes)

    async def find_principal(self, tenant_id: int) -> Principal | None:
        """The caller of what a tenant handed in earlier; None: it was removed or suspended
        since."""
        found = await self._limits.find_tenant(tenant_id)
        if found is None or found.state != "active":
            return None
        return self._build_principal(found, [scope for scope in SCOPES if scope != "admin"])

    async def is_foreign_session(self, session_id: str) -> bool:
        """Whether a session of another tenant has this id: files of sessions are found by it."""
        return await self._limits.is_foreign_session(CURRENT_TENANT.get(), session_id)

    async def count_request(self, principal: Principal) -> None:
        """Count a request against the rate of its tenant or key; 429 when it is exceeded."""
        rate = principal.requests_per_minute or principal.limits.requests_per_minute
        if not rate:
            return
        # A tenant may use a minute's requests at once, a key of the configuration a third of them.
        bucket, burst = (REQUESTS, float(rate))
        if not principal.tenant:
            bucket, burst = f"{REQUESTS} {principal.name}", max(1.0, rate * BURST_SHARE)
        wait = await self._limits.take_request(principal.tenant, bucket, rate, burst)
        if wait:
            raise rate_error(f"at most {rate} per minute", wait)

    async def check_turn(self, principal: Principal) -> None:
        """429 when the tenant has used up its tokens or its storage."""
        limits, tenant = principal.limits, principal.tenant
        rate = limits.tokens_per_minute
        if rate and (wait := await self._limits.count_tokens(tenant, rate)):
            raise rate_error(f"at most {rate} tokens per minute", wait)
        if limits.storage_mb is not None:
            used = await self._limits.measure_storage(tenant) / _MEGABYTE
            if used >= limits.storage_mb:
                text = _FULL.format(used=used, limit=limits.storage_mb)
                raise ApiError(429, text, code="storage_full")

    @asynccontextmanager
    async def hold_turn(self, principal: Principal) -> AsyncIterator[None]:
        """Count a turn of the tenant while it runs; 429 when as many run as it may have."""
        if (most := principal.limits.concurrent_turns) is None:
            yield
            return
        for pause in (*_SLOT_WAITS, 0.0):
            async with self._limits.hold_turn(principal.tenant, most) as is_held:
                if is_held:
                    yield
                    return
            await asyncio.sleep(pause)
        text = _BUSY.format(most, RETRY_AFTER)
        raise ApiError(429, text, code="too_many_runs", headers={"Retry-After": RETRY_AFTER})

    @asynccontextmanager
    async def hold_waiting(self, principal: Principal, row_id: int) -> AsyncIterator[bool]:
        """Count a turn that waited in the inbox; False: as many run as may, and it waits on until
        one of them ends."""
        if (most := principal.limits.concurrent_turns) is None:
            yield True
            return
        async with self._limits.hold_turn(principal.tenant, most, row_id) as is_held:
            yield is_held

    def _build_principal(self, tenant: Tenant, scopes: Sequence[str]) -> Principal:
        name = f"@{tenant.name}"
        return Principal(
            name,
            hashlib.sha256(name.encode()).digest(),
            frozenset(scope for scope in SCOPES if scope in scopes),
            tool_execution=self._tool_execution,
            tenant=tenant.id,
            limits=tenant.limits,
        )

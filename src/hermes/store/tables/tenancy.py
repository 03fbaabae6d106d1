"""Tenants: whose rows are meant, and the limits of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

KEY_PREFIX = "hermes_"
"""Every key of a tenant begins so."""
REQUESTS = "requests"
"""The bucket of requests_per_minute."""
OPERATOR = 0
"""The tenant of whoever runs the cluster."""
CURRENT_TENANT: ContextVar[int] = ContextVar("tenant", default=OPERATOR)
"""Whose rows a store that many tenants share reads and writes; tasks inherit it."""


class TenantLimits(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a tenant may use; None: as much as it likes."""

    daily_usd: float | None = None
    monthly_usd: float | None = None
    concurrent_turns: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    storage_mb: float | None = None
    models: tuple[str, ...] | None = None
    toolsets: tuple[str, ...] | None = None


class Tenant(Struct, frozen=True):
    id: int
    name: str
    state: str = "active"
    """Or suspended: its keys are refused, its data is kept."""
    limits: TenantLimits = TenantLimits()


class KeyOwner(Struct, frozen=True):
    """Whom a key belongs to, and what it may be used for."""

    tenant: Tenant
    scopes: tuple[str, ...]
    is_expired: bool = False


@contextmanager
def enter_tenant(tenant: int) -> Iterator[None]:
    """Read and write the rows of this tenant until the block ends."""
    token = CURRENT_TENANT.set(tenant)
    try:
        yield
    finally:
        CURRENT_TENANT.reset(token)

"""The tenants of a cluster and their keys."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from hermes.core.errors import ConfigError
from hermes.store.tables.tenancy import KEY_PREFIX, OPERATOR, KeyOwner, Tenant, TenantLimits

if TYPE_CHECKING:
    from psycopg import Connection

_NAME_LENGTH = 64
_SELECT = "SELECT t.id, t.name, t.state, t.limits FROM public.tenants t"


class TenantRecord(Struct, frozen=True):
    """A tenant as the operator sees it."""

    name: str
    state: str
    created: float
    limits: TenantLimits
    keys: int
    sessions: int
    running: int
    """Turns that run at this moment."""


class KeyRecord(Struct, frozen=True):
    id: str
    tenant: str
    scopes: tuple[str, ...]
    created: float
    expires: float | None


def add_tenant(db: Connection[Any], name: str, limits: TenantLimits) -> None:
    if not 0 < len(name) <= _NAME_LENGTH or not name.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(
            f"{name!r} cannot be the name of a tenant. Nothing was changed. Use up to "
            f"{_NAME_LENGTH} letters, digits, - and _."
        )
    sql = (
        "INSERT INTO public.tenants (id, name, created, limits)"
        " VALUES (nextval('public.tenant_ids'), %s, %s, %s) ON CONFLICT (name) DO NOTHING"
    )
    values = (name, time.time(), msgspec.json.encode(limits).decode())
    if not db.execute(sql, values).rowcount:
        raise ConfigError(
            f"There is a tenant {name} already. Nothing was changed. `hermes tenants set {name}` "
            "changes its limits."
        )


def change_tenant(
    db: Connection[Any], name: str, *, state: str = "", limits: dict[str, Any] | None = None
) -> Tenant:
    """Set the state or some limits; the tenant as it is now. A limit of None is removed."""
    with db.transaction():
        tenant = find_tenant(db, name, lock=True)
        if limits:
            changed = {**msgspec.structs.asdict(tenant.limits), **limits}
            tenant = msgspec.structs.replace(tenant, limits=TenantLimits(**changed))
        if state:
            tenant = msgspec.structs.replace(tenant, state=state)
        sql = "UPDATE public.tenants SET state = %s, limits = %s WHERE id = %s"
        body = msgspec.json.encode(tenant.limits).decode()
        db.execute(sql, (tenant.state, body, tenant.id))
        # A bucket begins full again when its size was changed.
        names = [name for name in ("requests", "tokens") if f"{name}_per_minute" in (limits or {})]
        sql = "DELETE FROM public.limits WHERE tenant = %s AND name = ANY(%s)"
        db.execute(sql, (tenant.id, names))
    return tenant


def remove_tenant(db: Connection[Any], name: str) -> None:
    """Delete a tenant with its keys and everything that is stored for it."""
    with db.transaction():
        tenant = find_tenant(db, name, lock=True)
        db.execute("DELETE FROM public.tenants WHERE id = %s", (tenant.id,))
        _delete_rows(db, [tenant.id])


def clear_removed_tenants(db: Connection[Any]) -> None:
    """Delete what turns have still stored that ran when their tenant was removed."""
    sql = (
        "SELECT g.id FROM public.tenant_ids s, generate_series(1, s.last_value) AS g (id)"
        " WHERE NOT EXISTS (SELECT 1 FROM public.tenants t WHERE t.id = g.id)"
    )
    if ids := [id for (id,) in db.execute(sql)]:
        _delete_rows(db, ids)


def _delete_rows(db: Connection[Any], tenants: list[int]) -> None:
    for table in list_tenant_tables(db):
        statement: Any = (
            f'DELETE FROM public."{table}" r WHERE r.tenant = ANY(%s)'
            " AND NOT EXISTS (SELECT 1 FROM public.tenants t WHERE t.id = r.tenant)"
        )
        db.execute(statement, (tenants,))


def list_tenant_tables(db: Connection[Any]) -> list[str]:
    """The tables that hold rows of tenants."""
    rows = db.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
        " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')"
        " AND NOT c.relispartition AND a.attname = 'tenant' ORDER BY 1"
    )
    return [name for (name,) in rows]


def find_tenant(db: Connection[Any], name: str, *, lock: bool = False) -> Tenant:
    """The tenant of this name; ConfigError when there is none."""
    sql: Any = f"{_SELECT} WHERE t.name = %s AND t.id <> %s{' FOR UPDATE' * lock}"
    row = db.execute(sql, (name, OPERATOR)).fetchone()
    if row is None:
        raise ConfigError(
            f"There is no tenant {name}. Nothing was changed. `hermes tenants list` shows them."
        )
    return _decode_tenant(row)


def list_tenants(db: Connection[Any]) -> list[TenantRecord]:
    rows = db.execute(
        "SELECT t.name, t.state, t.created, t.limits,"
        " (SELECT count(*) FROM public.keys k WHERE k.tenant = t.id),"
        " (SELECT count(*) FROM public.sessions s WHERE s.tenant = t.id),"
        " (SELECT count(*) FROM public.sessions s WHERE s.tenant = t.id AND s.state = 'running')"
        " FROM public.tenants t WHERE t.id <> %s ORDER BY t.name",
        (OPERATOR,),
    )
    return [
        TenantRecord(name, state, created, _decode_limits(limits), *counts)
        for name, state, created, limits, *counts in rows
    ]


def add_key(
    db: Connection[Any], tenant: str, scopes: Sequence[str], expires: float | None
) -> tuple[str, str]:
    """The id of a new key and the key, which is not stored and cannot be shown again."""
    found = find_tenant(db, tenant)
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    id = secrets.token_hex(6)
    db.execute(
        "INSERT INTO public.keys (digest, id, tenant, scopes, created, expires)"
        " VALUES (%s, %s, %s, %s, %s, %s)",
        (hash_key(key), id, found.id, " ".join(scopes), time.time(), expires),
    )
    return id, key


def list_keys(db: Connection[Any]) -> list[KeyRecord]:
    rows = db.execute(
        "SELECT k.id, t.name, k.scopes, k.created, k.expires FROM public.keys k"
        " JOIN public.tenants t ON t.id = k.tenant ORDER BY t.name, k.created"
    )
    return [
        KeyRecord(id, tenant, tuple(scopes.split()), *times) for id, tenant, scopes, *times in rows
    ]


def revoke_key(db: Connection[Any], id: str) -> None:
    if not db.execute("DELETE FROM public.keys WHERE id = %s", (id,)).rowcount:
        raise ConfigError(
            f"There is no key {id}. Nothing was changed. `hermes keys list` shows them."
        )


def find_key_owner(db: Connection[Any], key: str) -> KeyOwner | None:
    """Whom a key belongs to; None: nobody has it."""
    row = db.execute(
        "SELECT t.id, t.name, t.state, t.limits, k.scopes, k.expires FROM public.keys k"
        " JOIN public.tenants t ON t.id = k.tenant WHERE k.digest = %s",
        (hash_key(key),),
    ).fetchone()
    if row is None:
        return None
    *tenant, scopes, expires = row
    is_expired = expires is not None and expires <= time.time()
    return KeyOwner(_decode_tenant(tenant), tuple(scopes.split()), is_expired)


def find_tenant_by_id(db: Connection[Any], id: int) -> Tenant | None:
    sql: Any = f"{_SELECT} WHERE t.id = %s"
    row = db.execute(sql, (id,)).fetchone()
    return _decode_tenant(row) if row is not None else None


def hash_key(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _decode_tenant(row: Sequence[Any]) -> Tenant:
    id, name, state, limits = row
    return Tenant(id, name, state, _decode_limits(limits))


def _decode_limits(text: str) -> TenantLimits:
    return msgspec.json.decode(text, type=TenantLimits)

"""Finds what is wrong in the tables of a cluster, and repairs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hermes.store.postgres.engine import create_engine_tables, defer_wake
from hermes.store.postgres.inbox import renew_wakes
from hermes.store.postgres.tenants import list_tenant_tables

if TYPE_CHECKING:
    from psycopg import Connection

_DEAD = "NOT public.is_alive(owner)"
_MISCOUNTED = (
    "SELECT s.tenant, s.n, coalesce(m.last + 1, 0), coalesce(m.total, 0) FROM public.sessions s"
    " LEFT JOIN (SELECT tenant, session, max(seq) AS last, count(*) AS total FROM public.messages"
    " GROUP BY 1, 2) m ON m.tenant = s.tenant AND m.session = s.n"
    " WHERE s.count <> coalesce(m.last + 1, 0) AND s.state <> 'running'"
)
_RESERVED = (
    "SELECT p.tenant, p.scope FROM public.spent p WHERE abs(p.reserved_usd - coalesce((SELECT"
    " sum(amount) FROM public.slices s WHERE s.tenant = p.tenant AND s.scope = p.scope"
    " AND s.unit = 'usd'), 0)) > 1e-6 OR abs(p.reserved_tokens - coalesce((SELECT sum(amount)"
    " FROM public.slices s WHERE s.tenant = p.tenant AND s.scope = p.scope"
    " AND s.unit = 'tokens'), 0)) > 0.5"
)


_DROP_ENGINE = """
DO $$ DECLARE r record; BEGIN
    FOR r IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
            AND relkind = 'r' AND relname LIKE 'procrastinate%' LOOP
        EXECUTE format('DROP TABLE IF EXISTS public.%I CASCADE', r.relname);
    END LOOP;
    FOR r IN SELECT oid::regprocedure AS name FROM pg_proc
            WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'procrastinate%' LOOP
        EXECUTE format('DROP FUNCTION IF EXISTS %s CASCADE', r.name);
    END LOOP;
    FOR r IN SELECT typname FROM pg_type WHERE typnamespace = 'public'::regnamespace
            AND typtype IN ('c', 'e') AND typname LIKE 'procrastinate%' LOOP
        EXECUTE format('DROP TYPE IF EXISTS public.%I CASCADE', r.typname);
    END LOOP;
END $$
"""
"""What is left of an engine whose tables were lost in part."""


class Finding(Struct, frozen=True):
    """One thing that is wrong."""

    what: str
    count: int
    repaired: bool


def check_cluster(db: Connection[Any], *, fix: bool) -> list[Finding]:
    """What is wrong, and whether it was repaired. Nodes may run meanwhile."""
    found = []
    for what, check in _CHECKS:
        with db.transaction():
            count = check(db, fix)
        if count:
            found.append(Finding(what, count, fix))
    return found


def _check_engine(db: Connection[Any], fix: bool) -> int:
    row = db.execute("SELECT to_regclass('public.procrastinate_jobs') IS NULL").fetchone()
    is_missing = bool(row and row[0])
    if is_missing and fix:
        db.execute("SET LOCAL search_path = public")
        db.execute(_DROP_ENGINE)
        create_engine_tables(db)
    return int(is_missing)


def _check_wakes(db: Connection[Any], fix: bool) -> int:
    row = db.execute("SELECT to_regclass('public.procrastinate_jobs') IS NULL").fetchone()
    if row and row[0]:
        row = db.execute("SELECT count(*) FROM public.session_inbox").fetchone()
        return int(row[0]) if row else 0
    if fix:
        return renew_wakes(db, defer_wake)
    row = db.execute(
        "SELECT count(DISTINCT (tenant, session)) FROM public.session_inbox i WHERE i.woken"
        " AND NOT EXISTS (SELECT 1 FROM public.procrastinate_jobs j"
        " WHERE j.lock = i.tenant || '/' || i.session AND j.status IN ('todo', 'doing'))"
    ).fetchone()
    return int(row[0]) if row else 0


def _check_counts(db: Connection[Any], fix: bool) -> int:
    rows = db.execute(_MISCOUNTED).fetchall()
    for tenant, n, last, _ in rows if fix else ():
        sql = "UPDATE public.sessions SET count = %s WHERE tenant = %s AND n = %s"
        db.execute(sql, (last, tenant, n))
    return len(rows)


def _check_owners(db: Connection[Any], fix: bool) -> int:
    return _count_or_run(
        db,
        fix,
        f"SELECT 1 FROM public.sessions WHERE state = 'running' AND {_DEAD}",
        "UPDATE public.sessions SET state = 'interrupted', owner = '', epoch = epoch + 1"
        f" WHERE state = 'running' AND {_DEAD}",
    )


def _check_reserved(db: Connection[Any], fix: bool) -> int:
    rows = db.execute(_RESERVED).fetchall()
    for tenant, scope in rows if fix else ():
        db.execute(
            "UPDATE public.spent p SET reserved_usd = coalesce((SELECT sum(amount)"
            " FROM public.slices s WHERE s.tenant = p.tenant AND s.scope = p.scope"
            " AND s.unit = 'usd'), 0), reserved_tokens = coalesce((SELECT sum(amount)"
            " FROM public.slices s WHERE s.tenant = p.tenant AND s.scope = p.scope"
            " AND s.unit = 'tokens'), 0) WHERE p.tenant = %s AND p.scope = %s",
            (tenant, scope),
        )
    return len(rows)


def _check_tenants(db: Connection[Any], fix: bool) -> int:
    """Rows of tenants that were removed while a node still wrote for them."""
    total = 0
    for table in list_tenant_tables(db):
        where = f'FROM public."{table}" WHERE tenant NOT IN (SELECT id FROM public.tenants)'
        total += _count_or_run(db, fix, f"SELECT 1 {where}", f"DELETE {where}")
    return total


def _check_slots(db: Connection[Any], fix: bool) -> int:
    where = f"FROM public.turn_slots WHERE {_DEAD}"
    return _count_or_run(db, fix, f"SELECT 1 {where}", f"DELETE {where}")


def _count_or_run(db: Connection[Any], fix: bool, count: Any, run: Any) -> int:
    return db.execute(run if fix else count).rowcount


_CHECKS: tuple[tuple[str, Callable[[Connection[Any], bool], int]], ...] = (
    ("tables of the engine are missing", _check_engine),
    ("sessions wait for an answer and nobody wakes them", _check_wakes),
    ("sessions do not know how many messages they have", _check_counts),
    ("turns belong to nodes that are dead", _check_owners),
    ("caps have reservations that nobody holds", _check_reserved),
    ("turns of dead nodes count towards limits of tenants", _check_slots),
    ("rows belong to tenants that were removed", _check_tenants),
)

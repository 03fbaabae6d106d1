"""What is known of the nodes of a cluster and of its database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hermes.store.postgres.schema import read_version
from hermes.store.postgres.shared.event_blocks import renew_partitions

if TYPE_CHECKING:
    from psycopg import Connection


class NodeRecord(Struct, frozen=True):
    name: str
    address: str
    roles: tuple[str, ...]
    version: str
    digest: str
    """Of its configuration: nodes that differ here may behave differently."""
    turns: int
    """Sessions that it runs at this moment."""
    lease_age: float
    """Seconds since its last sign of life."""
    alive: bool
    draining: bool


class ClusterRecord(Struct, frozen=True):
    nodes: tuple[NodeRecord, ...]
    running: int
    """Turns that run anywhere."""
    stalled: int
    """Turns whose node is dead and that nobody has taken over."""
    queue_depth: int
    """What waits for a turn."""
    oldest_wait: float
    """Seconds for which the oldest of it waits."""
    database_ms: float
    """How long one question to the database takes."""
    schema: int


class QueueRecord(Struct, frozen=True):
    depth: int = 0
    oldest_wait: float = 0.0
    database_seconds: float = 0.0
    """How long one question to the database takes."""


def list_nodes(db: Connection[Any]) -> tuple[NodeRecord, ...]:
    rows = db.execute(
        "SELECT n.name, n.address, n.roles, n.version, n.digest, (SELECT count(*)"
        " FROM public.sessions s WHERE s.owner = n.owner AND s.state = 'running'),"
        " extract(epoch FROM clock_timestamp() - n.beat)::float8, public.is_alive(n.owner),"
        " n.draining FROM public.nodes n WHERE n.roles <> '' ORDER BY n.name"
    ).fetchall()
    return tuple(
        NodeRecord(name, address, tuple(roles.split(",")), *rest)
        for name, address, roles, *rest in rows
    )


def find_address(db: Connection[Any], name: str) -> str:
    """Of a living node; empty: it has none."""
    sql = "SELECT address FROM public.nodes WHERE name = %s AND public.is_alive(owner)"
    row = db.execute(sql, (name,)).fetchone()
    return str(row[0]) if row else ""


def describe_cluster(db: Connection[Any]) -> ClusterRecord:
    queue = measure_queue(db)
    row = db.execute(
        "SELECT count(*) FILTER (WHERE public.is_alive(owner)),"
        " count(*) FILTER (WHERE NOT public.is_alive(owner))"
        " FROM public.sessions WHERE state = 'running'"
    ).fetchone()
    running, stalled = row if row else (0, 0)
    return ClusterRecord(
        list_nodes(db),
        running,
        stalled,
        queue.depth,
        round(queue.oldest_wait, 1),
        round(queue.database_seconds * 1000, 2),
        read_version(db)[0],
    )


def measure_queue(db: Connection[Any]) -> QueueRecord:
    began = time.perf_counter()
    db.execute("SELECT 1").fetchone()
    took = time.perf_counter() - began
    row = db.execute(
        "SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(created)), 0)::float8"
        " FROM public.session_inbox WHERE NOT began"
    ).fetchone()
    depth, oldest = row if row else (0, 0.0)
    return QueueRecord(depth, oldest, took)


def delete_old_events(db: Connection[Any], hours: float) -> None:
    """Drop the events of so long ago, and make room for those of the next hours."""
    renew_partitions(db, hours)
    db.execute(
        "DELETE FROM public.events e USING public.objects o WHERE o.tenant = e.tenant"
        " AND o.id = e.stream AND o.kind = 'run'"
        " AND o.used < extract(epoch FROM clock_timestamp()) - %s",
        (hours * 3600,),
    )


def remove_dead_owners(db: Connection[Any], owners: Sequence[str]) -> None:
    """Forget dead nodes; turns of the dead that nobody continues are interrupted."""
    with db.transaction():
        sql = "DELETE FROM public.nodes WHERE owner = ANY(%s) AND NOT public.is_alive(owner)"
        db.execute(sql, (list(owners),))
        db.execute(
            "UPDATE public.sessions SET state = 'interrupted', owner = '', epoch = epoch + 1"
            " WHERE state = 'running' AND NOT public.is_alive(owner)"
        )


def request_drain(db: Connection[Any], name: str) -> bool:
    """Ask a node to finish its turns and end; whether there is such a node."""
    sql = "UPDATE public.nodes SET draining = true WHERE name = %s AND public.is_alive(owner)"
    return db.execute(sql, (name,)).rowcount > 0

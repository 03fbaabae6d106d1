"""What waits for sessions; adding something wakes the session in the same transaction."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hermes.core.errors import StoreError
from hermes.store.postgres.connection import PostgresConnection
from hermes.store.postgres.database import TenantDatabase

if TYPE_CHECKING:
    from psycopg import Connection

    from hermes.store.postgres.engine import Defer

_OF_TENANT = 64
_UNUSED = 0.0
"""When a run was last used that has not begun."""


class InboxRow(Struct, frozen=True):
    id: int
    kind: str
    ref: str
    """What is meant: the id of a run."""
    owner: str
    """The name of the principal."""
    began: bool


class WaitingRow(Struct, frozen=True):
    row: InboxRow
    body: bytes | None
    """Of what is meant; None: it is gone."""
    runs_elsewhere: bool
    """Whether another living node runs the session now."""


class ClaimedRow(Struct, frozen=True):
    body: bytes | None
    """Of what is meant, as its last holder left it; None: it is gone."""
    has_orders: bool
    """Whether any order waits."""


class PostgresInbox:
    """Rows of one tenant."""

    def __init__(
        self, database: TenantDatabase, defer: Defer, *, limit: int, stays_at_node: bool
    ) -> None:
        """`limit`: of what waits for one session. `stays_at_node`: a session goes back to the node
        that has its files."""
        self._database = database
        self._defer = defer
        self._limit = limit
        self._stays_at_node = stays_at_node

    async def add(  # noqa: PLR0913 - a keyword per column
        self,
        session: str,
        kind: str,
        ref: str,
        *,
        owner: str,
        body: bytes,
        priority: int = 0,
        at_most: int | None = None,
    ) -> bool:
        """Store the object of this kind and id, and what waits; False when it is known already.
        `at_most`: turns of the tenant at a time; more wait until one of them ends."""
        now = time.time()

        def insert_row(db: PostgresConnection) -> bool:
            wakes = at_most is None or at_most > _count_woken(db)
            values = (session, kind, ref, owner, priority, wakes, session, session)
            added, waiting, home = db.execute(_ADD, values).fetchall()[0]
            if added is None:
                return False
            if waiting >= self._limit:
                raise inbox_full_error(session, self._limit)
            db.execute(
                "INSERT INTO objects (kind, id, owner, created, used, body)"
                f" VALUES (?, ?, ?, ?, {_UNUSED}, ?) ON CONFLICT DO NOTHING",
                (kind, ref, owner, now, body),
            )
            if wakes:
                self._defer_wake(db, session, home if self._stays_at_node else None, priority)
            return True

        return await self._database.writer.submit(insert_row)

    async def wake(self, session: str) -> None:
        """Wake the session for what waits."""
        await self._database.writer.submit(lambda db: self.wake_inside(db, session, anywhere=True))

    def wake_inside(
        self, db: PostgresConnection, session: str, priority: int = 0, *, anywhere: bool = False
    ) -> None:
        """Wake the session in the transaction of this connection."""
        home = None
        if self._stays_at_node and not anywhere:
            home = db.execute(_FIND_HOME, (session,)).get
        self._defer_wake(db, session, home, priority)

    def _defer_wake(
        self, db: PostgresConnection, session: str, queue: str | None, priority: int
    ) -> None:
        from hermes.store.postgres.engine import TURNS, Wake

        self._defer(db.db, Wake(db.tenant, session, queue or TURNS, priority))

    async def claim(self, session: str, row: InboxRow, node: str) -> ClaimedRow | None:
        """The row, if this process is the one that answers it; it waits no more then. Another one
        keeps its claim until it is held for dead."""
        me = self._database.process.acquire()

        def claim_row(db: PostgresConnection) -> ClaimedRow | None:
            found = db.execute(_CLAIM, (me, session, row.id, me)).fetchone()
            if found is None:
                return None
            db.execute(
                "INSERT INTO session_homes (session, node) VALUES (?, ?)"
                " ON CONFLICT (session) DO UPDATE SET node = excluded.node",
                (session, node),
            )
            return ClaimedRow(*found)

        return await self._database.writer.submit(claim_row)

    async def release(self, session: str, row: InboxRow) -> None:
        """Let any process answer the row, and wake the session for it."""

        def release_row(db: PostgresConnection) -> None:
            sql = "UPDATE session_inbox SET holder = '' WHERE session = ? AND id = ?"
            db.execute(sql, (session, row.id))
            self.wake_inside(db, session, anywhere=True)

        await self._database.writer.submit(release_row)

    async def find_first(self, session: str) -> WaitingRow | None:
        """What is to be answered next."""
        values = (self._database.process.name, session)

        def select_first(db: PostgresConnection) -> WaitingRow | None:
            found = db.execute(_FIRST, values).fetchone()
            return WaitingRow(InboxRow(*found[:5]), *found[5:]) if found else None

        return await self._database.read(select_first)

    async def list_rows(self, session: str) -> list[InboxRow]:
        """The oldest first."""
        sql = "SELECT id, kind, ref, owner, began FROM session_inbox WHERE session = ? ORDER BY id"
        return await self._database.read(
            lambda db: [InboxRow(*row) for row in db.execute(sql, (session,))]
        )

    async def remove(self, session: str, row_id: int, *, unless_begun: bool = False) -> bool:
        sql = "DELETE FROM session_inbox WHERE session = ? AND id = ?"
        sql += " AND NOT began" if unless_begun else ""

        def delete_row(db: PostgresConnection) -> bool:
            db.execute(sql, (session, row_id))
            return bool(db.changes())

        return await self._database.writer.submit(delete_row)

    async def trim_objects(self, kind: str, keep_latest: int, *, owner: str) -> None:
        """Delete all but the most recently used objects, and none that waits: what has never been
        used is not even looked at, however much of it waits."""

        def delete_old(db: PostgresConnection) -> None:
            db.execute(
                "DELETE FROM objects WHERE kind = ?1 AND owner = ?2 AND id IN (SELECT id"
                f" FROM objects WHERE kind = ?1 AND owner = ?2 AND used > {_UNUSED}"
                " ORDER BY used DESC OFFSET ?3)"
                " AND NOT EXISTS (SELECT 1 FROM session_inbox i WHERE i.kind = ?1"
                " AND i.ref = objects.id)",
                (kind, owner, keep_latest),
            )

        await self._database.writer.submit(delete_old)


def _count_woken(db: PostgresConnection) -> int:
    return int(db.execute("SELECT count(*) FROM session_inbox WHERE woken").get)


def has_unwoken(db: PostgresConnection) -> bool:
    """Whether anything waits that nobody wakes."""
    return bool(db.execute(f"SELECT EXISTS (SELECT 1 FROM public.session_inbox i{_NO_WAKE})").get)


def renew_wakes(
    db: Connection[Any], defer: Defer, *, most: int | None = None, of_tenant: int = _OF_TENANT
) -> int:
    """Wake the sessions for which something waits and that nobody wakes: the node that held them
    back has died, or the tables of the engine were lost. How many there are; `most`: at a time. Of
    what waits for other turns of a tenant to end, the first (`of_tenant`) are enough."""
    from hermes.store.postgres.engine import Wake
    from hermes.store.postgres.shared.singletons import renew_singletons

    rows = db.execute(_UNWOKEN, (of_tenant, most)).fetchall()
    for place in range(0, len(rows), _WAKES_AT_ONCE):
        with db.transaction():
            for tenant, session in rows[place : place + _WAKES_AT_ONCE]:
                defer(db, Wake(tenant, session))
    return len(rows) + renew_singletons(db, defer)


def inbox_full_error(session: str, limit: int) -> StoreError:
    return StoreError(
        f"{limit} messages wait for session {session} already. This one was not accepted; nothing "
        "was lost. Send it again when some of them have been answered.",
        "inbox_full",
    )


_WAKES_AT_ONCE = 200
_NO_WAKE = (
    " WHERE NOT EXISTS (SELECT 1 FROM public.procrastinate_jobs j"
    " WHERE j.lock = i.tenant || '/' || i.session AND j.status IN ('todo', 'doing'))"
)
_UNWOKEN: Any = (
    "SELECT tenant, session FROM (SELECT tenant, session, id, woken, row_number()"
    " OVER (PARTITION BY tenant, woken ORDER BY id) AS place FROM public.session_inbox) AS i"
    f"{_NO_WAKE} AND (woken OR place <= %s) GROUP BY tenant, session"
    " ORDER BY bool_or(woken) DESC, min(id) LIMIT %s"
)
_BODY = (
    "(SELECT o.body FROM objects o WHERE o.kind = i.kind AND o.id = i.ref AND o.owner = i.owner)"
)
_CLAIM = (
    "UPDATE session_inbox AS i SET began = true, holder = ? WHERE session = ? AND id = ?"
    " AND (holder IN ('', ?) OR NOT EXISTS (SELECT 1 FROM public.nodes n"
    f" WHERE n.owner = holder AND NOT n.condemned)) RETURNING {_BODY},"
    " EXISTS (SELECT 1 FROM objects o WHERE o.kind = 'order')"
)
_FIND_HOME = (
    "SELECT 'node:' || h.node FROM session_homes h JOIN public.nodes n ON n.name = h.node"
    " WHERE h.session = ? AND NOT n.draining AND public.is_alive(n.owner)"
)
_ADD = (
    "WITH added AS (INSERT INTO session_inbox (session, kind, ref, owner, priority, woken)"
    " VALUES (?, ?, ?, ?, ?, ?::int = 1) ON CONFLICT DO NOTHING RETURNING id)"
    " SELECT (SELECT id FROM added), (SELECT count(*) FROM session_inbox WHERE session = ?"
    f" AND NOT began), ({_FIND_HOME})"
)
"""Its id, how many waited before, and the queue of the node that has the files."""
_FIRST = (
    f"SELECT i.id, i.kind, i.ref, i.owner, i.began, {_BODY}, EXISTS (SELECT 1 FROM sessions s"
    " WHERE s.id = i.session AND s.state = 'running' AND s.owner <> ? AND"
    " public.is_alive(s.owner)) FROM session_inbox i WHERE i.session = ? ORDER BY i.id LIMIT 1"
)

"""The lease of a node: while it is renewed, what the node runs belongs to it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from hermes.core.errors import StoreError
from hermes.store.postgres.connection import Connect
from hermes.store.postgres.errors import translate_error

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")
log = logging.getLogger(__name__)
_MARGIN_SECONDS = 0.05
_LONGEST_WAIT = 0.5
"""Seconds between two looks at the clock: a node that was stopped notices it so soon."""


class NodeLease:
    """Implements `tables.connection.Processes`. The name of an owner is that of its node with a
    random part, so that a node that starts again does not own what it ran before."""

    def __init__(self, connect: Connect, node: str, seconds: float) -> None:
        self.node = node
        self.name = ""
        self.seconds = seconds
        self.on_late: Callable[[], None] = lambda: None
        """Called on the lease's thread when this process has slept for longer than the lease."""
        self.on_drain: Callable[[], None] = lambda: None
        """Called on the lease's thread when somebody wants this node to end."""
        self.on_dead: Callable[[], None] = lambda: None
        """Called on the lease's thread when owners are found whose lease is over."""
        self.draining = False
        self._dead: set[str] = set()
        self._is_asking = False
        """Whether the lease's thread waits for the database."""
        self._renewed = self._steady = self._ticked = time.monotonic()
        """When the lease was last renewed, since when always in time, and when its thread last
        ran."""
        self._connect = connect
        self._db: Connection[Any] | None = None
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> str:
        with self._lock:
            if not self.name:
                name = f"{self.node}#{os.urandom(8).hex()}"
                began = time.monotonic()
                self.run_query(lambda db: _insert_node(db, self.node, name, self.seconds))
                self.name = name
                self._renewed = self._steady = began
                self._thread = threading.Thread(
                    target=self._renew_until_stopped, name="hermes-lease", daemon=True
                )
                self._thread.start()
            return self.name

    def is_alive(self, name: str) -> bool:
        if not name or name == self.name:
            return bool(name)
        sql = "SELECT public.is_alive(%s)"
        row = self.run_query(lambda db: db.execute(sql, (name,)).fetchone())
        return bool(row and row[0])

    def confirm_death(self, name: str) -> bool:
        """Whether the owner cannot write any more: it is gone, or from now on held for dead."""
        if name in ("", self.name):
            return True
        condemn = (
            "UPDATE public.nodes SET condemned = true"
            " WHERE owner = %s AND NOT public.is_alive(owner)"
        )
        ask = "SELECT 1 FROM public.nodes WHERE owner = %s AND NOT condemned"

        def look(db: Connection[Any]) -> bool:
            if self.is_steady:
                db.execute(condemn, (name,))
            return db.execute(ask, (name,)).fetchone() is None

        return self.run_query(look)

    @property
    def is_late(self) -> bool:
        """Whether the lease may be over: the database has not been reached for so long."""
        return self.silence > self.seconds

    @property
    def silence(self) -> float:
        """Seconds since the database was last reached."""
        return time.monotonic() - self._renewed if self.name else 0.0

    @property
    def is_steady(self) -> bool:
        """Whether the lease was renewed all the time for as long as it lasts: then the database
        was there for the other nodes too, and one that did not renew is dead."""
        return not self.is_late and time.monotonic() - self._steady > self.seconds

    def take_dead(self) -> list[str]:
        """The owners that were found dead since: none of them can write or renew any more."""
        with self._lock:
            dead, self._dead = self._dead, set()
        return sorted(dead)

    def check_time(self) -> None:
        """To be called before anything is written: a process that was stopped for longer than its
        lease owns nothing any more."""
        if self._is_asking:  # the database is slow; it also tells whether others have taken over
            return
        if self.name and time.monotonic() - self._ticked > self.seconds:
            self.on_late()

    def describe_node(self, values: dict[str, Any]) -> None:
        """Set columns of this node's row."""
        import psycopg

        columns = ", ".join(f"{column} = %s" for column in values)
        sql: Any = f"UPDATE public.nodes SET {columns} WHERE owner = %s"
        try:
            self.acquire()
            self.run_query(lambda db: db.execute(sql, (*values.values(), self.name)))
        except psycopg.Error as error:
            raise translate_error(error) from error

    def release(self) -> None:
        """Give up everything at once instead of letting the lease end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            if self.name:
                with suppress(Exception):  # the database is away: the lease ends by itself
                    sql = "DELETE FROM public.nodes WHERE owner = %s"
                    self.run_query(lambda db: db.execute(sql, (self.name,)))
            self._close()

    def _renew_until_stopped(self) -> None:
        every = self.seconds / 5
        self._ticked = time.monotonic()
        due = self._ticked + every
        while not self._stop.wait(max(0.0, min(_LONGEST_WAIT, due - time.monotonic()))):
            self.check_time()
            self._ticked = now = time.monotonic()
            if now >= due:
                self._is_asking = True
                due = now + min(_LONGEST_WAIT, every)
                with suppress(Exception):  # the database is away
                    due = now + min(every, self._renew())
                self._ticked = time.monotonic()
                self._is_asking = False

    def _renew(self) -> float:
        """The seconds after which a lease of another node may end: it is judged as soon as that,
        however long this node's own is."""
        began = time.monotonic()
        values = (self.name, self.is_steady, self.name, self.name)
        row = self.run_query(lambda db: db.execute(_RENEW, values).fetchone())
        if row is None:
            self.on_late()
            return 0.0
        self._note_renewal(began)
        draining, dead, next_end = row
        if draining and not self.draining:
            self.draining = True
            self.on_drain()
        if dead:
            with self._lock:
                self._dead.update(dead)
            self.on_dead()
        return inf if next_end is None else next_end + _MARGIN_SECONDS

    def _note_renewal(self, began: float) -> None:
        if began - self._renewed > self.seconds:
            self._steady = began
        self._renewed = began

    def run_query(self, use: Callable[[Connection[Any]], T]) -> T:
        """Use the connection; once more with a new one when the old one is broken."""
        import psycopg

        with self._lock:
            for attempt in range(2):
                try:
                    if self._db is None:
                        self._db = self._connect()
                    return use(self._db)
                except psycopg.OperationalError:
                    self._close()
                    if attempt:
                        raise
            raise AssertionError

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(Exception):
                db.close()


def _insert_node(db: Connection[Any], node: str, owner: str, lease: float) -> None:
    """Add the row of this node. One of the same name that has ended is replaced."""
    found = db.execute(
        "INSERT INTO public.nodes AS n (name, owner, lease) VALUES (%s, %s, %s)"
        " ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, lease = excluded.lease,"
        " beat = clock_timestamp(), started = clock_timestamp(), draining = false,"
        " condemned = false WHERE NOT public.is_alive(n.owner) RETURNING 1",
        (node, owner, lease),
    ).fetchone()
    if found is None:
        raise StoreError(
            f"Another node named {node} is running. Nothing was changed or lost. Give this one "
            "another name (cluster.node), or end the other.",
            "in_use",
        )


_RENEW = (
    "WITH renewed AS (UPDATE public.nodes SET beat = clock_timestamp()"
    " WHERE owner = %s AND NOT condemned RETURNING draining), dead AS (UPDATE public.nodes"
    " SET condemned = true WHERE owner IN (SELECT owner FROM public.nodes WHERE %s"
    " AND owner <> %s AND NOT public.is_alive(owner) FOR NO KEY UPDATE SKIP LOCKED)"
    " RETURNING owner) SELECT draining, (SELECT array_agg(owner) FROM dead),"
    " (SELECT min(extract(epoch FROM beat - clock_timestamp())::float8 + lease)"
    " FROM public.nodes WHERE owner <> %s AND NOT condemned AND public.is_alive(owner))"
    " FROM renewed"
)
"""Also holds those for dead whose lease is over, if this node may judge that: in one statement,
because it is most of what an idle node asks."""

"""The connections of one node to PostgreSQL: one writes, the others read."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from hermes.core.errors import StoreError
from hermes.store.db_thread import Job, JobThread, do_nothing
from hermes.store.postgres.connection import (
    Connect,
    PostgresConnection,
    SessionKey,
    open_connection,
)
from hermes.store.postgres.errors import translate_error
from hermes.store.postgres.lease import NodeLease
from hermes.store.postgres.schema import check_version
from hermes.store.tables.tenancy import CURRENT_TENANT

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")
log = logging.getLogger(__name__)
READERS = 2
PATIENCE = 30.0
_RETRY_SECONDS = 0.2
_MAX_CONFLICTS = 10


class PostgresThread(JobThread[PostgresConnection]):
    """Opens its connection again when it breaks; jobs wait until the database was away for
    `patience`."""

    def __init__(self, connect: Connect, patience: float) -> None:
        super().__init__()
        self._connect = connect
        self._patience = patience
        self._db: PostgresConnection | None = None
        self._lost: float | None = None
        """When the database was lost; None: it is there."""
        self.epochs: dict[SessionKey, int] = {}
        """Of the sessions that this process runs."""

    def get_connection(self) -> PostgresConnection:
        if self._db is None:
            import psycopg

            try:
                self._db = PostgresConnection(self._connect(), self.epochs)
            except psycopg.Error as error:
                self.failure = translate_error(error)
                raise self.failure from error
            except StoreError as error:
                self.failure = error
                raise
        return self._db

    def close_connection(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(Exception):
                db.db.close()

    def note_success(self) -> None:
        self.failure = self._lost = None

    def wait_for_database(self, failure: StoreError) -> bool:
        """Whether there is time for another attempt, after a pause."""
        self.failure = failure
        if failure.code != "away":
            self._lost = None
            return False
        now = time.monotonic()
        self._lost = now if self._lost is None else self._lost
        self.close_connection()
        if now >= self._lost + self._patience:
            return False
        time.sleep(_RETRY_SECONDS)
        return True

    def run_jobs(self, jobs: list[Job]) -> None:
        for job in jobs:
            if not job.future.cancelled():
                self._run_read(job)

    def _run_read(self, job: Job) -> None:
        import psycopg

        while True:
            try:
                job.result = job.run(self.get_connection())
                self.note_success()
                return
            except (psycopg.Error, StoreError) as error:
                failure = error if isinstance(error, StoreError) else translate_error(error)
                if not self.wait_for_database(failure):
                    job.error = failure
                    return
            except Exception as error:  # noqa: BLE001 - the caller gets it; the thread continues
                job.error = error
                return


class PostgresWriter(PostgresThread):
    """All jobs waiting at one moment become one transaction; callers get their results only after
    the commit. A job that fails undoes its own changes and no others."""

    def __init__(self, connect: Connect, patience: float, lease: NodeLease) -> None:
        super().__init__(connect, patience)
        self._lease = lease
        self.groups = self.jobs_written = 0
        self.seconds = 0.0
        """Spent in transactions."""
        self.tag = f"hermes-writer-{os.urandom(16).hex()}"
        """Its connections have this name, and no others."""
        self._id = f"{lease.node}#{os.urandom(16).hex()}"
        self._number = 0

    def run_jobs(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        failure = self._run_group(jobs)
        if failure is not None and len(jobs) > 1 and failure.code != "away":
            for job in jobs:
                job.error = self._run_group([job]) or job.error
        elif failure is not None:
            for job in jobs:
                job.error = failure

    def _run_group(self, jobs: list[Job]) -> StoreError | None:
        """The failure of all of them, or None: then each job has its own result or error."""
        import psycopg

        conflicts = 0
        while True:
            self._number += 1
            began = time.monotonic()
            try:
                self._run_transaction(jobs)
                self.groups += 1
                self.jobs_written += len(jobs)
                self.seconds += time.monotonic() - began
                self.note_success()
                return None
            except psycopg.Error as error:
                failure = translate_error(error)
                if failure.code == "busy" and conflicts < _MAX_CONFLICTS:
                    conflicts += 1
                    continue
                if failure.code != "away":
                    self.failure = failure
                    return failure
            except StoreError as error:
                failure = error
            lost = self._db
            while self.wait_for_database(failure):
                with suppress(psycopg.Error, StoreError):
                    if not self._has_committed():
                        break
                    if lost is not None:
                        lost.note_commit()
                    self.note_success()
                    return None
            else:
                return failure

    def _run_transaction(self, jobs: list[Job]) -> None:
        """All statements at once, which hardly ever fails; otherwise the jobs one by one, so that
        only those fail that must."""
        self._lease.check_time()
        db = self.get_connection()
        if not self._try_together(db, jobs):
            self._run_one_by_one(db, jobs)
        db.note_commit()

    def _try_together(self, db: PostgresConnection, jobs: list[Job]) -> bool:
        """False: one of the jobs failed, and nothing was changed."""
        import psycopg

        try:
            with db.open_group():
                for job in jobs:
                    job.error, job.result = None, job.run(db)
                db.read_rest()
                for job in jobs:
                    job.result = _read_result(job.result)
                self._number_group(db)
        except psycopg.Error as error:
            db.forget_tenant()
            if translate_error(error).code in _UNFIT or db.db.closed:
                db.db.rollback()
                raise
            db.db.rollback()
            return False
        except Exception:  # noqa: BLE001 - whose it is turns out when each is run alone
            db.forget_tenant()
            db.db.rollback()
            return False
        return True

    def _run_one_by_one(self, db: PostgresConnection, jobs: list[Job]) -> None:
        db.new_epochs = {}
        for job in jobs:
            job.error = job.result = None
        try:
            with db.db.transaction():
                for job in jobs:
                    self._run_in_transaction(db, job, nested=len(jobs) > 1)
                self._number_group(db)
        except _Undone:
            db.forget_tenant()
        except BaseException:
            db.forget_tenant()
            raise

    def _run_in_transaction(self, db: PostgresConnection, job: Job, *, nested: bool) -> None:
        import psycopg

        before = dict(db.new_epochs)
        try:
            if nested:
                with db.db.transaction():
                    job.result = _read_result(job.run(db))
            else:
                job.result = _read_result(job.run(db))
        except psycopg.Error as error:
            job.error = translate_error(error)
            if job.error.code in _UNFIT or db.db.closed:
                raise
            self._undo_job(db, before, error, nested=nested)
        except Exception as error:  # noqa: BLE001 - the caller gets it; the others go on
            job.error = error
            self._undo_job(db, before, error, nested=nested)

    def _undo_job(
        self,
        db: PostgresConnection,
        epochs: dict[SessionKey, int | None],
        error: Exception,
        *,
        nested: bool,
    ) -> None:
        db.forget_tenant()
        db.new_epochs = epochs
        if not nested:
            raise _Undone from error

    def _number_group(self, db: PostgresConnection) -> None:
        """The number of the group is part of it: after a lost connection it tells whether the
        group has arrived. Nothing is written by a node that others hold for dead: it has no
        number."""
        import psycopg

        owner = self._lease.name
        try:
            if not owner:
                db.db.execute(_NUMBER_GROUP.format("%s"), (self._id, self._number))
            else:
                values = (self._id, self._number, owner)
                db.db.execute(_NUMBER_GROUP.format(_IF_ALIVE), values)
        except psycopg.errors.NotNullViolation:
            self._lease.on_late()
            raise StoreError(
                "The lease of this node is over; others have taken over what it ran. This was not "
                "saved. Start the node again.",
                "fenced",
            ) from None

    def _has_committed(self) -> bool:
        """Whether the last group was written before its connection was lost. The server may still
        be at it: it is ended first, or it would come true beside its repetition."""
        db = self.get_connection().db
        db.execute(_END_LOST, (self.tag,))
        sql = "SELECT number FROM public.write_groups WHERE writer = %s"
        row = db.execute(sql, (self._id,)).fetchone()
        return bool(row and row[0] == self._number)

    def do_upkeep(self, *, closing: bool) -> None:
        if closing and self._db is not None:
            with suppress(Exception):
                sql = "DELETE FROM public.write_groups WHERE writer = %s"
                self._db.db.execute(sql, (self._id,))


class _Undone(Exception):
    """The only job of a transaction failed: nothing is left to commit."""


_NUMBER_GROUP = (
    "INSERT INTO public.write_groups (writer, number) VALUES (%s, {}) ON CONFLICT (writer)"
    " DO UPDATE SET number = excluded.number, written = now()"
)
_END_LOST = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE application_name = %s AND pid <> pg_backend_pid()"
)
_IF_ALIVE = (
    "(SELECT %s::bigint FROM public.nodes WHERE owner = %s AND NOT condemned LIMIT 1 FOR SHARE)"
)
_UNFIT = ("away", "busy", "full", "readonly")
"""Failures of the database, not of a job."""


class UnreadResult(Struct, frozen=True):
    """What a job returns whose statement was sent: its result is read when those of the other jobs
    were sent as well."""

    read: Callable[[], Any]


def _read_result(result: Any) -> Any:
    return result.read() if isinstance(result, UnreadResult) else result


class PostgresDatabase:
    """Nothing is opened before the first call."""

    def __init__(
        self, url: str, *, node: str, lease_seconds: float, patience: float = PATIENCE
    ) -> None:
        def connect() -> Any:
            db = open_connection(url)
            try:
                check_version(db)
            except Exception:
                db.close()
                raise
            return db

        def connect_writer() -> Any:
            db = connect()
            # What a stopped process left open would keep others from its sessions.
            limit = str(round(lease_seconds * 1000))
            db.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', %s, false),"
                " set_config('application_name', %s, false)",
                (limit, self.writer.tag),
            )
            return db

        self.lease = NodeLease(connect, node, lease_seconds)
        self.writer = PostgresWriter(connect_writer, patience, self.lease)
        self.readers = [PostgresThread(connect, patience) for _ in range(READERS)]
        self._connect: Connect = connect
        self._turn = 0

    def open_apart(self) -> Connection[Any]:
        """A connection of its own, for what may take a while."""
        return self._connect()

    def run_apart(self, use: Callable[[Connection[Any]], object]) -> None:
        with self.open_apart() as db:
            use(db)

    async def wait_until_open(self) -> None:
        await self.writer.submit(do_nothing)

    async def read(self, run: Callable[[PostgresConnection], T]) -> T:
        self._turn = (self._turn + 1) % READERS
        return await self.readers[self._turn].submit(run)

    async def close(self) -> None:
        for thread in (*self.readers, self.writer):
            await thread.close()
        await asyncio.to_thread(self.lease.release)

    def find_problem(self) -> StoreError | None:
        return self.writer.failure


class TenantWriter:
    """Implements `tables.connection.SqlWriter` for the rows of one tenant at a time."""

    def __init__(self, database: PostgresDatabase, tenant: int | None, lock: str = "") -> None:
        """`tenant`: None means the current one of each call. `lock`: its jobs exclude those of
        every other writer with the same lock."""
        self._writer = database.writer
        self._tenant = tenant
        self._lock = lock

    def submit(self, run: Callable[[PostgresConnection], T]) -> asyncio.Future[T]:
        tenant, lock = _choose_tenant(self._tenant), self._lock

        def run_for_tenant(db: PostgresConnection) -> T:
            db.use_tenant(tenant)
            if lock:
                sql = "SELECT pg_advisory_xact_lock(%s, hashtext(%s))"
                db.db.execute(sql, (tenant, lock))
            return run(db)

        return self._writer.submit(run_for_tenant)


class TenantDatabase:
    """Implements `tables.connection.SqlDatabase` for the rows of one tenant at a time."""

    def __init__(self, database: PostgresDatabase, tenant: int | None, lock: str = "") -> None:
        self.writer = TenantWriter(database, tenant, lock)
        self.process = database.lease
        self._tenant = tenant
        self._database = database

    async def read(self, run: Callable[[PostgresConnection], T]) -> T:
        tenant = _choose_tenant(self._tenant)
        return await self._database.read(lambda db: run(db.use_tenant(tenant)))

    def holds_epoch(self, session_id: str) -> bool:
        """Whether this process runs the session, as far as it knows."""
        return (_choose_tenant(self._tenant), session_id) in self._database.writer.epochs

    def forget_epoch(self, session_id: str) -> None:
        """After a refusal: another node may run the session."""
        self._database.writer.epochs.pop((_choose_tenant(self._tenant), session_id), None)

    def make_exclusive(self, lock: str) -> TenantDatabase:
        """The same, for a table whose changes must not meet."""
        return TenantDatabase(self._database, self._tenant, lock)


def _choose_tenant(tenant: int | None) -> int:
    return CURRENT_TENANT.get() if tenant is None else tenant

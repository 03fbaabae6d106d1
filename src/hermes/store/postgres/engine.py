"""The engine of a cluster: jobs that wake sessions, each claimed by one worker."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from importlib import resources
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import psycopg
from msgspec import Struct
from procrastinate import App, JobContext, PsycopgConnector, SyncPsycopgConnector, exceptions
from procrastinate.jobs import Job, Status
from procrastinate.worker import Worker
from psycopg_pool import AsyncConnectionPool

from hermes.store.postgres.connection import add_limits

if TYPE_CHECKING:
    from procrastinate.connector import Notify

    from hermes.store.postgres.notices import NodeNotices

T = TypeVar("T")
log = logging.getLogger(__name__)
TURNS = "turns"
"""The queue of every worker."""
BATCH = "batch"
"""The queue of shards of batches, which are no sessions."""
SINGLETONS = "singletons"
"""The queue of what one node does at a time; its wakes are never done."""
_TASK = "wake"
_OPTIONS = "-c search_path=public -c synchronous_commit=off -c application_name=hermes-engine"
_RETRY_SECONDS = 0.2
_CONNECT_SECONDS = 2.0
"""How long a statement waits for the connection before it asks for another attempt to open it."""
_POLL_SECONDS = 5.0
_FORGET_SECONDS = 86400.0
"""A worker that was not heard of for so long is deleted. One that is only late must not be: it
could not claim anything any more."""
_NEWS = json.dumps({"type": "job_inserted", "job_id": 0})


class Wake(Struct, frozen=True):
    """Says that something waits for a session; what it is stands in its inbox."""

    tenant: int
    session: str
    queue: str = TURNS
    priority: int = 0

    @property
    def key(self) -> str:
        """A client may have given a session any name: no other wake has the key of one."""
        if self.queue == SINGLETONS:
            return f"singleton:{self.session}"
        if self.queue == BATCH:
            return f"shard:{self.tenant}/{self.session}"
        return f"{self.tenant}/{self.session}"


Answer = Callable[[Wake], Awaitable[None]]
Defer = Callable[[psycopg.Connection[Any], Wake], None]


class WakeEngine(Protocol):
    """At most one wake of a session is worked on, and at most one waits."""

    def defer(self, db: psycopg.Connection[Any], wake: Wake) -> None:
        """Add a wake in the transaction of this connection; one that waits already suffices."""

    async def run(
        self, answer: Answer, *, queues: Sequence[str], turns: int, until_idle: bool = False
    ) -> None:
        """Hand wakes of these queues to `answer`, so many at a time, until `drain` is called or,
        with `until_idle`, none is left."""

    async def cancel(self, wake: Wake) -> None:
        """Remove the wake of this session if it waits."""

    async def reap(self) -> int:
        """Let others have the wakes of dead workers; how many there were."""

    def drain(self) -> None:
        """Take no more wakes."""


def node_queue(node: str) -> str:
    """The queue of one node, for sessions whose files are there."""
    return f"node:{node}"


def create_engine_tables(db: psycopg.Connection[Any]) -> None:
    sql = resources.files("procrastinate.sql").joinpath("schema.sql").read_text()
    db.execute(sql.encode())


class ProcrastinateEngine:
    """Implements `WakeEngine`. A worker that lost its connection goes on with another one; a wake
    that it claimed without knowing is found by `reap`."""

    def __init__(self, url: str, lease_seconds: float, notices: NodeNotices) -> None:
        """`notices`: receive those of the engine, too."""
        self._connector = _PatientConnector(url, notices)
        self._app = App(connector=self._connector)
        self._app.task(name=_TASK, pass_context=True)(self._run_wake)
        self._lease = lease_seconds
        self._worker: Worker | None = None
        self._answer: Answer | None = None
        self._running: list[int] = []
        self._answered: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By key: a worker that was late may be given a wake again that it still answers."""
        self._suspects: set[int] = set()
        """Claimed by this worker and not run by it when last looked at."""
        self.draining = False

    def defer(self, db: psycopg.Connection[Any], wake: Wake) -> None:
        defer_wake(db, wake)

    async def run(
        self, answer: Answer, *, queues: Sequence[str], turns: int, until_idle: bool = False
    ) -> None:
        self._answer = answer
        await self._connector.open_patiently()
        async with self._app.open_async():
            self._worker = self._connector.worker = Worker(
                self._app,
                queues=list(queues),
                concurrency=turns,
                wait=not until_idle,
                fetch_job_polling_interval=_POLL_SECONDS,
                delete_jobs="always",
                install_signal_handlers=False,
                update_heartbeat_interval=self._lease / 3,
                stalled_worker_timeout=_FORGET_SECONDS,
                abort_job_polling_interval=_FORGET_SECONDS,
            )
            if self.draining:
                return
            await self._worker.run()  # type: ignore[no-untyped-call]

    async def _run_wake(self, context: JobContext, tenant: int, session: str) -> None:
        assert context.job.id is not None and self._answer is not None
        wake = Wake(tenant, session, context.job.queue, context.job.priority)
        self._running.append(context.job.id)
        try:
            async with self._answered.setdefault(wake.key, asyncio.Lock()):
                while True:
                    if await self._try_answer(self._answer, wake):
                        return
                    await asyncio.sleep(1.0)
        finally:
            self._running.remove(context.job.id)

    async def _try_answer(self, answer: Answer, wake: Wake) -> bool:
        try:
            await answer(wake)
        except Exception:
            log.exception("session %s could not be woken", wake.session)
            return self.draining
        return True

    async def cancel(self, wake: Wake) -> None:
        manager = self._app.job_manager
        for job in await manager.list_jobs_async(
            status=Status.TODO.value, queueing_lock=wake.key, task=_TASK
        ):
            if job.id is not None:
                await manager.cancel_job_by_id_async(job.id, delete_job=True)

    async def reap(self) -> int:
        if self._worker is None:
            return 0
        manager = self._app.job_manager
        stalled = [*await manager.get_stalled_jobs(seconds_since_heartbeat=self._lease)]
        stalled += await self._find_lost_claims()
        for job in stalled:
            await self._release_job(job)
        moved = await self._connector.execute_query_all_async(_MOVE)
        if stalled or moved:
            await self._connector.tell_workers((TURNS, *(job.queue for job in stalled)))
        return len(stalled)

    async def _find_lost_claims(self) -> list[Job]:
        """Wakes that this worker claimed when it lost its connection, or could not finish."""
        worker = self._worker.worker_id if self._worker is not None else None
        if worker is None:
            return []
        rows = await self._app.job_manager.list_jobs_async(
            status=Status.DOING.value, worker_id=worker
        )
        lost = [job for job in rows if job.id is not None and job.id not in self._running]
        before, self._suspects = self._suspects, {job.id for job in lost if job.id is not None}
        return [job for job in lost if job.id in before]

    async def _release_job(self, job: Job) -> None:
        """A job whose sibling waits already cannot wait too: the sibling wakes the session. One
        that another node has released meanwhile may be claimed again: it is left alone."""
        claim = {"job_id": job.id, "worker_id": job.worker_id}
        try:
            await self._connector.execute_query_async(_RELEASE, **claim)
        except exceptions.UniqueViolation:
            await self._connector.execute_query_async(_FINISH, **claim)

    def drain(self) -> None:
        self.draining = self._connector.tells_others = True
        if self._worker is not None:
            self._worker.stop()  # type: ignore[no-untyped-call]


def defer_wake(db: psycopg.Connection[Any], wake: Wake) -> None:
    """Add a wake in the transaction of this connection; one that waits already suffices, and waits
    until the transaction has ended."""
    while db.execute(_FIND_WAITING, (wake.key,)).fetchone() is None:
        try:
            if db.pgconn.pipeline_status:
                _insert_wake(db, wake)  # if it fails the group is repeated, with savepoints
            else:
                with db.transaction():
                    _insert_wake(db, wake)
            return
        except exceptions.AlreadyEnqueued:
            if db.pgconn.pipeline_status:
                raise
        except exceptions.ConnectorException as error:
            raise error.__cause__ or error from None


def _insert_wake(db: psycopg.Connection[Any], wake: Wake) -> None:
    _DEFERRER.configure_task(
        _TASK,
        lock=wake.key,
        queueing_lock=wake.key,
        queue=wake.queue,
        priority=wake.priority,
        connection=db,
    ).defer(tenant=wake.tenant, session=wake.session)


class _PatientConnector(PsycopgConnector):
    """Tries again while the database is away. After a job has ended its worker looks for the next:
    the one with the same lock may be free now."""

    def __init__(self, url: str, notices: NodeNotices) -> None:
        super().__init__(
            pool_factory=_make_pool,
            conninfo=add_limits(url),
            kwargs={"options": _OPTIONS},
            configure=_commit_statements,
            min_size=1,
            max_size=1,
            # The pool waits twice as long before each attempt: here the next one begins anew.
            timeout=_CONNECT_SECONDS,
            reconnect_timeout=_CONNECT_SECONDS / 2,
        )
        self._notices = notices
        self.worker: Worker | None = None
        self.tells_others = False
        self._tell_worker: Notify | None = None

    async def open_patiently(self) -> None:
        """Open the connection as soon as the database is there."""
        while True:
            try:
                return await self.open_async()
            except (exceptions.ConnectorException, psycopg.OperationalError) as error:
                log.warning("the queue cannot be reached: %s", error)
                await self.close_async()

    async def execute_query_async(self, query: Any, **arguments: Any) -> None:
        ends_job = "procrastinate_finish_job" in query
        if ends_job and self.worker is not None:
            query, arguments["worker_id"] = _FINISH, self.worker.worker_id
        await _retry_while_away(
            lambda: PsycopgConnector.execute_query_async(self, query, **arguments)
        )
        if not ends_job:
            return
        if self.tells_others:
            await self.tell_workers((TURNS,))
        elif self._tell_worker is not None:
            await self._tell_worker(channel="", payload=_NEWS)

    async def execute_query_one_async(self, query: Any, **arguments: Any) -> dict[str, Any]:
        run = PsycopgConnector.execute_query_one_async
        try:
            return await _retry_while_away(lambda: run(self, query, **arguments))
        except exceptions.ConnectorException as error:
            is_gone = isinstance(error.__cause__, psycopg.errors.ForeignKeyViolation)
            if not is_gone or self.worker is None:
                raise
        # The row of the worker was deleted; it goes on under another number.
        self.worker.worker_id = await self.worker.app.job_manager.register_worker()
        arguments["worker_id"] = self.worker.worker_id
        return await self.execute_query_one_async(query, **arguments)

    async def execute_query_all_async(self, query: Any, **arguments: Any) -> list[dict[str, Any]]:
        run = PsycopgConnector.execute_query_all_async
        return await _retry_while_away(lambda: run(self, query, **arguments))

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        """Tell the worker what the notices of the node bring, until cancelled."""
        self._tell_worker = on_notification
        arrived: asyncio.Queue[str] = asyncio.Queue()
        receive = arrived.put_nowait
        self._notices.listen(channels, receive)
        try:
            while True:
                payload = await arrived.get()
                with suppress(ValueError, KeyError, TypeError):  # anybody may send anything
                    await on_notification(channel="", payload=payload)
        finally:
            self._notices.forget(receive)

    async def tell_workers(self, queues: Iterable[str]) -> None:
        for queue in set(queues):
            channel = f"procrastinate_queue_v1#{queue}"
            await self.execute_query_all_async(
                "SELECT pg_notify(%(channel)s, %(payload)s)", channel=channel, payload=_NEWS
            )


async def _commit_statements(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.set_autocommit(True)


def _make_pool(**options: Any) -> AsyncConnectionPool[Any]:
    options["check"] = None  # a broken connection is noticed when it is used
    return AsyncConnectionPool(**options)


async def _retry_while_away(run: Callable[[], Awaitable[T]]) -> T:
    """A worker ends for good when a statement of it fails: also one that is refused for a while
    is repeated, because the database is read-only or the tables are made anew."""
    while True:
        try:
            return await run()
        except exceptions.ConnectorException as error:
            cause = error.__cause__
            if not isinstance(cause, psycopg.Error) or (cause.sqlstate or "")[:2] in _REFUSALS:
                raise
        except psycopg.OperationalError:
            pass
        await asyncio.sleep(_RETRY_SECONDS)


_REFUSALS = ("23", "P0")
"""Classes of SQLSTATE: what was asked for cannot be."""
_DEFERRER = App(connector=SyncPsycopgConnector())
_FIND_WAITING = (
    "SELECT 1 FROM public.procrastinate_jobs WHERE queueing_lock = %s AND status = 'todo' FOR SHARE"
)
_CLAIM = (
    " WHERE id = %(job_id)s AND status = 'doing' AND worker_id IS NOT DISTINCT FROM %(worker_id)s"
)
_FINISH = f"DELETE FROM procrastinate_jobs{_CLAIM}"
"""Not a job that others were given because this worker was late: it may wait, and wake the session
for what came when this worker had looked for the last time."""
_RELEASE = f"UPDATE procrastinate_jobs SET status = 'todo', attempts = attempts + 1{_CLAIM}"
_MOVE = (
    "UPDATE procrastinate_jobs SET queue_name = 'turns' WHERE status = 'todo'"
    " AND queue_name LIKE 'node:%%' AND NOT EXISTS (SELECT 1 FROM nodes n"
    " WHERE 'node:' || n.name = queue_name AND NOT n.draining AND is_alive(n.owner)) RETURNING id"
)

"""A thread that owns one connection; calls reach it in one hop and come back in one."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from hermes.core.errors import StoreError
from hermes.store import faults

if TYPE_CHECKING:
    from apsw import Connection, Error

T = TypeVar("T")
log = logging.getLogger(__name__)

Mode: TypeAlias = Literal["together", "alone", "detached"]
"""In a transaction with others; on the connection but in none; with the connection closed."""

GROUP = 256
"""Most jobs that share a transaction."""
EXIT_PATIENCE = 10.0
_OWN = ("ConstraintError", "TooBigError", "SQLError", "MismatchError", "RangeError", "AbortError")
"""Errors of one job; any other apsw.Error is the transaction's, or the file's."""


class Job:
    """One call: what to run, and whom to tell."""

    __slots__ = ("error", "future", "mode", "result", "run")

    def __init__(self, run: Callable[..., Any], mode: Mode) -> None:
        self.run = run
        self.mode = mode
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.result: Any = None
        self.error: Exception | None = None

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Worker:
    """Runs jobs in order, each on its own. The connection is opened when the first job needs it,
    and again after an error that makes it untrustworthy."""

    def __init__(self, path: Path, connect: Callable[[], Connection]) -> None:
        self._path = path
        self._connect = connect
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._db: Connection | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._closed = False

    # -- on the event loop ---------------------------------------------------------------------

    def submit(
        self, run: Callable[[Connection], T], *, mode: Literal["together", "alone"] = "together"
    ) -> asyncio.Future[T]:
        """The job happens even when nobody waits for it any more."""
        return self._put(Job(run, mode))

    def detached(self, run: Callable[[], T]) -> asyncio.Future[T]:
        """With the connection closed; the next job opens it again."""
        return self._put(Job(run, "detached"))

    def _put(self, job: Job) -> asyncio.Future[Any]:
        self.start()
        self._jobs.put(job)
        return job.future

    def start(self) -> None:
        if self._thread is not None and self._pid == os.getpid():
            if self._closed:
                raise StoreError("The store is closed; nothing was saved or lost.", "closed")
            return
        if self._thread is not None or self._closed:
            raise StoreError("The store is closed, or it was opened before a fork.", "closed")
        self._pid = os.getpid()
        # A daemon only so that the interpreter reaches `atexit`, which waits for it there.
        self._thread = threading.Thread(target=self._main, name="hermes-store", daemon=True)
        atexit.register(self._leave)
        self._thread.start()

    async def close(self) -> None:
        """Finish what was submitted, then let go of the file."""
        thread, self._closed = self._thread, True
        if thread is None or self._pid != os.getpid():
            return
        if thread.is_alive():
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._ended = done
            self._jobs.put(None)
            await asyncio.shield(done)
        thread.join()
        atexit.unregister(self._leave)

    _ended: asyncio.Future[None] | None = None

    def _leave(self) -> None:
        """At interpreter exit without `close`: what was submitted is still written."""
        self._closed = True
        if self._thread is not None and self._pid == os.getpid():
            self._jobs.put(None)
            self._thread.join(EXIT_PATIENCE)

    # -- on the thread -------------------------------------------------------------------------

    def _main(self) -> None:
        with suppress(Exception):  # whatever it is, the first job meets it and reports it
            self.connection()
        more = True
        while more:
            jobs: list[Job] = []
            more = self._take(jobs)
            self.serve(jobs)
            _deliver(jobs)
            del jobs
            if more:
                self.tidy()
        self.finish()
        self.drop()
        if self._ended is not None:
            _post(self._ended.get_loop(), _set, self._ended)

    def _take(self, jobs: list[Job]) -> bool:
        """Everything that waits; False when the end is reached."""
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == GROUP:
                return True
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return True
        return False

    def serve(self, jobs: list[Job]) -> None:
        for job in jobs:
            if not job.future.cancelled():
                self.single(job)

    def single(self, job: Job) -> None:
        import apsw

        try:
            if job.mode == "detached":
                self.drop()
                job.result = job.run()
            else:
                job.result = job.run(self.connection())
        except apsw.Error as error:
            job.error = self.blame(error)
        except Exception as error:  # noqa: BLE001 - the caller gets it; the thread goes on
            job.error = error

    def connection(self) -> Connection:
        if self._db is None:
            self._db = self._connect()
        return self._db

    def blame(self, error: Error) -> StoreError:
        """The error in words. A connection that met a failing disk is given up."""
        db = self._db
        fault = faults.explain(error, self._path, db.system_errno if db else 0)
        fault.__cause__ = error
        rollback(db)
        if fault.code in ("io", "damaged"):
            self.drop()
        return fault

    def drop(self) -> None:
        import apsw

        db, self._db = self._db, None
        if db is not None:
            with suppress(apsw.Error):
                db.close(True)

    def tidy(self) -> None:
        """Between jobs, nobody waiting."""

    def finish(self) -> None:
        """Before the connection is closed for good."""


class Writer(Worker):
    """All that waits at one moment becomes one transaction; each caller hears of its own job only
    after the commit. A job that fails takes back its own changes and nobody else's."""

    def __init__(
        self,
        path: Path,
        connect: Callable[[], Connection],
        upkeep: Callable[[Connection, bool], None],
    ) -> None:
        super().__init__(path, connect)
        self._upkeep = upkeep

    def serve(self, jobs: list[Job]) -> None:
        group: list[Job] = []
        for job in jobs:
            if job.mode != "together":
                self._together(group)
                group = []
                self.single(job)
            else:
                group.append(job)
        self._together(group)

    def _together(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        fault = self._transaction(jobs)
        if fault is None:
            return
        # A full disk may have room for some of them. After an I/O error the first try may have
        # reached the disk or not: jobs are written so that running them again tells.
        retry = fault.code == "io" or (fault.code == "full" and len(jobs) > 1)
        for job in jobs:
            job.error = self._transaction([job]) or job.error if retry else fault
        if fault.code == "io" and not self._settled():
            for job in jobs:
                job.error = job.error or fault

    def _settled(self) -> bool:
        """After a failed fsync only a complete checkpoint shows that what we read back is on the
        disk and not just in the cache."""
        import apsw

        try:
            self.connection().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            return True  # Others read or write: then nothing was read back, all was written anew.
        except (apsw.Error, StoreError):
            return False
        return True

    def _transaction(self, jobs: list[Job]) -> StoreError | None:
        """The failure of the whole, or None: then each job has its own result or error."""
        import apsw

        for job in jobs:
            job.error = job.result = None
        try:
            db = self.connection()
            db.execute("BEGIN IMMEDIATE")
            for job in jobs:
                if not self._step(db, job, nested=len(jobs) > 1):
                    return None
            db.execute("COMMIT")
        except apsw.Error as error:
            return self.blame(error)
        except StoreError as error:
            return error
        return None

    def _step(self, db: Connection, job: Job, *, nested: bool) -> bool:
        """Whether the transaction is still open."""
        import apsw

        if nested:
            db.execute("SAVEPOINT job")
        try:
            job.result = job.run(db)
        except Exception as error:
            if isinstance(error, apsw.Error) and (
                type(error).__name__ not in _OWN or not db.in_transaction
            ):
                raise
            job.error = error
            if isinstance(error, apsw.Error | OSError):
                job.error = faults.explain(error, self._path)
                job.error.__cause__ = error
            db.execute("ROLLBACK TO job" if nested else "ROLLBACK")
        if nested:
            db.execute("RELEASE job")
        return nested or job.error is None

    def tidy(self) -> None:
        if self._jobs.empty():
            self._keep_up(last=False)

    def finish(self) -> None:
        self._keep_up(last=True)

    def _keep_up(self, *, last: bool) -> None:
        import apsw

        if self._db is None:
            return
        try:
            self._upkeep(self._db, last)
        except apsw.Error as error:
            log.info("upkeep of the store was put off: %s", self.blame(error))


def rollback(db: Connection | None) -> None:
    import apsw

    if db is not None and db.in_transaction:
        with suppress(apsw.Error):
            db.execute("ROLLBACK")


def _deliver(jobs: list[Job]) -> None:
    """One wake-up per event loop, not per job."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, theirs in by_loop.items():
        _post(loop, _settle, theirs)


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., object], argument: object) -> None:
    # The loop may have been closed meanwhile: then nobody waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, argument)


def _settle(jobs: Iterable[Job]) -> None:
    for job in jobs:
        job.settle()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

"""A thread that owns one connection; calls reach it in one hop and come back in one."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from hermes.core.errors import StoreError
from hermes.store import errors as faults

if TYPE_CHECKING:
    from apsw import Connection, Error

T = TypeVar("T")

Mode: TypeAlias = Literal["together", "alone", "detached", "stop"]
"""In a transaction with others; on the connection but in none; with the connection closed; last."""

GROUP = 256
"""Most jobs taken at once."""
EXIT_PATIENCE = 10.0


class Job:
    """One call: what to run, and whom to tell."""

    __slots__ = ("bell", "error", "future", "mode", "result", "run")

    def __init__(self, run: Callable[..., Any], mode: Mode, bell: Bell) -> None:
        self.run = run
        self.mode = mode
        self.bell = bell
        self.future: asyncio.Future[Any] = bell.loop.create_future()
        self.result: Any = None
        self.error: Exception | None = None

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Bell:
    """Brings finished jobs back to their event loop.

    A pipe of our own: `call_soon_threadsafe` makes a handle, a context and an exception each
    time, which costs about as much as SQLite's share of an append.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._done: deque[Job] = deque()
        self._in, self._out = os.pipe()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        loop.add_reader(self._in, self._answer)

    def ring(self, jobs: list[Job]) -> None:
        self._done.extend(jobs)
        with suppress(BlockingIOError):  # full: it has been rung often enough
            os.write(self._out, b"!")

    def _answer(self) -> None:
        os.read(self._in, 4096)
        while self._done:
            self._done.popleft().settle()

    def close(self) -> None:
        with suppress(RuntimeError):  # the loop is closed already
            self.loop.remove_reader(self._in)
        os.close(self._in)
        os.close(self._out)


class Worker:
    """Runs jobs in order, each on its own. The connection is opened when the thread starts, and
    again after an error that makes it untrustworthy."""

    def __init__(self, path: Path, connect: Callable[[], Connection]) -> None:
        self._path = path
        self._connect = connect
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._bells: dict[asyncio.AbstractEventLoop, Bell] = {}
        self._db: Connection | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._closed = False
        self._last: asyncio.Future[None] | None = None

    # -- on the event loop ---------------------------------------------------------------------

    def submit(
        self, run: Callable[[Connection], T], *, mode: Literal["together", "alone"] = "together"
    ) -> asyncio.Future[T]:
        """The job happens even when nobody waits for it any more."""
        return self._put(run, mode)

    def detached(self, run: Callable[[], T]) -> asyncio.Future[T]:
        """With the connection closed; the next job opens it again."""
        return self._put(run, "detached")

    def start(self) -> None:
        """Begin to open the connection, without waiting."""
        if self._closed or (self._thread is not None and self._pid != os.getpid()):
            raise StoreError(
                "The store is closed, or was opened before a fork. Nothing was saved or lost.",
                "closed",
            )
        if self._thread is None:
            self._pid = os.getpid()
            # A daemon only so that the interpreter reaches `atexit`, which waits for it there.
            self._thread = threading.Thread(target=self._main, name="hermes-store", daemon=True)
            atexit.register(self._leave)
            self._thread.start()

    def _put(self, run: Callable[..., Any], mode: Mode) -> asyncio.Future[Any]:
        self.start()
        loop = asyncio.get_running_loop()
        bell = self._bells.get(loop)
        if bell is None:
            bell = self._bells[loop] = Bell(loop)
        job = Job(run, mode, bell)
        self._jobs.put(job)
        return job.future

    async def close(self) -> None:
        """Finish what was submitted, then let go of the file."""
        if self._thread is None or self._pid != os.getpid():
            self._closed = True
            return
        if self._last is None:
            self._last = self._put(_nothing, "stop")
            self._closed = True
        await asyncio.shield(self._last)
        self._thread.join()
        atexit.unregister(self._leave)
        while self._bells:
            self._bells.popitem()[1].close()

    def _leave(self) -> None:
        """At interpreter exit without `close`: what was submitted is still written."""
        if self._thread is not None and self._pid == os.getpid():
            self._jobs.put(None)
            self._thread.join(EXIT_PATIENCE)

    # -- on the thread -------------------------------------------------------------------------

    def _main(self) -> None:
        with suppress(Exception):  # whatever it is, the first job meets it and reports it
            self.connection()
        more, last = True, None
        while more:
            jobs: list[Job] = []
            more = self._take(jobs)
            last = jobs.pop() if jobs and jobs[-1].mode == "stop" else None
            try:
                self.serve(jobs)
            except Exception as error:  # noqa: BLE001 - a dead thread would leave callers waiting
                self.drop()
                for job in jobs:
                    job.error = error
            _deliver(jobs)
            del jobs
            self.tidy(last=not more)
        self.drop()
        if last is not None:
            last.bell.ring([last])

    def _take(self, jobs: list[Job]) -> bool:
        """Everything that waits; False when nothing will follow."""
        while (job := self._jobs.get()) is not None:
            jobs.append(job)
            if job.mode == "stop":
                return False
            if len(jobs) == GROUP or self._jobs.empty():
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
        except (apsw.Error, UnicodeDecodeError) as error:
            job.error = self.blame(error)
        except Exception as error:  # noqa: BLE001 - the caller gets it; the thread goes on
            job.error = error

    def connection(self) -> Connection:
        if self._db is None:
            self._db = self._connect()
        return self._db

    def blame(self, error: Error | UnicodeDecodeError) -> StoreError:
        """The error in words. A connection that met a failing disk is given up."""
        db = self._db
        fault = faults.explain(error, self._path, db.system_errno if db else 0)
        fault.__cause__ = error
        if db is not None:
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

    def tidy(self, *, last: bool) -> None:
        """After the callers were told; `last`: before the connection is closed for good."""


def rollback(db: Connection) -> None:
    import apsw

    if db.in_transaction:
        with suppress(apsw.Error):
            db.execute("ROLLBACK")


def _deliver(jobs: list[Job]) -> None:
    """One wake-up per event loop, not per job."""
    by_bell: dict[Bell, list[Job]] = {}
    for job in jobs:
        by_bell.setdefault(job.bell, []).append(job)
    for bell, theirs in by_bell.items():
        bell.ring(theirs)


def _nothing() -> None:
    pass

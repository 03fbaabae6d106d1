"""A thread that owns one connection; calls reach it in one hop and return in one."""

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
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from hermes.core.errors import StoreError
from hermes.store.errors import translate_error

if TYPE_CHECKING:
    from apsw import Connection, Error

T = TypeVar("T")
C = TypeVar("C")

Mode: TypeAlias = Literal["grouped", "alone", "detached", "stop"]
"""In a transaction shared with other jobs; outside any transaction; with the connection closed;
as the last job."""

MAX_GROUP = 256
"""Most jobs taken at once."""
EXIT_TIMEOUT = 10.0


class Job:
    """One call: what to run, and the future that gets its result."""

    __slots__ = ("completions", "error", "future", "mode", "result", "run")

    def __init__(self, run: Callable[..., Any], mode: Mode, completions: CompletionPipe) -> None:
        self.run = run
        self.mode = mode
        self.completions = completions
        self.future: asyncio.Future[Any] = completions.loop.create_future()
        self.result: Any = None
        self.error: Exception | None = None

    def resolve_future(self) -> None:
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class CompletionPipe:
    """Returns finished jobs to their event loop.

    A pipe of its own, because `call_soon_threadsafe` makes a handle, a context and an exception
    each time, which costs about as much as SQLite's share of an append.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._finished: deque[Job] = deque()
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        loop.add_reader(self._read_end, self._resolve_futures)

    def deliver(self, jobs: list[Job]) -> None:
        self._finished.extend(jobs)
        with suppress(BlockingIOError):  # full: the loop has enough to wake up for
            os.write(self._write_end, b"!")

    def _resolve_futures(self) -> None:
        os.read(self._read_end, 4096)
        while self._finished:
            self._finished.popleft().resolve_future()

    def close(self) -> None:
        with suppress(RuntimeError):  # the loop is closed already
            self.loop.remove_reader(self._read_end)
        os.close(self._read_end)
        os.close(self._write_end)


class JobThread(Generic[C]):
    """Runs jobs with its connection, in order."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._pipes: dict[asyncio.AbstractEventLoop, CompletionPipe] = {}
        self.failure: StoreError | None = None
        """Why the last job could not use the database."""
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._closed = False
        self._stopped: asyncio.Future[None] | None = None

    def submit(
        self, run: Callable[[C], T], *, mode: Literal["grouped", "alone"] = "grouped"
    ) -> asyncio.Future[T]:
        """The job runs even when its caller stops waiting."""
        return self.enqueue(run, mode)

    def start(self) -> None:
        """Start opening the connection, without waiting."""
        if self._closed or (self._thread is not None and self._pid != os.getpid()):
            raise StoreError(
                "The store is closed, or was opened before a fork. Nothing was saved or lost.",
                "closed",
            )
        if self._thread is None:
            self._pid = os.getpid()
            # A daemon, so that the interpreter reaches `atexit`, where the thread is waited for.
            self._thread = threading.Thread(target=self._run, name="hermes-store", daemon=True)
            atexit.register(self._finish_at_exit)
            self._thread.start()

    def enqueue(self, run: Callable[..., Any], mode: Mode) -> asyncio.Future[Any]:
        self.start()
        loop = asyncio.get_running_loop()
        pipe = self._pipes.get(loop)
        if pipe is None:
            pipe = self._pipes[loop] = CompletionPipe(loop)
        job = Job(run, mode, pipe)
        self._jobs.put(job)
        return job.future

    async def close(self) -> None:
        """Finish every submitted job, then release the file."""
        if self._thread is None or self._pid != os.getpid():
            self._closed = True
            return
        if self._stopped is None:
            self._stopped = self.enqueue(do_nothing, "stop")
            self._closed = True
        await asyncio.shield(self._stopped)
        self._thread.join()
        atexit.unregister(self._finish_at_exit)
        while self._pipes:
            self._pipes.popitem()[1].close()

    def _finish_at_exit(self) -> None:
        """When the interpreter exits without `close`, submitted jobs are still run."""
        if self._thread is not None and self._pid == os.getpid():
            self._jobs.put(None)
            self._thread.join(EXIT_TIMEOUT)

    def _run(self) -> None:
        with suppress(Exception):  # the first job meets the same error and reports it
            self.get_connection()
        has_more, stop = True, None
        while has_more:
            jobs: list[Job] = []
            has_more = self._take_jobs(jobs)
            stop = jobs.pop() if jobs and jobs[-1].mode == "stop" else None
            try:
                self.run_jobs(jobs)
            except Exception as error:  # noqa: BLE001 - a dead thread would leave callers waiting
                self.close_connection()
                for job in jobs:
                    job.error = error
            _deliver_results(jobs)
            del jobs
            self.do_upkeep(closing=not has_more)
        self.close_connection()
        if stop is not None:
            stop.completions.deliver([stop])

    def _take_jobs(self, jobs: list[Job]) -> bool:
        """Add all waiting jobs to the list; False when none will follow."""
        while (job := self._jobs.get()) is not None:
            jobs.append(job)
            if job.mode == "stop":
                return False
            if len(jobs) == MAX_GROUP or self._jobs.empty():
                return True
        return False

    def get_connection(self) -> C:
        """The open connection."""
        raise NotImplementedError

    def run_jobs(self, jobs: list[Job]) -> None:
        raise NotImplementedError

    def close_connection(self) -> None:
        raise NotImplementedError

    def do_upkeep(self, *, closing: bool) -> None:
        """Called when the results are delivered; `closing`: before the connection is closed."""


class DatabaseThread(JobThread["Connection"]):
    """Runs jobs one by one. The connection is opened when the thread starts, and again after an
    error that makes it untrustworthy."""

    def __init__(self, path: Path, connect: Callable[[], Connection]) -> None:
        super().__init__()
        self._path = path
        self._connect = connect
        self._db: Connection | None = None
        self._identity = (0, 0)
        """Of the open file: its device and number."""

    def run_without_connection(self, run: Callable[[], T]) -> asyncio.Future[T]:
        """Run with the connection closed; the next job opens it again."""
        return self.enqueue(run, "detached")

    def run_jobs(self, jobs: list[Job]) -> None:
        for job in jobs:
            if not job.future.cancelled():
                self.run_job(job)

    def run_job(self, job: Job) -> None:
        import apsw

        try:
            if job.mode == "detached":
                self.close_connection()
                job.result = job.run()
            else:
                job.result = job.run(self.get_connection())
        except (apsw.Error, UnicodeDecodeError) as error:
            job.error = self.handle_error(error)
        except Exception as error:  # noqa: BLE001 - the caller gets it; the thread continues
            job.error = error

    def get_connection(self) -> Connection:
        """The open connection. If another file is at its path by now, or none, it is left."""
        if self._db is not None and self.has_moved():
            self.close_connection()
        if self._db is None:
            try:
                self._db = self._connect()
            except StoreError as error:
                self.failure = error
                raise
            self._identity = self._find_identity()
            self.failure = None
        return self._db

    def has_moved(self) -> bool:
        """Whether the open file is not the one at the path any more: whatever is written to it
        would be lost."""
        return self._find_identity() != self._identity

    def _find_identity(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_dev, found.st_ino

    def handle_error(self, error: Error | UnicodeDecodeError) -> StoreError:
        """Translate the error and roll back; a connection that met a failing disk is closed."""
        db = self._db
        translated = translate_error(error, self._path, db.system_errno if db else 0)
        translated.__cause__ = error
        if db is not None:
            roll_back(db)
        if translated.code in ("io", "damaged"):
            self.close_connection()
        self.failure = translated
        return translated

    def close_connection(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            import apsw  # the import fails where too few files may be open: not before there is one

            with suppress(apsw.Error):
                db.close(True)


def roll_back(db: Connection) -> None:
    import apsw

    if db.in_transaction:
        with suppress(apsw.Error):
            db.execute("ROLLBACK")


def _deliver_results(jobs: list[Job]) -> None:
    """One wake-up per event loop, not per job."""
    by_pipe: dict[CompletionPipe, list[Job]] = {}
    for job in jobs:
        by_pipe.setdefault(job.completions, []).append(job)
    for pipe, finished in by_pipe.items():
        pipe.deliver(finished)


def do_nothing(*_: object) -> None:
    """A job without effect: to wait for the thread, or to have it open or close the file."""

"""The thread that writes: jobs waiting at the same moment are committed together."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hermes.core.errors import StoreError
from hermes.store.db_thread import DatabaseThread, Job
from hermes.store.errors import error_of_kind, translate_error

if TYPE_CHECKING:
    from apsw import Connection

log = logging.getLogger(__name__)

Upkeep: TypeAlias = "Callable[[Connection, bool], None]"
"""Work for when nothing else waits; the flag says that the connection is about to be closed."""
_JOB_ERRORS = frozenset(
    "ConstraintError TooBigError SQLError MismatchError RangeError AbortError".split()
)
"""Errors of a single job; any other apsw.Error concerns the transaction or the file."""


class WriterThread(DatabaseThread):
    """All jobs waiting at one moment become one transaction; callers get their results only after
    the commit. A job that fails undoes its own changes and no others."""

    def __init__(self, path: Path, connect: "Callable[[], Connection]", upkeep: Upkeep) -> None:
        super().__init__(path, connect)
        self._upkeep = upkeep

    def run_jobs(self, jobs: list[Job]) -> None:
        group: list[Job] = []
        for job in jobs:
            if job.mode != "grouped":
                self._run_group(group)
                group = []
                self.run_job(job)
            else:
                group.append(job)
        self._run_group(group)

    def _run_group(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        failure = self._run_transaction(jobs)
        if failure is None:
            return
        # A full disk may have room for some of them. After an I/O error the first attempt may or
        # may not have reached the disk: a job finds that out when it runs again.
        retry = failure.code == "io" or (failure.code == "full" and len(jobs) > 1)
        for job in jobs:
            job.error = self._run_transaction([job]) or job.error if retry else failure
        if failure.code == "io" and not self._complete_checkpoint():
            for job in jobs:
                job.error = job.error or failure

    def _complete_checkpoint(self) -> bool:
        """After a failed fsync, only a complete checkpoint proves that what was read back is on
        the disk and not just in the cache."""
        import apsw

        try:
            self.get_connection().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            return True  # Others read or write: then nothing was read back, all was rewritten.
        except (apsw.Error, StoreError):
            return False
        return True

    def _run_transaction(self, jobs: list[Job]) -> StoreError | None:
        """The failure of all of them, or None: then each job has its own result or error."""
        import apsw

        for job in jobs:
            job.error = job.result = None
        try:
            db = self.get_connection()
            db.execute("BEGIN IMMEDIATE")
            for job in jobs:
                if not self._run_in_transaction(db, job, nested=len(jobs) > 1):
                    return None
            db.execute("COMMIT")
            if self.has_moved():
                self.failure = error_of_kind("gone", self._path)
                return self.failure
            self.failure = None
        except apsw.Error as error:
            return self.handle_error(error)
        except StoreError as error:
            return error
        return None

    def _run_in_transaction(self, db: "Connection", job: Job, *, nested: bool) -> bool:
        """Run the job; whether the transaction is still open."""
        import apsw

        if nested:
            db.execute("SAVEPOINT job")
        try:
            job.result = job.run(db)
        except Exception as error:
            if isinstance(error, apsw.Error) and (
                type(error).__name__ not in _JOB_ERRORS or not db.in_transaction
            ):
                raise
            job.error = error
            if isinstance(error, apsw.Error | OSError):
                job.error = translate_error(error, self._path)
                job.error.__cause__ = error
            db.execute("ROLLBACK TO job" if nested else "ROLLBACK")
        if nested:
            db.execute("RELEASE job")
        return nested or job.error is None

    def do_upkeep(self, *, closing: bool) -> None:
        if self._db is None or not (closing or self._jobs.empty()):
            return
        import apsw  # as in close_connection

        try:
            self._upkeep(self._db, closing)
        except apsw.Error as error:
            log.info("upkeep of the store was put off: %s", self.handle_error(error))
        except Exception:
            log.exception("upkeep of the store failed")
            self.close_connection()

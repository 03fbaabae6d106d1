"""The thread that writes: whatever waits at one moment is committed together."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.core.errors import StoreError
from hermes.store import errors as faults
from hermes.store.db_thread import Job, Worker

if TYPE_CHECKING:
    from apsw import Connection

log = logging.getLogger(__name__)

_OWN = ("ConstraintError", "TooBigError", "SQLError", "MismatchError", "RangeError", "AbortError")
"""Errors of one job; any other apsw.Error is the transaction's, or the file's."""


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

    def tidy(self, *, last: bool) -> None:
        import apsw

        if self._db is None or not (last or self._jobs.empty()):
            return
        try:
            self._upkeep(self._db, last)
        except apsw.Error as error:
            log.info("upkeep of the store was put off: %s", self.blame(error))
        except Exception:
            log.exception("upkeep of the store failed")
            self.drop()

"""Keeping the ledger without making anybody wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hermes.core.ledger import By, Cap, Decide, Entry, Level, Row, Warned
from hermes.store import ledger
from hermes.store.process_locks import Owner

if TYPE_CHECKING:
    from apsw import Connection

    from hermes.store.writer_thread import Writer

T = TypeVar("T")
Waiting = list[tuple[Entry, bool]]
log = logging.getLogger(__name__)

PATIENCE = 0.25
"""Seconds a line waits for something else to be written with; a call that takes longer is
written as running, and is counted when this process is killed meanwhile."""


class Books:
    """Lines that nobody waits for are written with the next message, in its transaction, or soon
    by themselves. Of each call only the latest line waits."""

    def __init__(self, writer: Writer, owner: Owner) -> None:
        self._writer = writer
        self._owner = owner
        self._waiting: dict[int, tuple[Entry, bool]] = {}
        self._timer: asyncio.TimerHandle | None = None

    # -- what the runtime calls ----------------------------------------------------------------

    async def reserve(
        self, caps: Sequence[Cap], decide: Decide
    ) -> tuple[Entry | None, list[Level]]:
        """Cancelled while it waits: what it may still reserve is given back."""
        job = self._submit(lambda db: ledger.reserve(db, self._owner, caps, decide))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            job.add_done_callback(self._unwanted)
            raise

    def begin(self, entry: Entry) -> None:
        self._note(entry, running=True)

    def settle(
        self,
        entry: Entry,
        caps: Sequence[Cap] = (),
        told: Callable[[Sequence[Warned]], None] | None = None,
    ) -> None:
        if not caps or told is None:
            self._note(entry, running=False)
            return
        tell = told

        def done(job: asyncio.Future[list[Warned]]) -> None:
            if job.cancelled() or job.exception() is not None:
                log.warning("the ledger could not be written: %s", job.exception())
                self._note(entry, running=False)
            elif warned := job.result():
                tell(warned)

        self._submit(lambda db: ledger.settle(db, entry, caps)).add_done_callback(done)

    async def totals(self, by: By, since: float) -> list[Row]:
        def run(db: Connection) -> list[Row]:
            ledger.sweep(db, self._owner)
            return ledger.totals(db, by, round(since * 1e9))

        return await self._submit(run)

    # -- what the store calls ------------------------------------------------------------------

    def with_lines(
        self, run: Callable[[Connection], T]
    ) -> tuple[Callable[[Connection], T], Waiting]:
        """The job with everything that waits written before it, and what that is."""
        if not self._waiting:
            return run, []
        lines = list(self._waiting.values())
        self._waiting.clear()
        owner = self._owner

        def both(db: Connection) -> T:
            ledger.write(db, owner, lines)
            return run(db)

        return both, lines

    def give_back(self, lines: Waiting) -> None:
        """They could not be written; a later line of the same call counts."""
        for entry, running in lines:
            self._waiting.setdefault(entry.id, (entry, running))

    def flush(self) -> None:
        """Have written what waits, without waiting for it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            self._submit(_nothing).add_done_callback(_log_failure)

    # -- inside --------------------------------------------------------------------------------

    def _note(self, entry: Entry, *, running: bool) -> None:
        self._waiting[entry.id] = entry, running
        loop = asyncio.get_running_loop()
        # One that is long over belonged to a loop that ended before it was due.
        if self._timer is None or self._timer.when() < loop.time() - PATIENCE:
            self._timer = loop.call_later(PATIENCE, self.flush)

    def _submit(self, run: Callable[[Connection], T]) -> asyncio.Future[T]:
        both, lines = self.with_lines(run)
        job = self._writer.submit(both)
        if lines:
            job.add_done_callback(lambda done: self._written(done, lines))
        return job

    def _written(self, job: asyncio.Future[Any], lines: Waiting) -> None:
        if job.cancelled() or job.exception() is not None:
            self.give_back(lines)

    def _unwanted(self, job: asyncio.Future[tuple[Entry | None, list[Level]]]) -> None:
        entry = None if job.cancelled() or job.exception() is not None else job.result()[0]
        if entry is not None:
            self._submit(lambda db: ledger.release(db, entry)).add_done_callback(_log_failure)


def _log_failure(job: asyncio.Future[Any]) -> None:
    if not job.cancelled() and (error := job.exception()) is not None:
        log.warning("the ledger could not be written: %s", error)


def _nothing(db: Connection) -> None:
    return None

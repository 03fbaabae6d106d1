"""Sessions in one SQLite file: one writing connection, one reading, each on a thread of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hermes.core.errors import StoreError
from hermes.core.message import Message
from hermes.core.store import Hit, SessionMeta, State, Stored
from hermes.core.taint import Taint
from hermes.core.text import clean
from hermes.store import backup as copy
from hermes.store import codec as rows
from hermes.store import connection as connect
from hermes.store import errors as faults
from hermes.store import search
from hermes.store import session_queries as reads
from hermes.store import session_updates as writes
from hermes.store.db_thread import Worker, rollback
from hermes.store.ledger_writer import Books
from hermes.store.objects import SqliteObjects
from hermes.store.process_locks import Owner
from hermes.store.writer_thread import Writer

if TYPE_CHECKING:
    from apsw import Connection

    from hermes.store.salvage import Saved

T = TypeVar("T")
log = logging.getLogger(__name__)

LAST_BATCHES = 4
"""Indexed at most when closing; a search does the rest when it comes."""


class SqliteStore:
    """Nothing is opened by the constructor. `open` starts opening on the writer's thread; so does
    the first call, which then waits for it. Nobody but SQLite ever opens the database file."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = Path(path)
        self._clock = clock
        self._notices: list[str] = []
        self._opened = False
        self._unindexed = 0
        self._owner = Owner(self._path.parent / "run")
        self._writer = Writer(self._path, self._connect, self._upkeep)
        self._reader = Worker(self._path, partial(connect.reader, self._path))
        self.objects = SqliteObjects(self._writer.submit, self._read, clock)
        self.ledger = Books(self._writer, self._owner)

    def open(self) -> None:
        """Begin to open, without waiting. A failure is told to the first call that needs it."""
        self._writer.start()

    async def ready(self) -> tuple[str, ...]:
        await self._writer.submit(_nothing, mode="alone")
        return tuple(self._notices)

    # -- writing -------------------------------------------------------------------------------

    async def create(self, meta: SessionMeta) -> None:
        await self._writer.submit(partial(writes.create, meta=meta, now=self._clock()))

    async def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        state: State | None = None,
        create: SessionMeta | None = None,
        taint: Taint | None = None,
    ) -> None:
        now = self._clock()
        new = [(m.role, m.kind, now, rows.encode(m)) for m in messages]
        bits = taint.bits if taint is not None else 0
        call = writes.Append(clean(session_id), new, state, create, bits)

        def run(db: Connection) -> None:
            writes.append(db, self._owner, now, call)
            self._unindexed += len(new)

        await self._write(run)

    async def go_on(
        self, session_id: str, child: SessionMeta, messages: Sequence[Message], state: State
    ) -> None:
        now = self._clock()
        new = [(m.role, m.kind, now, rows.encode(m)) for m in messages]
        call = writes.Append(clean(child.id), new, state, child)

        def run(db: Connection) -> None:
            writes.go_on(db, self._owner, now, clean(session_id), call)
            self._unindexed += len(new)

        await self._writer.submit(run)

    async def set_state(self, session_id: str, state: State) -> None:
        run = partial(
            writes.set_state, owner=self._owner, session_id=clean(session_id), state=state
        )
        await self._write(run)

    async def describe(
        self, session_id: str, *, title: str | None = None, model: str | None = None
    ) -> None:
        run = partial(writes.describe, session_id=clean(session_id), title=title, model=model)
        await self._writer.submit(run)

    async def _write(self, run: Callable[[Connection], None]) -> None:
        """With the lines of the ledger that wait, in one transaction."""
        both, lines = self.ledger.with_lines(run)
        try:
            await self._writer.submit(both)
        except Exception:
            self.ledger.give_back(lines)
            raise

    async def delete(self, session_id: str) -> bool:
        run = partial(writes.delete, owner=self._owner, session_id=clean(session_id))
        try:
            return await self._writer.submit(run)
        except search.IndexDamaged:
            await self._mend()
            return await self._writer.submit(run)

    # -- reading -------------------------------------------------------------------------------

    async def meta(self, session_id: str) -> SessionMeta | None:
        return await self._read(
            partial(reads.meta, owner=self._owner, session_id=clean(session_id))
        )

    async def load(self, session_id: str) -> list[Message]:
        return await self._read(partial(reads.load, session_id=clean(session_id)))

    async def export(self, session_id: str) -> AsyncIterator[Stored]:
        after = -1
        while page := await self._read(
            partial(reads.page, session_id=clean(session_id), after=after)
        ):
            for stored in page:
                yield stored
            after = page[-1].seq

    async def sessions(
        self, *, limit: int = 50, cwd: str | None = None, source: str | None = None
    ) -> list[SessionMeta]:
        wanted = {"cwd": cwd, "source": source}
        return await self._read(
            partial(reads.sessions, owner=self._owner, wanted=wanted, limit=limit)
        )

    async def owned(self, owner: str, *, limit: int = 50, offset: int = 0) -> list[SessionMeta]:
        return await self._read(
            partial(reads.owned, owner=self._owner, whose=owner, page=(limit, offset))
        )

    async def latest(
        self, *, cwd: str | None = None, source: str | None = None, key: str | None = None
    ) -> SessionMeta | None:
        wanted = {"cwd": cwd, "source": source, "key": key}
        return await self._read(partial(reads.latest, owner=self._owner, wanted=wanted))

    async def find(self, prefix: str, *, limit: int = 20) -> list[SessionMeta]:
        return await self._read(partial(reads.find, owner=self._owner, prefix=prefix, limit=limit))

    async def search(self, query: str, *, limit: int = 20) -> list[Hit]:
        ask = partial(reads.hits, owner=self._owner, query=query, limit=limit)
        try:
            return await self._search(ask)
        except search.IndexDamaged:
            await self._mend()
        try:
            return await self._search(ask)
        except search.IndexDamaged as error:
            raise faults.fault("damaged", self._path, "its search index") from error

    async def _search(self, ask: Callable[..., list[Hit] | None]) -> list[Hit]:
        found = await self._read(ask)
        if found is None:
            while await self._writer.submit(_advance, mode="alone"):
                pass
            found = await self._read(partial(ask, wait=False))
        return found or []

    async def _mend(self) -> None:
        await self._writer.submit(search.rebuild, mode="alone")
        self._notices.append("The search index was damaged and has been rebuilt; nothing was lost.")

    async def _read(self, run: Callable[[Connection], T]) -> T:
        if not self._opened:
            await self.ready()
        return await self._reader.submit(run)

    # -- the file ------------------------------------------------------------------------------

    async def backup(self, path: str) -> None:
        await self._apart(partial(copy.backup, path=Path(path), run=self._path.parent / "run"))

    async def shrink(self) -> None:
        try:
            await self._reader.detached(_nothing)  # it would hold the old pages
            await self._writer.submit(partial(copy.shrink, owner=self._owner), mode="alone")
        except StoreError as error:
            log.info("the room of deleted sessions is given back later: %s", error)

    async def check(self) -> list[str]:
        return await self._apart(reads.check)

    async def _apart(self, run: Callable[[Connection], T]) -> T:
        """On a connection and thread of its own: it takes long, and other reads go on."""
        if not self._opened:
            await self.ready()
        worker = Worker(self._path, partial(connect.reader, self._path))
        try:
            return await worker.submit(run)
        finally:
            await worker.close()

    async def salvage(self) -> Saved:
        """Give a damaged database another name, and go on with what can be read of it. Only on
        request: nothing else ever moves or replaces the file."""
        from hermes.store.salvage import salvage

        self._opened = False
        await self._reader.detached(_nothing)
        return await self._writer.detached(partial(salvage, self._path, self._owner))

    async def close(self) -> None:
        """Write what was submitted, checkpoint, let go of the file."""
        await self._reader.close()
        self.ledger.flush()
        await self._writer.close()
        self._owner.release()

    # -- on the writer's thread ----------------------------------------------------------------

    def _connect(self) -> Connection:
        db = connect.writer(self._path, self._notices)
        self._opened = True
        return db

    def _upkeep(self, db: Connection, last: bool) -> None:
        """Indexing is put off until it is worth a transaction, and never waits for a lock."""
        if self._unindexed < (1 if last else search.BATCH):
            return
        db.set_busy_handler(None)
        try:
            for _ in range(LAST_BATCHES if last else 1):
                self._unindexed = self._unindexed - search.BATCH if _advance(db) else 0
                if self._unindexed <= 0:
                    break
        except search.IndexDamaged as error:
            self._unindexed = 0
            log.warning("the search index is damaged, the next search rebuilds it: %s", error)
        finally:
            db.set_busy_handler(connect.patience())


def _advance(db: Connection) -> bool:
    db.execute("BEGIN IMMEDIATE")
    try:
        more = search.advance(db)
        db.execute("COMMIT")
    finally:
        rollback(db)
    return more


def _nothing(*_: object) -> None:
    pass

"""The runs that nodes share, as the database of the cluster knows them: settings and shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from hermes.batch.dataset import BatchItem, Dataset, decode_items
from hermes.batch.run_folder import RunSettings
from hermes.core.errors import ConfigError
from hermes.store.postgres.database import TenantDatabase
from hermes.store.postgres.engine import BATCH, Wake, defer_wake

if TYPE_CHECKING:
    from hermes.store.postgres.connection import PostgresConnection
    from hermes.store.postgres.store import PostgresStore

QUEUE = BATCH
SHARD_ITEMS = 50
_PRIORITY = -100
_RUN_KIND, _SHARD_KIND, _HOLDER_KIND = "batch_run", "batch_shard", "batch_holder"
ShareState: TypeAlias = Literal["running", "stopped", "over_budget"]


class SharedRun(Struct, frozen=True):
    """A run as its nodes see it."""

    settings: RunSettings
    state: ShareState = "running"


class RunCounts(Struct, frozen=True):
    ended: int
    failed: int
    cost: float
    shards: int
    """How many are not finished."""
    workers: int
    """The nodes that could take one."""


class ShardTable:
    """The shards of one run that are not finished. Each is held by one living node at a time and
    waked by a job in the queue `batch`."""

    def __init__(self, store: PostgresStore, name: str) -> None:
        self._objects = store.objects
        self._rows = TenantDatabase(store.database, None)
        self._name = name

    async def open_run(self, settings: RunSettings, dataset: Dataset) -> None:
        """Let nodes work on the run. ConfigError when the name means another run."""
        known = await self.find_run()
        if known is not None:
            before = Dataset(dataset.items[: known.settings.items])
            if before.digest != known.settings.dataset:
                raise ConfigError(
                    f"The cluster has a run {self._name} with another dataset. Nothing was "
                    "started; give another --name."
                )
        await self._put_run(SharedRun(settings))

    async def find_run(self) -> SharedRun | None:
        found = await self._objects.get(_RUN_KIND, self._name, owner=self._name)
        return msgspec.json.decode(found.body, type=SharedRun) if found is not None else None

    async def change_state(self, state: ShareState) -> None:
        """Nodes take no further items of a run that is not `running`."""
        run = await self.find_run()
        if run is not None:
            await self._put_run(structs.replace(run, state=state))

    async def _put_run(self, run: SharedRun) -> None:
        await self._objects.put(_RUN_KIND, self._name, msgspec.json.encode(run), owner=self._name)

    async def add_shards(self, shards: Mapping[int, Sequence[BatchItem]]) -> None:
        """Store the shards, and wake workers for them."""
        for number, items in shards.items():
            body = Dataset(tuple(items)).encode_items()
            await self._objects.put(_SHARD_KIND, self._make_id(number), body, owner=self._name)
            await self.wake_shard(number)

    async def renew_wakes(self) -> None:
        """Wake workers for shards that no job is there for."""

        def defer_lost(db: PostgresConnection) -> None:
            for (id,) in db.execute(_FIND_UNWAKED, (_SHARD_KIND, self._name)).fetchall():
                self._wake_inside(db, int(id.rpartition("/")[2]))

        await self._rows.writer.submit(defer_lost)

    async def wake_shard(self, number: int) -> None:
        await self._rows.writer.submit(lambda db: self._wake_inside(db, number))

    def _wake_inside(self, db: PostgresConnection, number: int) -> None:
        defer_wake(db.db, Wake(db.tenant, f"batch/{self._make_id(number)}", QUEUE, _PRIORITY))

    async def load_shard(self, number: int) -> tuple[BatchItem, ...] | None:
        found = await self._objects.get(_SHARD_KIND, self._make_id(number), owner=self._name)
        return decode_items(found.body).items if found is not None else None

    async def claim_shard(self, number: int) -> bool:
        """Whether this node holds the shard now. Another one keeps it until it is held for dead."""
        me = self._rows.process.acquire().encode()
        id = self._make_id(number)

        def claim_row(db: PostgresConnection) -> bool:
            db.execute(_CLAIM, (_HOLDER_KIND, id, self._name, me))
            return bool(db.changes())

        return await self._rows.writer.submit(claim_row)

    async def release_shard(self, number: int) -> None:
        """Let another node go on with it."""

        def release_row(db: PostgresConnection) -> None:
            self._remove_object(db, _HOLDER_KIND, number)
            self._wake_inside(db, number)

        await self._rows.writer.submit(release_row)

    async def end_shard(self, number: int) -> None:
        """Nothing of it is left to do, or the run was stopped."""

        def remove_rows(db: PostgresConnection) -> None:
            self._remove_object(db, _SHARD_KIND, number)
            self._remove_object(db, _HOLDER_KIND, number)

        await self._rows.writer.submit(remove_rows)

    async def remove_waiting(self) -> None:
        """Remove the shards that no node has begun."""
        sql = (
            "DELETE FROM objects WHERE kind = ?1 AND owner = ?2 AND NOT EXISTS (SELECT 1"
            " FROM objects h WHERE h.kind = ?3 AND h.id = objects.id)"
        )
        values = (_SHARD_KIND, self._name, _HOLDER_KIND)
        await self._rows.writer.submit(lambda db: db.execute(sql, values).fetchall())

    async def count_progress(self, record_kind: str) -> RunCounts:
        values = (record_kind, self._name, b'"state":"failed"', _SHARD_KIND)

        def count_rows(db: PostgresConnection) -> RunCounts:
            row = db.execute(_COUNT, values).fetchone()
            assert row is not None
            return RunCounts(*row)

        return await self._rows.read(count_rows)

    def _remove_object(self, db: PostgresConnection, kind: str, number: int) -> None:
        sql = "DELETE FROM objects WHERE kind = ? AND id = ? AND owner = ?"
        db.execute(sql, (kind, self._make_id(number), self._name))

    def _make_id(self, number: int) -> str:
        return f"{self._name}/{number}"


def find_shard(wake: Wake) -> tuple[str, int]:
    """The run and the number of the shard that a wake is for."""
    name, _, number = wake.session.removeprefix("batch/").rpartition("/")
    return name, int(number)


def split_items(
    items: Sequence[BatchItem], ended: Mapping[str, object]
) -> dict[int, list[BatchItem]]:
    """The shards that have items to answer, whole: their numbers stay the same."""
    shards = {
        first // SHARD_ITEMS: list(items[first : first + SHARD_ITEMS])
        for first in range(0, len(items), SHARD_ITEMS)
    }
    return {n: part for n, part in shards.items() if any(i.id not in ended for i in part)}


async def is_waiting(store: PostgresStore) -> bool:
    """Whether a shard of any run waits for a node."""
    sql = (
        "SELECT 1 FROM public.procrastinate_jobs WHERE queue_name = %s AND status = 'todo' LIMIT 1"
    )
    return await store.database.read(lambda db: db.db.execute(sql, (QUEUE,)).fetchone() is not None)


_CLAIM = (
    "INSERT INTO objects AS o (kind, id, owner, created, used, body)"
    " VALUES (?1, ?2, ?3, extract(epoch FROM now())::float8, 0, ?4)"
    " ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body WHERE o.body = excluded.body"
    " OR NOT EXISTS (SELECT 1 FROM public.nodes n WHERE n.owner = convert_from(o.body, 'UTF8')"
    " AND NOT n.condemned)"
)
_FIND_UNWAKED = (
    "SELECT id FROM objects o WHERE kind = ? AND owner = ? AND NOT EXISTS (SELECT 1"
    " FROM public.procrastinate_jobs j WHERE j.lock = 'shard:'"
    " || current_setting('hermes.tenant') || '/batch/' || o.id AND j.status IN ('todo', 'doing'))"
)
_COUNT = (
    "SELECT count(*), count(*) FILTER (WHERE position(?3::bytea IN body) > 0),"
    " coalesce((SELECT usd FROM spent WHERE scope = 'session:batch:' || ?2), 0),"
    " (SELECT count(*) FROM objects WHERE kind = ?4 AND owner = ?2),"
    " (SELECT count(*) FROM public.nodes n WHERE NOT n.draining AND public.is_alive(n.owner)"
    " AND n.roles LIKE '%worker%') FROM objects WHERE kind = ?1 AND owner = ?2"
)

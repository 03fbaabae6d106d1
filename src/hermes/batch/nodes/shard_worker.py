"""A node's part in the runs of a cluster: takes shards of items and answers them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs
from typing_extensions import override

from hermes.app.runtime import Runtime
from hermes.batch.dataset import BatchItem
from hermes.batch.nodes.shard_table import QUEUE, ShardTable, SharedRun, find_shard, is_waiting
from hermes.batch.nodes.shared_rate import SharedRate
from hermes.batch.rate_limit import CallLimit, Rates
from hermes.batch.results import Results
from hermes.batch.run_folder import RunSettings
from hermes.batch.runner import ItemRunner
from hermes.batch.workspace import open_workspaces
from hermes.config.load import Setup
from hermes.core.errors import StoreError
from hermes.store.postgres.engine import ProcrastinateEngine
from hermes.store.tables.tenancy import enter_tenant

if TYPE_CHECKING:
    from hermes.app.cluster.node import ClusterNode
    from hermes.store.postgres.engine import Wake

log = logging.getLogger(__name__)
_SHARDS = 2
"""At a time: while the last items of one are answered, the next has begun."""
_LOOK_SECONDS = 10.0
_CLAIM_SECONDS = 0.5
_STATE_SECONDS = 1.0


class ShardRunner(ItemRunner):
    """Answers items on a node; the run's limits hold over all nodes."""

    def __init__(self, setup: Setup, settings: RunSettings, node: ClusterNode, place: Path) -> None:
        self._node = node
        super().__init__(setup, settings, node.store, place)

    @override
    def make_limit(self) -> CallLimit | None:
        rpm, tpm = self._settings.rpm, self._settings.tpm
        if rpm is None and tpm is None:
            return None
        return SharedRate(self._node.store, self.name, Rates.per_minute(rpm, tpm))

    @override
    def prepare_runtime(self, runtime: Runtime) -> None:
        super().prepare_runtime(runtime)
        runtime.agents.cooldowns.shared = self._node.keys


class ShardWorker:
    """Works on the queue `batch` until it is drained."""

    def __init__(self, setup: Setup, node: ClusterNode, url: str) -> None:
        """`url`: of the cluster's database."""
        self._setup = setup
        self._node = node
        self._url = url
        self._engine: ProcrastinateEngine | None = None
        self._runners: set[ShardRunner] = set()
        self._places: dict[str, Path] = {}
        self._stack = ExitStack()
        self._draining = asyncio.Event()
        self._free = asyncio.Event()
        """Set while no item runs here."""
        self._free.set()
        self._turns: dict[str, asyncio.Semaphore] = {}

    async def work_on_demand(self) -> None:
        """Take shards whenever some wait; no connection is opened before."""
        while not self._draining.is_set():
            try:
                if await is_waiting(self._node.store):
                    await self.work(until_idle=True)
            except Exception as error:  # noqa: BLE001 - the database is away; the next look is due
                log.warning("batches could not be looked for: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._draining.wait()

    async def work(self, *, until_idle: bool) -> None:
        """Take shards until told to take nothing more, or until none is left."""
        seconds, notices = self._node.lease.seconds, self._node.notices
        self._engine = engine = ProcrastinateEngine(self._url, seconds, notices)
        if self._draining.is_set():
            return
        reaping = asyncio.create_task(self._reap(engine))
        try:
            await engine.run(
                self._answer_wake, queues=(QUEUE,), turns=_SHARDS, until_idle=until_idle
            )
        finally:
            reaping.cancel()
            await asyncio.wait({reaping})

    def take_nothing(self) -> None:
        """Take nothing more; items that run are finished, the others left to other nodes."""
        self._draining.set()
        for runner in self._runners:
            runner.stopping.set()
        if self._engine is not None:
            self._engine.drain()

    async def wait_until_free(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._free.wait()
        self._stack.close()

    async def _reap(self, engine: ProcrastinateEngine) -> None:
        """Let others have the shards of workers that died."""
        while True:
            await asyncio.sleep(self._node.lease.seconds / 2)
            try:
                await engine.reap()
            except Exception as error:  # noqa: BLE001 - the database is away; the next look is due
                log.warning("shards of dead nodes could not be looked for: %s", error)

    async def _answer_wake(self, wake: Wake) -> None:
        name, number = find_shard(wake)
        with enter_tenant(wake.tenant):
            table = ShardTable(self._node.store, name)
            while (items := await table.load_shard(number)) is not None:
                if self._draining.is_set():
                    await table.wake_shard(number)
                    return
                run = await table.find_run()
                if await table.claim_shard(number):
                    await self._run_shard(table, number, items, run)
                    return
                await asyncio.sleep(_CLAIM_SECONDS)

    async def _run_shard(
        self,
        table: ShardTable,
        number: int,
        items: tuple[BatchItem, ...],
        run: SharedRun | None,
    ) -> None:
        if run is not None and run.state == "running":
            settings = run.settings
            slots = 1 if settings.concurrency == 1 else _SHARDS
            turns = self._turns.setdefault(settings.name, asyncio.Semaphore(slots))
            async with turns:
                await self._answer_items(table, items, settings)
        if self._draining.is_set():
            await table.release_shard(number)
        else:
            await table.end_shard(number)

    async def _answer_items(
        self, table: ShardTable, items: tuple[BatchItem, ...], settings: RunSettings
    ) -> None:
        results = Results(self._node.store, settings.name)
        todo = [item for item in items if not await results.has_ended(item)]
        own = structs.replace(settings, concurrency=max(1, settings.concurrency // _SHARDS))
        runner = ShardRunner(self._setup, own, self._node, self._find_place(settings.name))
        self._runners.add(runner)
        self._free.clear()
        watching = asyncio.create_task(_watch_state(table, runner))
        try:
            await runner.run_items(todo)
            if runner.progress.over_budget:
                await table.change_state("over_budget")
        finally:
            self._runners.discard(runner)
            if not self._runners:
                self._free.set()
            watching.cancel()
            await asyncio.wait({watching})

    def _find_place(self, name: str) -> Path:
        """The folder for the workspaces of a run, as long as this process lives."""
        if name not in self._places:
            self._places[name] = self._stack.enter_context(open_workspaces(name))
        return self._places[name]


async def _watch_state(table: ShardTable, runner: ShardRunner) -> None:
    """Take no further items when the run is stopped or has used up its budget."""
    while True:
        with suppress(StoreError):
            run = await table.find_run()
            if run is None or run.state != "running":
                runner.stopping.set()
        await asyncio.sleep(_STATE_SECONDS)

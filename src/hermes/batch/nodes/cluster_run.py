"""A run whose items the nodes of a cluster answer: begins it, waits for it, writes its files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from hermes.batch.coordinator import RunEnd, finish_run
from hermes.batch.dataset import BatchItem, Dataset, read_prefill
from hermes.batch.nodes.run_store import open_run_store
from hermes.batch.nodes.shard_table import RunCounts, ShardTable, split_items
from hermes.batch.results import RECORD_KIND, Results
from hermes.batch.run_folder import RunFolder, RunSettings
from hermes.batch.runner import RunProgress
from hermes.config.load import Setup
from hermes.core.store import Store

_LOOK_SECONDS = 1.0
_RENEW_LOOKS = 10
NO_WORKER = (
    "No node takes batches at the moment; nothing is lost. Start one: hermes worker --queues batch"
)


class ClusterCoordinator:
    """Answers nothing itself: what is to be done and what was done are in the database, and nodes
    go on without it."""

    def __init__(
        self,
        setup: Setup,
        folder: RunFolder,
        settings: RunSettings,
        say: Callable[[str], None],
    ) -> None:
        """`say`: tells the person who waits something."""
        self._setup = setup
        self._folder = folder
        self._settings = settings
        self._say = say
        self._stopping = asyncio.Event()
        self.progress = RunProgress()

    def stop(self) -> None:
        """Have nodes take no further items; those that run are finished."""
        self._stopping.set()

    async def run(self) -> RunEnd:
        """Wait until all items are answered, and write the files of the run."""
        dataset = self._folder.read_items()
        async with open_run_store(self._setup, self._folder, self._settings) as store:
            await self._run_rounds(store, dataset)
            results = Results(store, self._settings.name)
            return await finish_run(
                self._folder,
                self._settings,
                {item.id: item for item in dataset.items},
                results,
                stopped=self._stopping.is_set(),
                over_budget=self.progress.over_budget,
            )

    async def _run_rounds(self, store: Store, dataset: Dataset) -> None:
        """The second round is for what a node could not answer at all."""
        from hermes.store.postgres.store import PostgresStore

        assert isinstance(store, PostgresStore)
        table = ShardTable(store, self._settings.name)
        results = Results(store, self._settings.name)
        items = self._add_prefill(dataset)
        for _ in range(2):
            ended = await results.read_records()
            shards = split_items(items, ended)
            if not shards or self._stopping.is_set() or self.progress.over_budget:
                return
            self.progress.total = len(items) - len(ended)
            await table.open_run(structs.replace(self._settings, prefill=""), dataset)
            await table.add_shards(shards)
            await self._wait_for_shards(table, len(ended))

    def _add_prefill(self, dataset: Dataset) -> tuple[BatchItem, ...]:
        """Nodes do not have the file."""
        if not self._settings.prefill:
            return dataset.items
        first = read_prefill(Path(self._settings.prefill))
        return tuple(structs.replace(i, past=(*first, *i.past)) for i in dataset.items)

    async def _wait_for_shards(self, table: ShardTable, before: int) -> None:
        looks, was_told = 0, False
        while True:
            counts = await table.count_progress(RECORD_KIND)
            self._note_progress(counts, before)
            run = await table.find_run()
            if run is not None and run.state == "over_budget":
                self.progress.over_budget = True
            if self._stopping.is_set() and run is not None and run.state == "running":
                await table.change_state("stopped")
            if self._stopping.is_set() or self.progress.over_budget:
                await table.remove_waiting()
            if not counts.shards:
                return
            if not counts.workers and not was_told:
                self._say(NO_WORKER)
                was_told = True
            looks += 1
            if looks % _RENEW_LOOKS == 0:
                await table.renew_wakes()
            await asyncio.sleep(_LOOK_SECONDS)

    def _note_progress(self, counts: RunCounts, before: int) -> None:
        self.progress.failed = counts.failed
        self.progress.done = counts.ended - before - counts.failed
        self.progress.cost = counts.cost

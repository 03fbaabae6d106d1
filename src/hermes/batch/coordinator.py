"""Begins, continues and ends runs: one coordinator, and as many further processes as wanted."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from hermes.batch.dataset import BatchItem, Dataset
from hermes.batch.export import export_run
from hermes.batch.results import Results
from hermes.batch.run_folder import RunFolder, RunSettings, create_run
from hermes.batch.runner import ItemRunner, RunProgress
from hermes.batch.workspace import open_workspaces
from hermes.config.load import Setup
from hermes.config.private_files import replace_file
from hermes.core.errors import ConfigError
from hermes.core.store import Store
from hermes.store.sqlite import SqliteStore

_CLAIM_KIND = "batch_claim"
_REPORT_SECONDS = 0.5
_CHANGEABLE = frozenset(
    "max_usd item_usd item_seconds rpm tpm retries concurrency processes formats hidden".split()
)
"""What another run or resume of the same name may change."""


class RunEnd(Struct, frozen=True):
    """What there is of a run when its process ends."""

    items: int
    complete: int
    """Done or filtered."""
    stopped: bool
    over_budget: bool

    @property
    def exit_code(self) -> int:
        """0: all are done; 3: some are not, or it was stopped; 1: none is."""
        if self.complete == self.items:
            return 0
        return 3 if self.complete or self.stopped or self.over_budget else 1


def begin_run(
    home: Path,
    settings: RunSettings,
    output: str,
    dataset: Dataset,
    *,
    extend: bool,
    hidden: Sequence[Path],
) -> tuple[RunFolder, RunSettings]:
    """The folder and the settings of a run that is new, or goes on with the same dataset. `hidden`:
    what its items may not see."""
    folder = create_run(home, settings.name, output)
    settings = structs.replace(
        settings,
        dataset=dataset.digest,
        items=len(dataset.items),
        hidden=folder.list_hidden(hidden),
    )
    if (pid := folder.find_runner()) is not None:
        raise ConfigError(f"The run is going on already (pid {pid}).")
    if (folder.path / "run.json").exists():
        settings = _check_same_run(folder, settings, dataset, extend=extend)
    replace_file(folder.items_file, dataset.encode_items())
    folder.write_settings(settings)
    return folder, settings


def _check_same_run(
    folder: RunFolder, settings: RunSettings, dataset: Dataset, *, extend: bool
) -> RunSettings:
    known = folder.read_settings()
    if known.dataset != dataset.digest:
        before = folder.read_items().items
        grown = dataset.items[: len(before)] == before
        if not (extend and grown):
            reason = "its first items are others" if extend else "--extend adds items to a run"
            raise ConfigError(
                f"The run {known.name} has another dataset ({reason}). Nothing was changed; give "
                "another --name."
            )
        known = structs.replace(known, dataset=dataset.digest, items=len(dataset.items))
    for field in structs.fields(RunSettings):
        if field.name not in _CHANGEABLE and getattr(known, field.name) != getattr(
            settings, field.name
        ):
            raise ConfigError(
                f"The run {known.name} was begun with another {field.name.replace('_', '-')}. "
                "Nothing was changed; give another --name."
            )
    return settings


async def finish_run(
    folder: RunFolder,
    settings: RunSettings,
    items: Mapping[str, BatchItem],
    results: Results,
    *,
    stopped: bool,
    over_budget: bool,
) -> RunEnd:
    """Write the files of a run, and say what there is of it."""
    await export_run(folder, settings, items, results)
    records = await results.read_records()
    states = [record.state for record in records.values()]
    complete = states.count("done") + states.count("filtered")
    return RunEnd(len(items), complete, stopped, over_budget)


class Coordinator:
    """One per run and machine; it holds the run's lock."""

    def __init__(
        self,
        setup: Setup,
        folder: RunFolder,
        settings: RunSettings,
        worker_command: Callable[[str], Sequence[str]],
    ) -> None:
        """`worker_command`: the command line of a further process, for an epoch of claims."""
        self._setup = setup
        self._folder = folder
        self._settings = settings
        self._worker_command = worker_command
        self._runner: ItemRunner | None = None
        self._children: list[asyncio.subprocess.Process] = []
        self._shares: list[RunProgress] = []
        """What the further processes have done."""
        self._readers: list[asyncio.Task[None]] = []
        self._total = 0
        self._stopping = False

    @property
    def progress(self) -> RunProgress:
        """That of all processes together."""
        shares = [*self._shares, *([self._runner.progress] if self._runner else ())]
        return RunProgress(
            self._total,
            sum(share.done for share in shares),
            sum(share.failed for share in shares),
            sum(share.cost for share in shares),
            sum(share.tokens for share in shares),
            any(share.over_budget for share in shares),
        )

    def stop(self) -> None:
        """Take no further items; those that run are finished."""
        self._stopping = True
        if self._runner is not None:
            self._runner.stopping.set()
        for child in self._children:
            if child.returncode is None:
                child.send_signal(signal.SIGINT)

    async def run(self) -> RunEnd:
        """Answer all items that are not answered yet, and write the files of the run."""
        dataset = self._folder.read_items()
        store = SqliteStore(self._folder.database)
        try:
            await store.wait_until_open()
            await self._run_rounds(store, dataset)
            return await finish_run(
                self._folder,
                self._settings,
                {item.id: item for item in dataset.items},
                Results(store, self._settings.name),
                stopped=self._stopping,
                over_budget=self.progress.over_budget,
            )
        finally:
            await store.close()

    async def _run_rounds(self, store: Store, dataset: Dataset) -> None:
        """The second round is for what a process that died had claimed."""
        results = Results(store, self._settings.name)
        for processes in (self._settings.processes, 1):
            ended = await results.read_records()
            todo = [item for item in dataset.items if item.id not in ended]
            if not todo or self._stopping or self.progress.over_budget:
                return
            await self._run_round(store, todo, processes)

    async def _run_round(self, store: Store, todo: Sequence[BatchItem], processes: int) -> None:
        claims = ClaimTable(store, self._settings.name)
        await claims.clear()
        with open_workspaces(self._settings.name) as place:
            claim = claims.claim_item if processes > 1 else None
            rate_file = self._folder.rate_file
            rate_file.unlink(missing_ok=True)
            shared = rate_file if processes > 1 else None
            self._runner = ItemRunner(self._setup, self._settings, store, place, claim, shared)
            self._total, self._shares = len(todo), []
            if self._stopping:
                return
            for _ in range(processes - 1):
                await self._start_child()
            try:
                await self._runner.run_items(todo)
            finally:
                await self._end_children()
                rate_file.unlink(missing_ok=True)

    async def _start_child(self) -> None:
        child = await asyncio.create_subprocess_exec(
            *self._worker_command(self._settings.name),
            stdin=asyncio.subprocess.PIPE,  # its end tells the child that we are gone
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._children.append(child)
        self._shares.append(RunProgress())
        self._readers.append(asyncio.create_task(self._follow_child(child, len(self._shares) - 1)))

    async def _follow_child(self, child: asyncio.subprocess.Process, place: int) -> None:
        """Note what the child says that it has done, until it has ended."""
        assert child.stdout is not None
        while line := await child.stdout.readline():
            with suppress(msgspec.DecodeError):
                self._shares[place] = msgspec.json.decode(line, type=RunProgress)

    async def _end_children(self) -> None:
        for child in self._children:
            await child.wait()
            if child.stdin is not None:
                child.stdin.close()
        if self._readers:
            await asyncio.wait(self._readers, timeout=_REPORT_SECONDS)
        for reader in self._readers:  # what a child started may have its stdout still
            reader.cancel()
        self._children.clear()
        self._readers.clear()


class ClaimTable:
    """Which process does which item, where several work on one run."""

    def __init__(self, store: Store, name: str) -> None:
        self._objects = store.objects
        self._name = name
        self._owner = f"{os.getpid()}.{secrets.token_hex(4)}".encode()

    async def clear(self) -> None:
        for found in await self._objects.list_all(_CLAIM_KIND, owner=self._name):
            await self._objects.remove(_CLAIM_KIND, found.id, owner=self._name)

    async def claim_item(self, item: BatchItem) -> bool:
        return await self._objects.add(_CLAIM_KIND, item.id, self._owner, owner=self._name)


async def run_worker(
    setup: Setup,
    folder: RunFolder,
    stop: asyncio.Event,
    report: Callable[[RunProgress], None],
) -> None:
    """A further process of a run: claims items and answers them until none is left. `report` is
    told now and then what it has done."""
    settings = folder.read_settings()
    dataset = folder.read_items()
    store = SqliteStore(folder.database)
    try:
        await store.wait_until_open()
        ended = await Results(store, settings.name).read_records()
        todo = [item for item in dataset.items if item.id not in ended]
        claims = ClaimTable(store, settings.name)
        with open_workspaces(settings.name) as place:
            claim = claims.claim_item
            runner = ItemRunner(setup, settings, store, place, claim, folder.rate_file)
            runner.stopping = stop
            reporting = asyncio.create_task(_report_often(runner, report))
            try:
                await runner.run_items(todo)
            finally:
                reporting.cancel()
            report(runner.progress)
    finally:
        await store.close()


async def _report_often(runner: ItemRunner, report: Callable[[RunProgress], None]) -> None:
    while True:
        await asyncio.sleep(_REPORT_SECONDS)
        report(runner.progress)


def encode_progress(progress: RunProgress, seconds: float) -> bytes:
    """One line of JSON for programs that watch a run."""
    ended = progress.done + progress.failed
    rate = ended / seconds if seconds else 0.0
    left = (progress.total - ended) / rate if rate else None
    row = {
        "items": progress.total,
        "done": progress.done,
        "failed": progress.failed,
        "items_per_second": round(rate, 2),
        "cost_usd": round(progress.cost, 6),
        "eta_seconds": None if left is None else round(left),
    }
    return msgspec.json.encode(row)

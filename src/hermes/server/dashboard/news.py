"""What happens outside sessions, for the operator's pages: messengers, budget, settings, jobs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from hermes.app.control.messengers import Messengers
from hermes.app.live.log_records import LogFollower, RecordFilter, read_tail
from hermes.app.live.usage import describe_budget
from hermes.app.runtime import Runtime
from hermes.config import paths
from hermes.config.load import hash_source, read_config, read_source
from hermes.core.errors import HermesError

log = logging.getLogger(__name__)
POLL_SECONDS = 1.0
_BUDGET_ROUNDS = 5
"""The budget is read every so many rounds: it is summed anew each time."""


class Reader(Protocol):
    def put(self, session_id: str, name: str, data: Any) -> None: ...


class OperatorNews:
    """Looks at what the store and the files say while somebody reads, and tells what changed."""

    def __init__(
        self, runtime: Runtime, open_messengers: Callable[[], Messengers] | None = None
    ) -> None:
        self._runtime = runtime
        self._open_messengers = open_messengers
        self._readers: dict[Reader, RecordFilter | None] = {}
        self._task: asyncio.Task[None] | None = None
        self._began = asyncio.Event()
        """Set when it is known how everything is, so that changes are noticed."""

    async def add_reader(self, reader: Reader, log_filter: RecordFilter | None) -> None:
        """Tell this reader what changes once this returns; with a filter, also what is logged."""
        self._readers[reader] = log_filter
        if self._task is None:
            self._began = asyncio.Event()
            self._task = self._runtime.spawn_task(self._watch_changes(), "news of the operator")
        await self._began.wait()

    def remove_reader(self, reader: Reader) -> None:
        self._readers.pop(reader, None)
        if not self._readers and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _watch_changes(self) -> None:
        file = paths.log_file(self._runtime.setup.home)
        known: dict[str, Any] = {}
        rounds, began = 0, self._began
        try:
            _, position = await asyncio.to_thread(read_tail, file, 0, _take_all)
            follower = LogFollower(file, position)
            with suppress(HermesError, OSError):
                known = await self._collect_states(with_budget=True)
        finally:
            began.set()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            rounds += 1
            with suppress(HermesError, OSError):  # the next round tries again
                self._tell_records(await asyncio.to_thread(follower.read_new, _take_all))
                states = await self._collect_states(with_budget=rounds % _BUDGET_ROUNDS == 0)
                self._tell_changes(known, states)
                known = {**known, **states}

    def _tell_records(self, records: list[dict[str, Any]]) -> None:
        for record in records:
            for reader, wants in list(self._readers.items()):
                if wants is not None and wants(record):
                    reader.put("", "log", record)

    def _tell_changes(self, known: dict[str, Any], states: dict[str, Any]) -> None:
        for name in ("config", "budget"):
            if name in states and states[name] != known.get(name):
                self._tell_all(name, states[name])
        for name in ("platform", "job"):
            before, now = known.get(name, {}), states[name]
            for key, row in now.items():
                if before.get(key) != row:
                    self._tell_all(name, row)
            for key in before.keys() - now.keys():
                self._tell_all(name, {"id": key, "deleted": True})

    def _tell_all(self, name: str, data: Any) -> None:
        for reader in list(self._readers):
            reader.put("", name, data)

    async def _collect_states(self, *, with_budget: bool) -> dict[str, Any]:
        runtime = self._runtime
        home = runtime.setup.home
        source = await asyncio.to_thread(read_source, home)
        states: dict[str, Any] = {
            "config": {"version": hash_source(source or b"")},
            "platform": await asyncio.to_thread(self._read_platforms),
            "job": {row["id"]: _drop_moving(row) for row in await self._list_jobs()},
        }
        if with_budget:
            budget = (await asyncio.to_thread(read_config, home)).budget
            states["budget"] = await describe_budget(budget, runtime.store.ledger, time.time())
        return states

    async def _list_jobs(self) -> list[dict[str, Any]]:
        """The jobs; where there are none, the schedule is not even imported."""
        if not await self._runtime.store.jobs.list_jobs():
            return []
        from hermes.app.control.job_list import describe_jobs

        return await describe_jobs(self._runtime.scheduled_prompts.open_editor())

    def _read_platforms(self) -> dict[str, Any]:
        """The connections; where no gateway has run, what knows them is not even imported."""
        home = self._runtime.setup.home
        if self._open_messengers is None or not paths.gateway_state_file(home).exists():
            return {}
        status = self._open_messengers().describe_gateway() or {}
        found: dict[str, Any] = status.get("platforms", {}) if status.get("running") else {}
        return {name: {"id": name, "name": name, **row} for name, row in found.items()}


def _take_all(record: dict[str, Any]) -> bool:
    return True


def _drop_moving(row: dict[str, Any]) -> dict[str, Any]:
    """The row without what changes by itself as time passes."""
    return {name: value for name, value in row.items() if name != "next_times"}

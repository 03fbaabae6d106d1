"""The batches of a cluster, in a process that is one of its nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from hermes.app.cluster.node import ClusterNode, require_database
from hermes.config.load import Setup
from hermes.config.paths import cache_folder

if TYPE_CHECKING:
    from hermes.batch.nodes.shard_worker import ShardWorker

log = logging.getLogger(__name__)
_LAST_SECONDS = 5.0
NO_SANDBOX = (
    "This machine has no sandbox, and nobody would approve commands: it takes no items of batches. "
    "Nothing was started. See hermes doctor."
)


async def can_confine(setup: Setup) -> bool:
    """Whether commands may run here although nobody is there to approve them."""
    from hermes.exec.sandbox_probe import probe_tier

    return (await probe_tier(cache_folder(setup.home))).level != 3


@asynccontextmanager
async def take_batches(
    setup: Setup,
    node: ClusterNode,
    stop: asyncio.Event,
    *,
    always: bool = False,
    until_idle: bool = False,
) -> AsyncIterator[asyncio.Task[None]]:
    """Answer items of batches until `stop`; those that run then have the time of a drain to end.
    `always`: keep a connection for it. The task ends with `until_idle` when nothing is left."""
    module = await asyncio.to_thread(import_module, "hermes.batch.nodes.shard_worker")
    worker: ShardWorker = module.ShardWorker(setup, node, require_database(setup))
    is_steady = always or until_idle
    work = worker.work(until_idle=until_idle) if is_steady else _work_on_demand(setup, worker)
    task = asyncio.create_task(work)
    draining = asyncio.create_task(_drain_after(stop, worker))
    try:
        yield task
    finally:
        draining.cancel()
        worker.take_nothing()
        await worker.wait_until_free(node.settings.drain_seconds)
        await asyncio.wait({task}, timeout=_LAST_SECONDS)
        task.cancel()
        await asyncio.wait({task, draining})


async def _work_on_demand(setup: Setup, worker: ShardWorker) -> None:
    if await can_confine(setup):
        await worker.work_on_demand()
    else:
        log.warning(NO_SANDBOX)


async def _drain_after(stop: asyncio.Event, worker: ShardWorker) -> None:
    await stop.wait()
    worker.take_nothing()

"""What a server does as a node of a cluster, beside answering requests."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from hermes.app.knowledge.titles import SpawnTask
from hermes.app.session import Session
from hermes.server.nodes.run_orders import RunOrders
from hermes.server.nodes.run_recovery import RunRecovery
from hermes.server.nodes.run_worker import RunWorker
from hermes.server.runs.runs import RunRegistry
from hermes.server.turns.turn_runner import TurnRunner

if TYPE_CHECKING:
    from hermes.app.cluster.node import ClusterNode

_LOOK_SECONDS = 0.5
"""How often a node looks whether it is cut off."""
LAST_SECONDS = 5.0
"""How long the worker has to give back what it claimed."""


class NodeWork:
    """The worker of this node, and what it exchanges with the others."""

    def __init__(
        self, node: "ClusterNode", runs: RunRegistry, recovery: RunRecovery, turns: TurnRunner
    ) -> None:
        self._node = node
        self._runs = runs
        self._sessions = turns.sessions
        runs.join_nodes(node.inbox, node.notices, node.streams)
        self.orders = RunOrders(node.store.objects, runs, node.notices, node.lease.seconds)
        self._worker = RunWorker(node, runs, recovery, turns.slots, self.orders)
        self._working: asyncio.Task[None] | None = None

    @property
    def is_worker(self) -> bool:
        return bool(self._node.list_queues())

    def list_services(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        """What goes on as long as the node lives, by name."""
        found = [
            ("notices", self._node.notices.exchange_notices()),
            ("orders", self.orders.serve_orders()),
            ("cut-off turns", self._stop_cut_off_turns()),
        ]
        if self.is_worker:
            found.append(("dead nodes", self._node.bury_dead()))
        return found

    async def _stop_cut_off_turns(self) -> None:
        """Stop the runs when the lease is over, because other nodes continue them then; the other
        turns, which wait for the database, when their patience is over as well."""
        lease, patience = self._node.lease, self._node.settings.patience_seconds
        stopped: set[Session] = set()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if not lease.is_late:
                continue
            for run in list(self._runs.active.values()):
                run.give_up()
            if lease.silence > patience:
                for session in self._sessions.active - stopped:
                    session.interrupt()
                stopped = {*self._sessions.active}

    def begin_worker(
        self, spawn: SpawnTask, queues: Sequence[str] = (), *, until_idle: bool = False
    ) -> asyncio.Task[None]:
        work = self._node.work(self._worker.answer_wake, queues=queues, until_idle=until_idle)
        self._working = spawn(work, "worker")
        return self._working

    async def hand_over(self) -> None:
        """Take no more wakes, and let other nodes continue after the steps that run now."""
        for singleton in self._node.singletons.values():
            singleton.leave()
        self._node.engine.drain()
        for run in list(self._runs.active.values()):
            run.hand_over()
        self._runs.release_readers()
        await self._worker.release_parked()

    async def wait_for_worker(self) -> None:
        for singleton in self._node.singletons.values():
            await singleton.wait_until_left(self._node.settings.drain_seconds)
        if self._working is not None:
            await asyncio.wait({self._working}, timeout=LAST_SECONDS)

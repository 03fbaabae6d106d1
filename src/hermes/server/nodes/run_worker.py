"""The worker of a node: answers what waits in the inbox of a session, one after the other."""

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from hermes.server.http.principals import Principal
from hermes.server.nodes.run_orders import RunOrders
from hermes.server.nodes.run_recovery import RunRecovery
from hermes.server.runs import runs as run_registry
from hermes.server.runs.runs import RunRegistry
from hermes.server.turns.slots import TurnSlots
from hermes.server.turns.stored_runs import KIND, StoredRun
from hermes.store.tables.tenancy import CURRENT_TENANT, enter_tenant

if TYPE_CHECKING:
    from hermes.app.cluster.node import ClusterNode
    from hermes.store.postgres.engine import Wake
    from hermes.store.postgres.inbox import InboxRow, WaitingRow

log = logging.getLogger(__name__)
_WAIT_SECONDS = 0.25
"""How often a session is looked at that another node still runs."""


class RunWorker:
    """At most one wake of a session is answered at a time, on all nodes together."""

    def __init__(
        self,
        node: "ClusterNode",
        runs: RunRegistry,
        recovery: RunRecovery,
        slots: TurnSlots,
        orders: RunOrders,
    ) -> None:
        self._tenants = slots.tenants
        self._node = node
        self._inbox = node.inbox
        self._runs = runs
        self._recovery = recovery
        self._slots = slots
        self._orders = orders
        self._parked: dict[str, dict[str, None]] = {}
        """By principal: sessions that wait until it runs fewer turns."""

    async def answer_wake(self, wake: "Wake") -> None:
        """Answer everything that waits for the session."""
        session = wake.session
        with enter_tenant(wake.tenant):
            while waiting := await self._inbox.find_first(session):
                if self._node.engine.draining:
                    await self._inbox.wake(session)
                    return
                if not await self._answer_row(session, waiting):
                    return

    async def _answer_row(self, session: str, waiting: "WaitingRow") -> bool:
        """Whether to go on with the next."""
        row, state = waiting.row, _decode_state(waiting.body)
        if state is None or state.has_ended:
            await self._inbox.remove(session, row.id)
            return True
        principal = await self._find_principal(row.owner)
        if principal is not None and self._slots.is_at_limit(principal):
            self._parked.setdefault(principal.name, {})[session] = None
            return False
        if waiting.runs_elsewhere or not await self._is_ours(state):
            await asyncio.sleep(_WAIT_SECONDS)
            return True
        if principal is None or not principal.tenant or self._tenants is None:
            return await self._run_row(session, row, principal)
        async with self._tenants.hold_waiting(principal, row.id) as is_held:
            return is_held and await self._run_row(session, row, principal)

    async def _run_row(self, session: str, row: "InboxRow", principal: Principal | None) -> bool:
        """Run what waits to its end, or to where it is handed over."""
        claimed = await self._inbox.claim(session, row, self._node.lease.node)
        if claimed is None:
            await asyncio.sleep(_WAIT_SECONDS)
            return True
        state = _decode_state(claimed.body)
        if state is None or state.has_ended:
            return True
        run = await self._recovery.prepare_run(principal, row.owner, state)
        if run is not None and principal is not None:
            with self._slots.count_turn(principal):
                if claimed.has_orders:
                    await self._orders.obey_waiting(run)
                await self._runs.execute_run(run)
            await self._wake_parked(principal)
            if run.handed_over:
                await self._inbox.release(session, row)
                return False
        await self._inbox.remove(session, row.id)
        await self._inbox.trim_objects(KIND, run_registry.MAX_RUNS, owner=row.owner)
        return True

    async def _find_principal(self, name: str) -> Principal | None:
        tenant = CURRENT_TENANT.get()
        if tenant and self._tenants is not None:
            return await self._tenants.find_principal(tenant)
        return self._recovery.find_principal(name)

    async def _is_ours(self, state: StoredRun) -> bool:
        """Whether no other node can still write to this run."""
        if not state.server:
            return True
        return await asyncio.to_thread(self._node.lease.confirm_death, state.server)

    async def _wake_parked(self, principal: Principal) -> None:
        waiting = self._parked.get(principal.name)
        if waiting and not self._slots.is_at_limit(principal):
            session = next(iter(waiting))
            del waiting[session]
            await self._inbox.wake(session)

    async def release_parked(self) -> None:
        """Let other nodes have what waits here."""
        parked, self._parked = self._parked, {}
        for session in (s for sessions in parked.values() for s in sessions):
            await self._inbox.wake(session)


def _decode_state(body: bytes | None) -> StoredRun | None:
    return msgspec.msgpack.decode(body, type=StoredRun) if body is not None else None

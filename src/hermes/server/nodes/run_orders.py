"""Orders for runs that another node works on: stop, steer, approve."""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct, structs

from hermes.core.errors import StoreError
from hermes.core.events import Answer
from hermes.core.store import Objects
from hermes.server.http.errors import ApiError
from hermes.server.runs.runs import Run, RunRegistry
from hermes.server.turns.stored_runs import ApprovalAnswer, StoredRun, end_run
from hermes.store.tables.tenancy import enter_tenant

if TYPE_CHECKING:
    from hermes.store.postgres.inbox import InboxRow
    from hermes.store.postgres.notices import NodeNotices

log = logging.getLogger(__name__)
ORDER_KIND = "order"
RESULT_KIND = "order_result"
LOOK_SECONDS = 2.0
"""How often a node looks for orders whose notice was lost while it works on runs."""
_RESULT_SECONDS = 0.5
_PATIENCE = 30.0
_MAX_ORDERS = _MAX_RESULTS = 1000
_UNANSWERED = "The node that works on this run does not answer. Nothing was changed. Try again."


class RunOrder(Struct, frozen=True, omit_defaults=True):
    run_id: str
    action: Literal["stop", "steer", "approve"]
    text: str = ""
    choice: Answer = "deny"
    approval_id: str = ""
    saves: bool = False
    sender: str = ""
    """The node that waits for the result."""


class OrderResult(Struct, frozen=True, omit_defaults=True):
    """How an order went: the new state of the run, or an error."""

    run_status: str = ""
    approval: ApprovalAnswer | None = None
    error_status: int = 0
    error: str = ""
    error_code: str | None = None


class RunOrders:
    """Carries orders to the node that works on a run. An order is carried out once: whoever deletes
    it does so. One for a run whose node died counts before anything else of it is run."""

    def __init__(
        self, objects: Objects, runs: RunRegistry, notices: "NodeNotices", lease_seconds: float
    ) -> None:
        self._patience = lease_seconds + _PATIENCE
        """By then another node has taken over from one that died."""
        self._objects = objects
        self._runs = runs
        self._notices = notices
        self._arrived = asyncio.Event()
        self._results: dict[str, asyncio.Event] = {}
        notices.subscribe("orders", lambda run_id: self._arrived.set())
        notices.subscribe("result", self._note_result)

    async def send_order(self, owner: str, state: StoredRun, order: RunOrder) -> OrderResult:
        """Have the order carried out elsewhere; ApiError when it is refused there or nobody
        answers. What steers a run that no node has begun is kept for the one that does."""
        if order.action == "approve" and state.status == "queued":
            raise ApiError(409, "No approval is pending.", code="nothing_to_approve")
        id = secrets.token_hex(16)
        order = structs.replace(order, sender=self._notices.node)
        self._results[id] = asyncio.Event()
        try:
            body = msgspec.msgpack.encode(order)
            await self._objects.put(ORDER_KIND, id, body, owner=owner, keep_latest=_MAX_ORDERS)
            if order.action == "steer" and await self._find_unbegun(state) is not None:
                return OrderResult(state.status)
            self._notices.send(state.node, "orders", order.run_id)
            async with asyncio.timeout(self._patience):
                result = await self._wait_for_result(owner, id)
        except TimeoutError:
            if await self._objects.remove(ORDER_KIND, id, owner=owner):
                raise ApiError(
                    503, _UNANSWERED, code="elsewhere", headers={"Retry-After": "5"}
                ) from None
            raise ApiError(503, "The outcome is not known. Look at the run.") from None
        finally:
            del self._results[id]
        await self._objects.remove(RESULT_KIND, id, owner=owner)
        if result.error_status:
            raise ApiError(result.error_status, result.error, code=result.error_code)
        return result

    async def cancel_waiting(self, owner: str, state: StoredRun) -> bool:
        """End a run that no node has begun; False: one has."""
        inbox, row = self._runs.inbox, await self._find_unbegun(state)
        if inbox is None or row is None:
            return False
        if not await inbox.remove(state.session_id, row.id, unless_begun=True):
            return False
        state.output = None
        await end_run(self._objects, owner, state)
        return True

    async def _find_unbegun(self, state: StoredRun) -> "InboxRow | None":
        """The row of a run that no node has begun."""
        if self._runs.inbox is None or state.server:
            return None
        rows = await self._runs.inbox.list_rows(state.session_id)
        return next((row for row in rows if row.ref == state.run_id and not row.began), None)

    async def _wait_for_result(self, owner: str, id: str) -> OrderResult:
        while True:
            found = await self._objects.get(RESULT_KIND, id, owner=owner)
            if found is not None:
                return msgspec.msgpack.decode(found.body, type=OrderResult)
            with suppress(TimeoutError):
                async with asyncio.timeout(_RESULT_SECONDS):
                    await self._results[id].wait()
            self._results[id].clear()

    def _note_result(self, id: str) -> None:
        if (event := self._results.get(id)) is not None:
            event.set()

    async def serve_orders(self) -> None:
        """Carry out the orders for runs of this node, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._arrived.wait()
            self._arrived.clear()
            try:
                for tenant in {run.tenant for run in self._runs.active.values()}:
                    with enter_tenant(tenant):
                        await self._look_for_orders(self._runs.active)
            except StoreError as error:
                log.warning("orders for runs could not be read: %s", error)

    async def obey_waiting(self, run: Run) -> None:
        """Carry out what was ordered before this node began with the run."""
        await self._look_for_orders({run.state.run_id: run})

    async def _look_for_orders(self, runs: Mapping[str, Run]) -> None:
        for found in await self._objects.list_all(ORDER_KIND):
            order = msgspec.msgpack.decode(found.body, type=RunOrder)
            run = runs.get(order.run_id)
            if run is None or run.is_leaving:
                continue
            if not await self._objects.remove(ORDER_KIND, found.id, owner=found.owner):
                continue
            body = msgspec.msgpack.encode(await _carry_out(run, found.owner, order))
            await self._objects.put(
                RESULT_KIND, found.id, body, owner=found.owner, keep_latest=_MAX_RESULTS
            )
            self._notices.send(order.sender, "result", found.id)


async def _carry_out(run: Run, owner: str, order: RunOrder) -> OrderResult:
    if run.owner != owner:
        return OrderResult(error_status=409, error="This run has ended.", error_code="ended")
    try:
        match order.action:
            case "stop":
                await run.cancel()
            case "steer":
                await run.steer(order.text)
            case "approve":
                answer = await run.answer_approval(
                    order.choice, order.approval_id, saves=order.saves
                )
                return OrderResult(run.saved.status, answer)
    except ApiError as error:
        return OrderResult(error_status=error.status, error=error.message, error_code=error.code)
    return OrderResult(run.saved.status)

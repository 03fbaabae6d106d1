"""Orders for runs that another node works on: stop, steer, approve."""

import asyncio
import logging
import secrets
from typing import Literal

import msgspec
from msgspec import Struct

from hermes.core.errors import StoreError
from hermes.core.events import Answer
from hermes.core.store import Objects
from hermes.server.http.errors import ApiError
from hermes.server.turns.runs import ApprovalAnswer, RunRegistry
from hermes.store.tables.tenancy import enter_tenant

log = logging.getLogger(__name__)
ORDER_KIND = "order"
RESULT_KIND = "order_result"
LOOK_SECONDS = 0.25
"""How often a node looks for orders while it works on runs."""
_RESULT_SECONDS = 0.1
_PATIENCE = 30.0
_MAX_RESULTS = 1000
_UNANSWERED = "The node that works on this run does not answer. Nothing was changed. Try again."


class RunOrder(Struct, frozen=True, omit_defaults=True):
    run_id: str
    action: Literal["stop", "steer", "approve"]
    text: str = ""
    choice: Answer = "deny"
    approval_id: str = ""
    saves: bool = False


class OrderResult(Struct, frozen=True, omit_defaults=True):
    """How an order went: the new state of the run, or an error."""

    run_status: str = ""
    approval: ApprovalAnswer | None = None
    error_status: int = 0
    error: str = ""
    error_code: str | None = None


class RunOrders:
    """Carries orders to the node that works on a run. An order is carried out once: whoever deletes
    it does so. One for a run whose node died waits for the node that takes it over."""

    def __init__(self, objects: Objects, runs: RunRegistry) -> None:
        self._objects = objects
        self._runs = runs

    async def send_order(self, owner: str, order: RunOrder) -> OrderResult:
        """Have the order carried out elsewhere; ApiError when it is refused there or nobody
        answers."""
        id = secrets.token_hex(16)
        await self._objects.put(ORDER_KIND, id, msgspec.msgpack.encode(order), owner=owner)
        try:
            async with asyncio.timeout(_PATIENCE):
                result = await self._wait_for_result(owner, id)
        except TimeoutError:
            if await self._objects.remove(ORDER_KIND, id, owner=owner):
                raise ApiError(
                    503, _UNANSWERED, code="elsewhere", headers={"Retry-After": "5"}
                ) from None
            raise ApiError(503, "The outcome is not known. Look at the run.") from None
        await self._objects.remove(RESULT_KIND, id, owner=owner)
        if result.error_status:
            raise ApiError(result.error_status, result.error, code=result.error_code)
        return result

    async def _wait_for_result(self, owner: str, id: str) -> OrderResult:
        while True:
            found = await self._objects.get(RESULT_KIND, id, owner=owner)
            if found is not None:
                return msgspec.msgpack.decode(found.body, type=OrderResult)
            await asyncio.sleep(_RESULT_SECONDS)

    async def serve_orders(self) -> None:
        """Carry out the orders for runs of this node, until cancelled."""
        while True:
            try:
                for tenant in {run.tenant for run in self._runs.active.values()}:
                    with enter_tenant(tenant):
                        await self._look_for_orders()
            except StoreError as error:
                log.warning("orders for runs could not be read: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look_for_orders(self) -> None:
        for found in await self._objects.list_all(ORDER_KIND):
            order = msgspec.msgpack.decode(found.body, type=RunOrder)
            if order.run_id not in self._runs.active:
                continue
            if not await self._objects.remove(ORDER_KIND, found.id, owner=found.owner):
                continue
            body = msgspec.msgpack.encode(await self._carry_out(found.owner, order))
            await self._objects.put(
                RESULT_KIND, found.id, body, owner=found.owner, keep_latest=_MAX_RESULTS
            )

    async def _carry_out(self, owner: str, order: RunOrder) -> OrderResult:
        run = self._runs.active.get(order.run_id)
        if run is None or run.owner != owner:
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
            return OrderResult(
                error_status=error.status, error=error.message, error_code=error.code
            )
        return OrderResult(run.saved.status)

"""How handlers of routes reach a session: whose it is, and alone while they work with it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from hermes.app.agents import Options
from hermes.app.live.conversation import LiveConversation, TurnRefused
from hermes.app.live.stored_queue import QueuedMessage, StoredQueue, TurnState
from hermes.app.session_records import find_current_session
from hermes.config.schema import BusyMode
from hermes.core.errors import HermesError
from hermes.core.store import SessionMeta
from hermes.server.http.call import ApiCall
from hermes.server.http.errors import ApiError, not_found
from hermes.server.http.principals import Principal, Principals
from hermes.server.route import RouteServices, require_dashboard
from hermes.server.turns.sessions import apply_limits, is_owner

log = logging.getLogger(__name__)
_TOO_MANY = 429
_RETRY_SECONDS = 2.0


async def find_owned(call: ApiCall, services: RouteServices) -> SessionMeta:
    """The session of the path; 404 when it is another's."""
    session_id = call.path_params["id"]
    meta = await services.runtime.store.sessions.get_meta(session_id)
    if meta is None or not is_owner(call.principal, meta):
        raise not_found("session", session_id)
    return meta


async def find_current(call: ApiCall, services: RouteServices, wanted: str = "") -> SessionMeta:
    """The session that is wanted or in the path, or the one that continues it; 404 when it is
    another's."""
    session_id = wanted or call.path_params["id"]
    meta = await find_current_session(services.runtime.store, session_id)
    if meta is None or not is_owner(call.principal, meta):
        raise not_found("session", session_id)
    return meta


@asynccontextmanager
async def hold_conversation(
    principal: Principal, services: RouteServices, meta: SessionMeta
) -> AsyncIterator[tuple[LiveConversation, AsyncExitStack | None]]:
    """Open the conversation of a session. While none of its turns runs, nobody else can start one
    before the block ends, or before the stack that comes with it is closed. 409 when the session is
    in use elsewhere, 429 when too many turns run."""
    conversations, turns = require_dashboard(services).live.conversations, services.turns
    found = conversations.find_conversation(meta.id)
    if (found is None or not found.is_running) and turns.sessions.is_busy(meta.id):
        raise ApiError(409, "Another client runs a turn of this session. Wait for it.", code="busy")
    async with AsyncExitStack() as stack:
        options = _choose_options(principal, services)
        try:
            conversation = await conversations.open_conversation(meta, options)
        except TurnRefused as error:
            raise ApiError(409, str(error), code="in_use") from None
        apply_limits(conversation.session, principal)
        await stack.enter_async_context(conversation.starting)
        if conversation.is_running:
            yield conversation, None
            return
        held = AsyncExitStack()
        await held.enter_async_context(turns.slots.reserve_slot(principal))
        try:
            await held.enter_async_context(turns.sessions.lock_session(meta.id))
            yield conversation, held
        finally:
            if not conversation.is_running:
                await held.aclose()


async def submit_message(
    principal: Principal,
    services: RouteServices,
    meta: SessionMeta,
    item: QueuedMessage,
    busy: BusyMode = "queue",
) -> TurnState:
    """Hand a message to its session. It is stored first: whoever was told that it was accepted
    gets an answer, also after the process was killed."""
    if not item.session:
        item.principal = principal.name
        item.toolsets = _choose_options(principal, services).toolsets
    item.session = meta.id
    async with hold_conversation(principal, services, meta) as (conversation, resources):
        await conversation.stored_queue.put_message(item)
        state = conversation.submit(item, busy)
        if resources is not None:
            conversation.hold_resources(resources)
        return state


def _choose_options(principal: Principal, services: RouteServices) -> Options:
    """How its messages are answered; the operator's pages have all tools."""
    return Options() if principal.is_operator else services.turns.sessions.choose_options(principal)


async def resume_queue(services: RouteServices, principals: Principals) -> None:
    """Submit the messages that an earlier process accepted and did not come to. Those of sessions
    that another process has open stay stored."""
    store = services.runtime.store
    stored = StoredQueue(store.objects)
    for item in await stored.list_messages():
        meta = await find_current_session(store, item.session)
        principal = principals.find_named(item.principal)
        if meta is None or principal is None:
            await stored.drop_message(item)
            continue
        await _resubmit(principal, services, meta, item)


async def _resubmit(
    principal: Principal, services: RouteServices, meta: SessionMeta, item: QueuedMessage
) -> None:
    """Submit a message as soon as there is room for its turn."""
    while True:
        try:
            state = await submit_message(principal, services, meta, item)
            if item.sent_id:
                await StoredQueue(services.runtime.store.objects).record_send(item, state)
            return
        except HermesError as error:
            log.warning("message %s waits for the next start: %s", item.id, error)
            return
        except ApiError as error:
            if error.status != _TOO_MANY:
                return
        await services.runtime.services.sleep(_RETRY_SECONDS)

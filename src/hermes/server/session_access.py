"""How handlers of routes reach a session: whose it is, and alone while they work with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from hermes.app.agents import Options
from hermes.app.live.conversation import LiveConversation, TurnRefused
from hermes.app.session_records import find_current_session
from hermes.core.store import SessionMeta
from hermes.server.http.call import ApiCall
from hermes.server.http.errors import ApiError, not_found
from hermes.server.route import RouteServices, require_dashboard
from hermes.server.turns.sessions import apply_limits, is_owner


async def find_owned(call: ApiCall, services: RouteServices) -> SessionMeta:
    """The session of the path; 404 when it is another's."""
    session_id = call.path_params["id"]
    meta = await services.runtime.store.sessions.get_meta(session_id)
    if meta is None or not is_owner(call.principal, meta):
        raise not_found("session", session_id)
    return meta


async def find_current(call: ApiCall, services: RouteServices) -> SessionMeta:
    """The session of the path, or the one that continues it; 404 when it is another's."""
    session_id = call.path_params["id"]
    meta = await find_current_session(services.runtime.store, session_id)
    if meta is None or not is_owner(call.principal, meta):
        raise not_found("session", session_id)
    return meta


@asynccontextmanager
async def hold_conversation(
    call: ApiCall, services: RouteServices, meta: SessionMeta
) -> AsyncIterator[tuple[LiveConversation, AsyncExitStack | None]]:
    """Open the conversation of a session. While none of its turns runs, nobody else can start one
    before the block ends, or before the stack that comes with it is closed. 409 when the session is
    in use elsewhere, 429 when too many turns run."""
    conversations, turns = require_dashboard(services).live.conversations, services.turns
    found = conversations.find_conversation(meta.id)
    if (found is None or not found.is_running) and turns.sessions.is_busy(meta.id):
        raise ApiError(409, "Another client runs a turn of this session. Wait for it.", code="busy")
    async with AsyncExitStack() as stack:
        options = Options(toolsets=services.settings.toolsets) if call.principal.name else None
        try:
            conversation = await conversations.open_conversation(meta, options)
        except TurnRefused as error:
            raise ApiError(409, str(error), code="in_use") from None
        apply_limits(conversation.session, call.principal)
        await stack.enter_async_context(conversation.starting)
        if conversation.is_running:
            yield conversation, None
            return
        held = AsyncExitStack()
        held.enter_context(turns.slots.reserve_slot(call.principal))
        try:
            await held.enter_async_context(turns.sessions.lock_session(meta.id))
            yield conversation, held
        finally:
            if not conversation.is_running:
                await held.aclose()

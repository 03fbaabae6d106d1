"""/api/sessions: list, search, read, change, fork and continue stored sessions."""

import secrets
import time
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from hermes.app.live.session_choice import load_choice
from hermes.app.live.stored_diffs import load_diffs
from hermes.app.session import Session
from hermes.core.errors import ConfigError, StoreError
from hermes.core.events import Notice, TurnEvent, TurnResult
from hermes.core.message import Message
from hermes.core.provider import Effort
from hermes.core.store import WEB_SOURCE, SessionEnd, SessionFilter, SessionMeta
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import ApiError, bad_request, not_found, unsupported_parameter
from hermes.server.http.request_schemas import MessageContent
from hermes.server.http.response_schemas import (
    AssistantMessage,
    DeletedObject,
    IncompleteTurn,
    ObjectList,
    ObjectPage,
)
from hermes.server.requests.content import has_visible_content, parse_content
from hermes.server.requests.turn_request import TurnRequest
from hermes.server.route import Route, RouteServices
from hermes.server.turns.image_links import choose_text_filter
from hermes.server.turns.message_objects import describe_stored
from hermes.server.turns.outcome import describe_incomplete
from hermes.server.turns.response_items import ResponseUsage, build_response_usage
from hermes.server.turns.session_objects import SessionObject, describe_session
from hermes.server.turns.sessions import SOURCE, build_owner_key, is_owner
from hermes.server.turns.sse import KEEPALIVE_COMMENT
from hermes.server.turns.turn_events import build_token_usage, describe_event, encode_event

_MAX_SESSIONS = 200
_MAX_WINDOW = 200
_MAX_HITS = 1000
"""How many hits of all principals are searched for those of one."""


class CreateSessionRequest(Struct):
    title: Annotated[str, Meta(max_length=200)] = ""


class UpdateSessionRequest(Struct):
    title: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    pinned: bool | None = None
    archived: bool | None = None
    model: Annotated[str, Meta(max_length=300)] | None = None
    """As provider:model; empty: the configured one again."""
    effort: Effort | None = None


class ForkRequest(Struct):
    title: Annotated[str, Meta(max_length=200)] = ""
    messages: Annotated[int, Meta(ge=0)] | None = None
    """How many messages the fork takes over, from the first; absent: all."""


class SessionChatRequest(Struct):
    message: MessageContent = None
    """A string, or a list of parts."""
    input: MessageContent = None
    """Another name for `message`, as in responses and runs."""
    instructions: str = ""


class SessionPage(Struct):
    object: Literal["list"]
    data: list[SessionObject]
    has_more: bool
    next_cursor: str | None


class SessionChatAnswer(Struct, omit_defaults=True):
    session_id: str
    message: AssistantMessage
    usage: ResponseUsage
    hermes: IncompleteTurn | None = None


async def list_sessions(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List sessions: pinned ones first, then the most recently used."""
    limit = _read_number_param(call, "limit", 50, _MAX_SESSIONS)
    place = "cursor" if "cursor" in call.request.query else "offset"
    offset = _read_number_param(call, place, 0, 1_000_000, minimum=0)
    sessions, principal = services.runtime.store.sessions, call.principal
    found = await sessions.list_by_owner(
        principal.name,
        others=principal.owns_others,
        limit=limit + 1,
        offset=offset,
        only=_read_filter(call),
    )
    has_more, found = len(found) > limit, found[:limit]
    ends = await sessions.load_ends([meta.id for meta in found])
    data = [_describe_session(services, meta, ends[meta.id]) for meta in found]
    return json_response(
        SessionPage("list", data, has_more, str(offset + limit) if has_more else None)
    )


def _read_filter(call: ApiCall) -> SessionFilter:
    query = call.request.query
    source = query.get("source", "") if call.principal.has_key else SOURCE
    return SessionFilter(
        source=source,
        state=query.get("state", ""),
        title=query.get("q", "")[:200].strip(),
        archived=query.get("archived") == "true",
    )


def _describe_session(
    services: RouteServices, meta: SessionMeta, end: SessionEnd | None = None
) -> SessionObject:
    if services.dashboard is None:
        return describe_session(meta, end)
    return services.dashboard.describe_session(meta, end)


async def search_sessions(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Find messages that contain all words of the query."""
    query = call.request.query.get("q", "").strip()
    if not query:
        raise bad_request("q is required.", "q")
    limit = _read_number_param(call, "limit", 20, _MAX_SESSIONS)
    hits = await services.runtime.store.search.find_messages(query[:1000], limit=_MAX_HITS)
    owned = [hit for hit in hits if is_owner(call.principal, hit.session)][:limit]
    data: list[dict[str, Any]] = [
        {**structs.asdict(hit), "session": _describe_session(services, hit.session)}
        for hit in owned
    ]
    return json_response(ObjectList("list", data))


async def create_session(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Create an empty session."""
    body = call.decode_optional_body(CreateSessionRequest)
    runtime = services.runtime
    session = await runtime.open_session(
        source=WEB_SOURCE if call.is_browser else SOURCE,
        key=build_owner_key(call.principal),
        cwd=services.turns.sessions.open_working_folder(call.principal),
        options=services.turns.sessions.choose_options(call.principal),
    )
    meta = structs.replace(session.transcript.meta, title=body.title)
    await runtime.store.sessions.create(meta)
    await session.close()
    return json_response(_describe_session(services, meta), 201)


async def get_session(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get a session."""
    meta = await _find_session(call, services)
    store = services.runtime.store
    end = await store.sessions.load_ends([meta.id])
    found = _describe_session(services, meta, end[meta.id])
    if services.dashboard is not None:
        found.effort = (await load_choice(store, meta)).effort
    return json_response(found)


async def update_session(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Change the title of a session, pin it, archive it, or choose its model and effort."""
    body = call.decode_body(UpdateSessionRequest)
    sent = {n: value for n, value in structs.asdict(body).items() if value is not None}
    if not sent:
        raise bad_request("Send title, pinned, archived, model or effort.", "title")
    meta, runtime = await _find_session(call, services), services.runtime
    choice: dict[str, Any] = {n: sent.pop(n) for n in ("model", "effort") if n in sent}
    if choice:
        if services.dashboard is None:
            raise unsupported_parameter(next(iter(choice)), "the dashboard is off.")
        if "model" in choice and call.principal.name and not call.principal.is_admin:
            raise ApiError(403, "This key does not have the scope admin.", code="scope")
        try:
            model = await services.dashboard.live.conversations.change_choice(meta, choice)
        except ConfigError as error:
            raise bad_request(services.turns.redact(str(error)), next(iter(choice))) from None
        sent["model"] = model
    await runtime.store.sessions.update_meta(meta.id, **sent)
    return json_response(_describe_session(services, structs.replace(meta, **sent)))


async def delete_session(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Delete a session and its messages."""
    meta = await _find_session(call, services)
    if services.turns.sessions.is_busy(meta.id):
        raise ApiError(409, "A turn of this session is running.", code="busy")
    if services.dashboard is not None:
        await services.dashboard.live.conversations.close_session(meta.id)
    try:
        await services.runtime.store.sessions.delete(meta.id)
    except StoreError as error:
        if error.code != "in_use":
            raise
        raise ApiError(409, "A turn of this session is running.", code="busy") from None
    return json_response(DeletedObject(meta.id, "hermes.session", True))


async def list_messages(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the messages of a session in order: the first ones, those after or before a place, or
    those around it."""
    meta = await _find_session(call, services)
    places = [name for name in ("before", "after", "around") if name in call.request.query]
    if len(places) > 1:
        raise bad_request("Use only one of before, after and around.", places[1])
    place = places[0] if places else "after"
    limit = _read_number_param(call, "limit", 100, 1000 if place == "after" else _MAX_WINDOW)
    seq = _read_number_param(call, place, -1, 1 << 24, minimum=-1)
    load = partial(services.runtime.store.sessions.load_window, meta.id)
    match place:
        case "before":
            found = await load(before=seq, limit=limit + 1, last=True)
            has_more, found = len(found) > limit, found[-limit:]
        case "around":
            half = limit // 2
            earlier = await load(before=seq, limit=half, last=True)
            found = [*earlier, *await load(after=seq - 1, limit=limit - half, last=False)]
            has_more = bool(found) and found[-1].seq < meta.messages - 1
        case _:
            found = await load(after=seq, limit=limit + 1, last=False)
            has_more, found = len(found) > limit, found[:limit]
    clean = choose_text_filter(services.settings.images, meta.taint)
    diffs = await load_diffs(services.runtime.store.objects, meta.id, found)
    data = [describe_stored(stored, clean, diffs) for stored in found]
    return json_response(ObjectPage("list", data, has_more))


async def fork_session(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Create a copy of a session that continues independently."""
    body = call.decode_optional_body(ForkRequest)
    meta, sessions = await _find_session(call, services), services.runtime.store.sessions
    messages = (await sessions.load_messages(meta.id))[: body.messages]
    now = time.time()
    fork = structs.replace(
        meta,
        id=f"api-{secrets.token_hex(16)}",
        source=WEB_SOURCE if call.is_browser else SOURCE,
        key=build_owner_key(call.principal),
        parent=meta.id,
        title=body.title or meta.title,
        state="idle",
        created=now,
        updated=now,
        messages=len(messages),
    )
    await sessions.append(fork.id, messages, create=fork)
    return json_response(_describe_session(services, fork), 201)


async def _find_session(call: ApiCall, services: RouteServices) -> SessionMeta:
    session_id = call.path_params["id"]
    meta = await services.runtime.store.sessions.get_meta(session_id)
    if meta is None or not is_owner(call.principal, meta):
        raise not_found("session", session_id)
    return meta


def _read_number_param(
    call: ApiCall, name: str, default: int, maximum: int, minimum: int = 1
) -> int:
    text = call.request.query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 9:
        raise bad_request(f"{name} must be an integer.", name)
    return max(minimum, min(int(text), maximum))


async def chat_in_session(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Send a message to a session and wait for the answer."""

    async def answer_chat() -> web.Response:
        request = await _parse_request(call, services)
        build = partial(_build_answer, request.session)
        return await services.turns.answer_turn(call, request, build)

    return await services.turns.idempotency.run_once(call, answer_chat)


def _build_answer(session_id: str, result: TurnResult) -> SessionChatAnswer:
    message = AssistantMessage("assistant", result.text)
    usage = build_response_usage(result.usage)
    return SessionChatAnswer(session_id, message, usage, describe_incomplete(result))


async def stream_in_session(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Send a message to a session and stream the answer."""
    request = await _parse_request(call, services)
    return await services.turns.stream_turn(call, request, _SessionEncoder(request.session))


class _SessionEncoder:
    """Encodes the events of a turn in a stored session."""

    log = None

    def __init__(self, session_id: str) -> None:
        self._owner = {"session_id": session_id}

    async def encode_start(self, session: Session) -> bytes:
        return b""

    def encode_keepalive(self) -> bytes:
        return KEEPALIVE_COMMENT

    def encode_event(self, event: TurnEvent) -> bytes:
        if isinstance(event, Notice):
            data = {"code": event.code, "text": event.text}
            return encode_event("notice", self._owner, data)
        described = describe_event(event)
        return encode_event(described[0], self._owner, described[1]) if described else b""

    async def encode_end(self, result: TurnResult) -> bytes:
        data: dict[str, Any] = {"output": result.text}
        names = {"completed": "turn.completed", "interrupted": "turn.cancelled"}
        name = names.get(result.status, "turn.failed")
        if name == "turn.failed":
            data |= {"error": result.error, "error_code": result.error_code}
        return encode_event(name, self._owner, {**data, "usage": build_token_usage(result)})


async def _parse_request(call: ApiCall, services: RouteServices) -> TurnRequest:
    body = call.decode_body(SessionChatRequest)
    meta = await _find_session(call, services)
    name, content = ("message", body.message) if body.input is None else ("input", body.input)
    if content is None:
        raise bad_request("message is required.", "message")
    prompt = Message("user", parse_content(content, name))
    if not has_visible_content(prompt):
        raise bad_request(f"{name} has no visible content.", name)
    return TurnRequest(prompt, instructions=body.instructions, session=meta.id)


_ALL = "/api/sessions"
_LIST_QUERY = ("limit", "offset", "cursor", "source", "state", "archived", "q")
_ONE = "/api/sessions/{id}"
_route = partial(Route, scope="sessions")
ROUTES = (
    _route(
        "GET", f"{_ALL}/search", search_sessions, "session_search", ObjectList, query=("q", "limit")
    ),
    _route("GET", _ALL, list_sessions, "sessions", SessionPage, query=_LIST_QUERY),
    _route(
        "POST",
        _ALL,
        create_session,
        "session_create",
        SessionObject,
        CreateSessionRequest,
        body_optional=True,
        status=201,
    ),
    _route("GET", _ONE, get_session, "session", SessionObject),
    _route("PATCH", _ONE, update_session, "session_change", SessionObject, UpdateSessionRequest),
    _route("DELETE", _ONE, delete_session, "session_delete", DeletedObject, errors=(409,)),
    _route(
        "GET",
        f"{_ONE}/messages",
        list_messages,
        "session_messages",
        ObjectPage,
        query=("limit", "before", "after", "around"),
    ),
    _route(
        "POST",
        f"{_ONE}/fork",
        fork_session,
        "session_fork",
        SessionObject,
        ForkRequest,
        body_optional=True,
        status=201,
    ),
    _route(
        "POST",
        f"{_ONE}/chat",
        chat_in_session,
        "session_chat",
        SessionChatAnswer,
        SessionChatRequest,
        errors=(424, 502),
        headers=("Idempotency-Key",),
    ),
    _route(
        "POST",
        f"{_ONE}/chat/stream",
        stream_in_session,
        "session_chat_stream",
        body=SessionChatRequest,
        streams=True,
        media="text/event-stream",
    ),
)

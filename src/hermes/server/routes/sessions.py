"""/api/sessions: stored conversations, looked at, searched, gone on with."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from hermes.core.events import TurnEnd, TurnEvent, TurnResult
from hermes.core.message import Media, Message, Text, Thinking, ToolCall, ToolReturn
from hermes.core.store import SessionMeta
from hermes.server.http import web
from hermes.server.http.errors import ApiError, bad, missing
from hermes.server.http.idempotency import once
from hermes.server.http.request_schemas import Content
from hermes.server.http.response_schemas import (
    Deleted,
    Listed,
    Page,
    SessionAnswer,
    Sessions,
    StoredSession,
)
from hermes.server.http.route import Call, Route
from hermes.server.turns.content import parts_of, visible
from hermes.server.turns.image_links import shown_as
from hermes.server.turns.outcome import ending, incomplete, incomplete_headers, turn_headers
from hermes.server.turns.response_items import usage_of
from hermes.server.turns.sessions import SOURCE, Ask, key_of, owned
from hermes.server.turns.streaming import follow, to_the_end
from hermes.server.turns.turn_events import tell

_MOST = 200
_LOOKED_AT = 1000
"""Hits of everybody's that are looked through for those of one."""


class NewSession(Struct):
    title: Annotated[str, Meta(max_length=200)] = ""


class Changes(Struct):
    title: Annotated[str, Meta(min_length=1, max_length=200)]


class Fork(Struct):
    title: Annotated[str, Meta(max_length=200)] = ""
    messages: Annotated[int, Meta(ge=0)] | None = None
    """How many of the first it takes along; absent: all."""


class Said(Struct):
    message: Content = None
    """A string, or parts."""
    input: Content = None
    """The same, as responses and runs call it."""
    instructions: str = ""


async def listed(call: Call) -> web.StreamResponse:
    limit = _number(call, "limit", 50, _MOST)
    offset = _number(call, "offset", 0, 1_000_000, least=0)
    store = call.server.runtime.store
    found = await store.sessions.list_by_owner(call.principal.name, limit=limit + 1, offset=offset)
    data = [shown(meta) for meta in found[:limit]]
    return call.answer({"object": "list", "data": data, "has_more": len(found) > limit})


async def search(call: Call) -> web.StreamResponse:
    query = call.request.query.get("q", "").strip()
    if not query:
        raise bad("q is required.", "q")
    limit = _number(call, "limit", 20, _MOST)
    hits = await call.server.runtime.store.search.find_messages(query[:1000], limit=_LOOKED_AT)
    data = [
        {"session": shown(hit.session), "seq": hit.seq, "role": hit.role, "snippet": hit.snippet}
        for hit in hits
        if owned(hit.session, call.principal)
    ]
    return call.answer({"object": "list", "data": data[:limit]})


async def create(call: Call) -> web.StreamResponse:
    body = call.json(NewSession) if call.raw.strip() else NewSession()
    session = await call.server.runtime.open_session(
        source=SOURCE, key=key_of(call.principal, ""), cwd=call.server.runtime.working_folder
    )
    meta = structs.replace(session.transcript.meta, title=body.title)
    await call.server.runtime.store.sessions.create(meta)
    return call.answer(shown(meta), 201)


async def get(call: Call) -> web.StreamResponse:
    return call.answer(shown(await _found(call)))


async def change(call: Call) -> web.StreamResponse:
    body = call.json(Changes)
    meta = await _found(call)
    await call.server.runtime.store.sessions.update_meta(meta.id, title=body.title)
    return call.answer(shown(structs.replace(meta, title=body.title)))


async def delete(call: Call) -> web.StreamResponse:
    meta = await _found(call)
    busy = (session.id for session in call.server.sessions)
    if meta.id in call.server.turns or meta.id in busy:
        raise ApiError(409, "A turn of this session is going on.", code="busy")
    await call.server.runtime.store.sessions.delete(meta.id)
    return call.answer({"id": meta.id, "object": "hermes.session", "deleted": True})


async def messages(call: Call) -> web.StreamResponse:
    meta = await _found(call)
    limit = _number(call, "limit", 100, 1000)
    after = _number(call, "after", -1, 1 << 24, least=-1)
    data: list[dict[str, Any]] = []
    say = shown_as(call.server, meta.taint)
    async for stored in call.server.runtime.store.sessions.stream_messages(meta.id):
        if stored.seq <= after:
            continue
        if len(data) == limit:
            return call.answer({"object": "list", "data": data, "has_more": True})
        told = spoken(stored.message, say)
        data.append({"seq": stored.seq, "created_at": stored.created, **told})
    return call.answer({"object": "list", "data": data, "has_more": False})


async def fork(call: Call) -> web.StreamResponse:
    body = call.json(Fork) if call.raw.strip() else Fork()
    meta = await _found(call)
    store = call.server.runtime.store
    past = await store.sessions.load_messages(meta.id)
    taken = past if body.messages is None else past[: body.messages]
    now = time.time()
    child = structs.replace(
        meta,
        id=f"api-{secrets.token_hex(16)}",
        source=SOURCE,
        key=key_of(call.principal, ""),
        parent=meta.id,
        title=body.title or meta.title,
        state="idle",
        created=now,
        updated=now,
        messages=len(taken),
    )
    await store.sessions.append(child.id, taken, create=child)
    return call.answer(shown(child), 201)


async def chat(call: Call) -> web.StreamResponse:
    return await once(call, lambda: _chat(call))


async def _chat(call: Call) -> web.Response:
    ask = await _ask(call)
    result, session = await to_the_end(call, ask)
    headers = turn_headers(session.id, ask) | incomplete_headers(result)
    if result.status != "completed" and not result.text.strip():
        raise incomplete(result, headers)
    answer = {
        "session_id": session.id,
        "message": {"role": "assistant", "content": result.text},
        "usage": usage_of(result.usage),
    }
    if result.status != "completed":
        answer["hermes"] = ending(result)
    return call.answer(answer, headers=headers)


async def chat_stream(call: Call) -> web.StreamResponse:
    ask = await _ask(call)
    return await follow(call, ask, lambda session: _Telling(call, ask, session.id))


class _Telling:
    def __init__(self, call: Call, ask: Ask, session: str) -> None:
        self.headers = turn_headers(session, ask)
        self._named = {"session_id": session}
        self._metrics = call.server.metrics

    async def begin(self) -> bytes:
        return b""

    def tell(self, happened: TurnEvent) -> bytes:
        return tell(happened, self._named)

    async def end(self, result: TurnResult) -> bytes:
        self._metrics.turn(result)
        return tell(TurnEnd(result), self._named)


async def _ask(call: Call) -> Ask:
    body = call.json(Said)
    meta = await _found(call)
    said, name = (body.message, "message") if body.input is None else (body.input, "input")
    if said is None:
        raise bad("message is required.", "message")
    prompt = Message("user", parts_of(said, name))
    if not visible(prompt):
        raise bad(f"{name} has no visible content.", name)
    return Ask(prompt, instructions=body.instructions, session=meta.id)


async def _found(call: Call) -> SessionMeta:
    identity = call.names["id"]
    meta = await call.server.runtime.store.sessions.get_meta(identity)
    if meta is None or not owned(meta, call.principal):
        raise missing("session", identity)
    return meta


def _number(call: Call, name: str, default: int, most: int, least: int = 1) -> int:
    text = call.request.query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 9:
        raise bad(f"{name} must be a number.", name)
    return max(least, min(int(text), most))


def shown(meta: SessionMeta) -> dict[str, Any]:
    return {
        "id": meta.id,
        "object": "hermes.session",
        "title": meta.title,
        "source": meta.source,
        "model": meta.model,
        "state": meta.state,
        "parent": meta.parent or None,
        "created_at": meta.created,
        "updated_at": meta.updated,
        "message_count": meta.messages,
    }


def spoken(message: Message, say: Callable[[str], str]) -> dict[str, Any]:
    """`say`: how a text of the model is shown."""
    content: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case Text(text):
                told = say(text) if message.role == "assistant" else text
                content.append({"type": "text", "text": told})
            case Thinking(text) if text:
                content.append({"type": "reasoning", "text": text})
            case Media(mime, _, url):
                content.append({"type": "media", "mime": mime, **({"url": url} if url else {})})
            case ToolCall(id, name, args):
                content.append({"type": "tool_call", "id": id, "name": name, "arguments": args})
            case ToolReturn(call_id, name, _, error):
                content.append(
                    {
                        "type": "tool_result",
                        "call_id": call_id,
                        "name": name,
                        "text": part.text,
                        "error": error,
                    }
                )
            case _:
                continue
    return {"role": message.role, "kind": message.kind, "content": content}


_ALL = "/api/sessions"
_ONE = "/api/sessions/{id}"
_BODY = (400, 404, 413, 415)
ROUTES = (
    Route(
        "GET",
        f"{_ALL}/search",
        search,
        "session_search",
        "Messages that hold all the words.",
        scope="sessions",
        errors=(400,),
        query=("q", "limit"),
        answer=Listed,
    ),
    Route(
        "GET",
        _ALL,
        listed,
        "sessions",
        "The most recently used first.",
        scope="sessions",
        errors=(400,),
        query=("limit", "offset"),
        answer=Sessions,
    ),
    Route(
        "POST",
        _ALL,
        create,
        "session_create",
        "A new, empty one.",
        scope="sessions",
        body=NewSession,
        bodiless=True,
        status=201,
        errors=(400, 413, 415),
        answer=StoredSession,
    ),
    Route(
        "GET",
        _ONE,
        get,
        "session",
        "One of them.",
        scope="sessions",
        errors=(404,),
        answer=StoredSession,
    ),
    Route(
        "PATCH",
        _ONE,
        change,
        "session_change",
        "Give it another title.",
        scope="sessions",
        body=Changes,
        errors=_BODY,
        answer=StoredSession,
    ),
    Route(
        "DELETE",
        _ONE,
        delete,
        "session_delete",
        "Delete it with all its messages.",
        scope="sessions",
        errors=(404, 409),
        answer=Deleted,
    ),
    Route(
        "GET",
        f"{_ONE}/messages",
        messages,
        "session_messages",
        "What was said, in order.",
        scope="sessions",
        errors=(400, 404),
        query=("limit", "after"),
        answer=Page,
    ),
    Route(
        "POST",
        f"{_ONE}/fork",
        fork,
        "session_fork",
        "A copy that goes its own way.",
        scope="sessions",
        body=Fork,
        bodiless=True,
        status=201,
        errors=_BODY,
        answer=StoredSession,
    ),
    Route(
        "POST",
        f"{_ONE}/chat",
        chat,
        "session_chat",
        "Say something in it, and wait for the answer.",
        scope="sessions",
        body=Said,
        errors=(*_BODY, 429, 502),
        answer=SessionAnswer,
        headers=("Idempotency-Key",),
    ),
    Route(
        "POST",
        f"{_ONE}/chat/stream",
        chat_stream,
        "session_chat_stream",
        "Say something in it, and follow the answer.",
        scope="sessions",
        body=Said,
        errors=(*_BODY, 429),
        streams=True,
        media="text/event-stream",
    ),
)

"""POST /v1/responses, and what becomes of a response afterwards."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import AsyncExitStack
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct, structs

from hermes.app.session import Session
from hermes.core.events import TurnEnd, TurnResult
from hermes.core.message import Message, Text
from hermes.core.provider import Effort
from hermes.server.content import parts_of, visible
from hermes.server.conversations import Ask, alone, opened, session_headers, wanted_settings
from hermes.server.errors import ApiError, bad, missing
from hermes.server.items import Narrator, items_of, settle
from hermes.server.route import Call, Route, flag
from hermes.server.routes.chat import TokenLimit, ending
from hermes.server.stream import ClientGone, Stream

KIND = "response"
NAMES = "conversation"
_MOST_NAMES = 1000
_TRUNCATED = 100
"""Messages of history that `truncation: auto` leaves."""


class Reasoning(Struct):
    effort: Effort | None = None


class ResponsesRequest(Struct):
    input: Any
    model: str = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    store: bool | str | None = None
    stream: bool | str | None = None
    truncation: str | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_output_tokens: TokenLimit | None = None
    reasoning: Reasoning | None = None
    metadata: dict[str, Any] | None = None


class Kept(Struct):
    """A response with everything it takes to go on from it."""

    response: dict[str, Any]
    transcript: tuple[Message, ...] = ()
    session: str = ""
    instructions: str = ""


class _Work(Struct):
    """One request on its way."""

    call: Call
    body: ResponsesRequest
    ask: Ask
    past: tuple[Message, ...]
    """All of it; the ask may hold less."""
    store: bool
    name: str
    response: dict[str, Any]
    session: str = ""


async def create(call: Call) -> web.StreamResponse:
    body = call.json(ResponsesRequest)
    stream = flag(body.stream, "stream")
    name = _conversation_name(body)
    async with AsyncExitStack() as held:
        if name:
            await held.enter_async_context(
                alone(call.server, f"{NAMES}/{call.principal.name}/{name}")
            )
        work = await _prepare(call, body, name)
        held.enter_context(call.server.running(call.principal))
        session = await held.enter_async_context(opened(call.server, call.principal, work.ask))
        work.session = session.id
        if stream:
            return await _streamed(work, session)
        return await _whole(work, session)


# -- reading the request ---------------------------------------------------------------------


def _conversation_name(body: ResponsesRequest) -> str:
    given = body.conversation
    name = given.get("id") if isinstance(given, dict) else given
    if name is None:
        return ""
    if not isinstance(name, str) or not 0 < len(name) <= 256 or not name.isprintable():
        raise bad("conversation must be a name of at most 256 characters.", "conversation")
    if body.previous_response_id:
        raise bad("Cannot use both conversation and previous_response_id.", "conversation")
    return name


async def _prepare(call: Call, body: ResponsesRequest, name: str) -> _Work:
    before, prompt = read_input(body.input)
    previous = await _previous(call, body, name)
    headers = session_headers(call)
    instructions = body.instructions
    if instructions is None:
        instructions = previous.instructions if previous else ""
    past = (*(previous.transcript if previous else ()), *before)
    used = past[-_TRUNCATED:] if body.truncation == "auto" else past
    store = flag(body.store, "store", default=True)
    ask = Ask(
        prompt,
        used,
        instructions,
        session=headers.session,
        session_key=headers.key,
        chain=previous.session if previous else f"api-{secrets.token_hex(16)}",
        keep=store,
        settings=_settings(call, body),
    )
    return _Work(call, body, ask, past, store, name, _new(call, body, instructions))


def _settings(call: Call, body: ResponsesRequest) -> dict[str, Any]:
    effort = body.reasoning.effort if body.reasoning else None
    return wanted_settings(
        call.server,
        tokens=body.max_output_tokens,
        temperature=body.temperature,
        effort=effort,
    )


def read_input(given: Any) -> tuple[tuple[Message, ...], Message]:
    """(what came before, the turn)."""
    if isinstance(given, str):
        if not given.strip():
            raise bad("input must not be empty.", "input")
        return (), Message("user", (Text(given),))
    if not isinstance(given, list) or not given:
        raise bad("input must be a string or a list of items.", "input")
    spoken: list[Message] = []
    for n, item in enumerate(given):
        where = f"input[{n}]"
        if not isinstance(item, dict):
            raise bad(f"{where} must be an object.", where)
        role = item.get("role")
        if role in ("user", "assistant"):
            spoken.append(Message(role, parts_of(item.get("content"), f"{where}.content")))
        elif role in ("system", "developer") or item.get("type", "message") != "message":
            continue
        else:
            raise bad(f"{where}.role is unknown.", f"{where}.role")
    last = max((n for n, m in enumerate(spoken) if m.role == "user"), default=-1)
    if last < 0 or not visible(spoken[last]):
        raise bad("input: there is no user item with visible content.", "input")
    return tuple(m for m in spoken[:last] if visible(m)), spoken[last]


async def _previous(call: Call, body: ResponsesRequest, name: str) -> Kept | None:
    owner = call.principal.name
    objects = call.server.runtime.store.objects
    identity = body.previous_response_id
    if name:
        pointer = await objects.get(NAMES, _named(owner, name), owner=owner)
        identity = pointer.body.decode() if pointer else None
    if not identity:
        return None
    kept = await load_kept(call, identity)
    if kept is None and not name:
        raise missing("response", identity[:80])
    return kept


async def load_kept(call: Call, identity: str) -> Kept | None:
    objects = call.server.runtime.store.objects
    found = await objects.get(KIND, identity, owner=call.principal.name, touch=True)
    return msgspec.msgpack.decode(found.body, type=Kept) if found else None


def _named(owner: str, name: str) -> str:
    return f"{owner}/{name}"


def _new(call: Call, body: ResponsesRequest, instructions: str) -> dict[str, Any]:
    return {
        "id": f"resp_{secrets.token_hex(16)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": instructions or None,
        "metadata": body.metadata or {},
        "model": body.model or call.server.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": body.previous_response_id,
        "temperature": body.temperature,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "truncation": body.truncation or "disabled",
        "usage": None,
    }


# -- keeping ---------------------------------------------------------------------------------


async def _keep(work: _Work, added: tuple[Message, ...]) -> None:
    if not work.store:
        return
    server = work.call.server
    owner = work.call.principal.name
    transcript = (*work.past, *added)
    kept = Kept(work.response, transcript, work.session, work.ask.instructions)
    objects = server.runtime.store.objects
    identity = work.response["id"]
    most = server.settings.max_stored_responses
    await objects.put(KIND, identity, msgspec.msgpack.encode(kept), owner=owner, most=most)
    if work.name:
        name = _named(owner, work.name)
        await objects.put(NAMES, name, identity.encode(), owner=owner, most=_MOST_NAMES)


# -- answering -------------------------------------------------------------------------------


async def _whole(work: _Work, session: Session) -> web.Response:
    result = await session.turn(work.ask.prompt)
    work.call.server.metrics.turn(result)
    settle(work.response, result)
    work.response["output"] = items_of(result.messages)
    await _keep(work, result.messages)
    headers = _headers(work)
    if not result.completed:
        headers |= {"X-Hermes-Completed": "false", "X-Hermes-Partial": "true"}
    if work.response["status"] == "failed":
        raise ApiError(
            502,
            result.error or "The agent did not finish.",
            code="agent_incomplete",
            headers=headers,
            extra={"hermes": ending(result)},
        )
    return work.call.answer(work.response, headers=headers)


def _headers(work: _Work) -> dict[str, str]:
    headers = {"X-Hermes-Session-Id": work.session}
    if work.ask.session_key:
        headers["X-Hermes-Session-Key"] = work.ask.session_key
    return headers


async def _streamed(work: _Work, session: Session) -> web.StreamResponse:
    """Known before it is shown: the response is stored before its id is sent."""
    narrator = Narrator()
    await _keep(work, (work.ask.prompt,))
    events = session.events()
    ended = session.submit(work.ask.prompt)
    stream = await Stream.open(work.call, _headers(work))
    result: TurnResult | None = None
    try:
        snapshot = dict(work.response)
        await stream.send(
            narrator.frame("response.created", response=snapshot)
            + narrator.frame("response.in_progress", response=snapshot)
        )
        async for happened in events:
            if isinstance(happened, TurnEnd):
                result = happened.result
                break
            if data := b"".join(narrator.tell(happened)):
                await stream.send(data)
        assert result is not None
        last = b"".join(narrator.close())
        await _settle(work, narrator, result)
        await stream.send(
            last + narrator.frame(f"response.{work.response['status']}", response=work.response)
        )
    except ClientGone as gone:
        if not gone.slow:
            session.interrupt()
        result = result or await ended
    finally:
        if work.response["status"] == "in_progress":
            await asyncio.shield(_abandoned(work, session, narrator, ended))
    return await stream.close()


async def _settle(work: _Work, narrator: Narrator, result: TurnResult) -> None:
    work.call.server.metrics.turn(result)
    settle(work.response, result)
    work.response["output"] = narrator.items
    await _keep(work, result.messages)


async def _abandoned(
    work: _Work, session: Session, narrator: Narrator, ended: asyncio.Future[TurnResult]
) -> None:
    """Nobody listens any more: what there is stays, and can be gone on from."""
    session.interrupt()
    result = await ended
    for _ in narrator.close():
        continue
    if not result.completed and not result.text.strip():
        result = structs.replace(result, interrupted=True)
    await _settle(work, narrator, result)


# -- afterwards ------------------------------------------------------------------------------


async def get(call: Call) -> web.StreamResponse:
    kept = await load_kept(call, call.names["id"])
    if kept is None:
        raise missing("response", call.names["id"])
    return call.answer(kept.response)


async def delete(call: Call) -> web.StreamResponse:
    identity, owner = call.names["id"], call.principal.name
    objects = call.server.runtime.store.objects
    if not await objects.remove(KIND, identity, owner=owner):
        raise missing("response", identity)
    for name in await objects.every(NAMES, owner=owner):
        if name.body == identity.encode():
            await objects.remove(NAMES, name.id, owner=owner)
    return call.answer({"id": identity, "object": "response", "deleted": True})


ROUTES = (
    Route(
        "POST",
        "/v1/responses",
        create,
        "responses",
        "One turn; the server keeps what it takes to go on from it.",
        body=ResponsesRequest,
        errors=(400, 403, 404, 413, 415, 429, 502),
        streams=True,
    ),
    Route("GET", "/v1/responses/{id}", get, "response", "A stored response.", errors=(404,)),
    Route(
        "DELETE",
        "/v1/responses/{id}",
        delete,
        "response_delete",
        "Forget a stored response.",
        errors=(404,),
    ),
)

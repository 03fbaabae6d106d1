"""POST /v1/responses, and what becomes of a response afterwards."""

from __future__ import annotations

import secrets
import time
from contextlib import AsyncExitStack
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta, Struct

from hermes.app.session import Session
from hermes.config.api_server import ToolItems
from hermes.core.errors import StoreError
from hermes.core.events import TurnEvent, TurnResult
from hermes.core.message import Message
from hermes.core.provider import Effort
from hermes.server.http import web
from hermes.server.http.client_quirks import runs_every_call
from hermes.server.http.errors import bad, missing
from hermes.server.http.idempotency import once
from hermes.server.http.request_schemas import Execution, Flag, Input
from hermes.server.http.response_schemas import Deleted, Response
from hermes.server.http.route import Call, Route, flag
from hermes.server.turns.client_tools import ClientTools, names_of, open_calls, wanted
from hermes.server.turns.image_links import shown_as
from hermes.server.turns.outcome import incomplete, incomplete_headers, turn_headers
from hermes.server.turns.response_input import read_input
from hermes.server.turns.response_items import Hosted, Narrator, fail, items_of, none_hosted, settle
from hermes.server.turns.sessions import Ask, alone, session_headers, speakable, wanted_settings
from hermes.server.turns.stored_responses import KIND, Kept, load_kept
from hermes.server.turns.streaming import follow, to_the_end, whatever_comes

TOOL_ITEMS = "X-Hermes-Tool-Items"
NAMES = "conversation"
_MOST_NAMES = 1000
_TRUNCATED = 100
"""Messages of history that `truncation: auto` leaves."""


class Reasoning(Struct):
    effort: Effort | None = None


class ResponsesRequest(Struct):
    input: Input
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    store: Flag | None = None
    stream: Flag | None = None
    truncation: str | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_output_tokens: int | None = None
    reasoning: Reasoning | None = None
    metadata: dict[str, Any] | None = None
    tools: Any = None
    tool_choice: Any = None
    tool_execution: Execution | None = None


class _Work(Struct):
    """One request on its way."""

    call: Call
    body: ResponsesRequest
    ask: Ask
    past: tuple[Message, ...]
    """All of it; the ask may hold less."""
    instructions: str
    """What the next response inherits."""
    store: bool
    name: str
    response: dict[str, Any]
    hosted: Hosted
    session: str = ""

    def opened(self, session: Session) -> None:
        self.session = session.id
        if self.ask.session:  # the past is the store's, not the client's
            known = session.transcript.client_history
            self.past = known.messages if known else ()


async def create(call: Call) -> web.StreamResponse:
    body = call.json(ResponsesRequest)
    if not flag(body.stream, "stream"):
        return await once(call, lambda: _whole(call, body))
    held = AsyncExitStack()
    async with held:
        work = await _prepare(call, body, held)
        return await follow(call, work.ask, lambda s: _Telling(work, s), held.pop_all())


# -- reading the request ---------------------------------------------------------------------


def _conversation_name(body: ResponsesRequest) -> str:
    given = body.conversation
    name = given.get("id") if isinstance(given, dict) else given
    if name is None:
        return ""
    if not isinstance(name, str) or not 0 < len(name) <= 256 or not speakable(name):
        raise bad("conversation must be a name of at most 256 characters.", "conversation")
    if body.previous_response_id:
        raise bad("Cannot use both conversation and previous_response_id.", "conversation")
    return name


async def _prepare(call: Call, body: ResponsesRequest, held: AsyncExitStack) -> _Work:
    """Turns of one named conversation come one after the other."""
    name = _conversation_name(body)
    if name:
        turns = alone(call.server, f"{NAMES}/{call.principal.name}/{name}")
        await held.enter_async_context(turns)
    tools = wanted(body.tool_execution, body.tools, body.tool_choice)
    store = flag(body.store, "store", default=True)
    headers = session_headers(call)
    previous = await _previous(call, body, name)
    transcript = previous.transcript if previous else ()
    made = {c.id: c.name for m in transcript for c in m.calls} if tools else None
    given = read_input(body.input, made)
    instructions = body.instructions
    if instructions is None:
        instructions = previous.instructions if previous else ""
    past = (*transcript, *given.before)
    ask = Ask(
        given.prompt,
        past[-_TRUNCATED:] if body.truncation == "auto" else past,
        "\n\n".join(filter(None, (instructions, given.system))),
        session=headers.session,
        session_key=headers.key,
        chain=previous.session if previous else f"api-{secrets.token_hex(16)}",
        keep=store,
        client_tools=tools,
        settings=_settings(call, body),
    )
    response = _new(call, body, instructions, tools)
    hosted = _hosted(call, body) if tools is None else none_hosted
    return _Work(call, body, ask, past, instructions, store, name, response, hosted)


def _hosted(call: Call, body: ResponsesRequest) -> Hosted:
    """A call that the client would run as well must not look like one."""
    wanted = call.request.headers.get(TOOL_ITEMS)
    if wanted and wanted not in get_args(ToolItems):
        raise bad(f"{TOOL_ITEMS} is one of {', '.join(get_args(ToolItems))}.")
    if not wanted and runs_every_call(call.request.headers):
        wanted = "mcp_call"
    if (wanted or call.server.settings.tool_items) == "mcp_call":
        return lambda _: True
    return none_hosted if wanted else names_of(body.tools).__contains__


def _settings(call: Call, body: ResponsesRequest) -> dict[str, Any]:
    effort = body.reasoning.effort if body.reasoning else None
    return wanted_settings(
        call.server,
        tokens=body.max_output_tokens,
        temperature=body.temperature,
        effort=effort,
    )


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


def _named(owner: str, name: str) -> str:
    return f"{owner}/{name}"


def _new(
    call: Call, body: ResponsesRequest, instructions: str, tools: ClientTools | None
) -> dict[str, Any]:
    metadata = body.metadata or {}
    return {
        "id": f"resp_{secrets.token_hex(16)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": instructions or None,
        "metadata": {name: text for name, text in metadata.items() if isinstance(text, str)},
        "model": body.model or call.server.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": body.previous_response_id,
        "temperature": body.temperature,
        "tool_choice": (body.tool_choice or "auto") if tools else "auto",
        "tools": (body.tools or []) if tools else [],
        "top_p": None,
        "truncation": "auto" if body.truncation == "auto" else "disabled",
        "usage": None,
    }


# -- keeping ---------------------------------------------------------------------------------


async def _keep(work: _Work, added: tuple[Message, ...]) -> None:
    if not work.store:
        return
    server = work.call.server
    owner = work.call.principal.name
    transcript = (*work.past, *added)
    kept = Kept(work.response, transcript, work.session, work.instructions, server.token)
    objects = server.runtime.store.objects
    identity = work.response["id"]
    most = server.settings.max_stored_responses
    await objects.put(KIND, identity, msgspec.msgpack.encode(kept), owner=owner, keep_latest=most)
    if work.name:
        name = _named(owner, work.name)
        await objects.put(NAMES, name, identity.encode(), owner=owner, keep_latest=_MOST_NAMES)


# -- answering -------------------------------------------------------------------------------


async def _whole(call: Call, body: ResponsesRequest) -> web.Response:
    async with AsyncExitStack() as held:
        work = await _prepare(call, body, held)
        result, session = await to_the_end(call, work.ask, work.opened)
        response = work.response
        settle(response, result)
        nothing = result.status != "completed" and not result.text.strip()
        if nothing:
            fail(response, result)
        say = shown_as(call.server, session.transcript.taint)
        response["output"] = items_of(result.messages[1:], work.hosted, say)
        await _keep(work, result.messages or (work.ask.prompt,))
    headers = turn_headers(session.id, work.ask) | incomplete_headers(result)
    if nothing:
        raise incomplete(result, headers)
    return call.answer(response, headers=headers)


class _Telling:
    """Known before it is shown: the response is stored before its id is sent."""

    def __init__(self, work: _Work, session: Session) -> None:
        work.opened(session)
        self.headers = turn_headers(session.id, work.ask)
        self._work = work
        self._narrator = Narrator(work.hosted)

    async def begin(self) -> bytes:
        work = self._work
        response = work.response
        await _keep(work, (work.ask.prompt,))
        if work.store:
            work.call.server.unfinished.add(response["id"])
        return self._narrator.frame("response.created", response=response) + self._narrator.frame(
            "response.in_progress", response=response
        )

    def tell(self, happened: TurnEvent) -> bytes:
        return b"".join(self._narrator.tell(happened))

    async def end(self, result: TurnResult) -> bytes:
        frames = [*self._narrator.close()]
        for call in open_calls(result.messages):
            frames += self._narrator.call(call)
        server, response = self._work.call.server, self._work.response
        try:
            await whatever_comes(server, self._settle(result))
        except StoreError as error:  # what was said is not kept: that is not a success
            response |= {"status": "failed", "incomplete_details": None}
            response["error"] = {"code": "internal", "message": server.redact(str(error))}
        frames.append(self._narrator.frame(f"response.{response['status']}", response=response))
        return b"".join(frames)

    async def _settle(self, result: TurnResult) -> None:
        work = self._work
        work.call.server.metrics.turn(result)
        settle(work.response, result)
        work.response["output"] = self._narrator.items
        unfinished = work.call.server.unfinished
        if work.response["id"] not in unfinished:
            return
        try:
            await _keep(work, result.messages or (work.ask.prompt,))
        finally:
            unfinished.discard(work.response["id"])


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
    call.server.unfinished.discard(identity)
    for name in await objects.list_all(NAMES, owner=owner):
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
        answer=Response,
        headers=("Idempotency-Key", "X-Hermes-Session-Id", "X-Hermes-Session-Key"),
    ),
    Route(
        "GET",
        "/v1/responses/{id}",
        get,
        "response",
        "A stored response.",
        errors=(404,),
        answer=Response,
    ),
    Route(
        "DELETE",
        "/v1/responses/{id}",
        delete,
        "response_delete",
        "Forget a stored response.",
        errors=(404,),
        answer=Deleted,
    ),
)

"""/v1/responses: create responses, and read or delete stored ones."""

import asyncio
import secrets
import time
from collections.abc import Container
from contextlib import AsyncExitStack
from typing import Annotated, Any, get_args

from msgspec import Meta, Struct

from hermes.app.session import Session
from hermes.config.api_server import ToolItems
from hermes.core.errors import StoreError
from hermes.core.events import TurnEvent, TurnResult
from hermes.core.message import Message
from hermes.core.provider import Effort
from hermes.server.http import web
from hermes.server.http.call import MAX_NAME_LENGTH, ApiCall, is_plain_text, json_response
from hermes.server.http.client_quirks import runs_every_call
from hermes.server.http.errors import bad_request, not_found
from hermes.server.http.json_body import parse_flag
from hermes.server.http.request_schemas import FlagField, ToolExecution, TurnInput
from hermes.server.http.response_schemas import DeletedObject
from hermes.server.route import Route, RouteServices, turn_route
from hermes.server.turns.client_tools import list_open_calls, list_tool_names, parse_client_tools
from hermes.server.turns.image_links import choose_text_filter
from hermes.server.turns.outcome import build_turn_headers, is_unusable, raise_if_unusable
from hermes.server.turns.response_input import parse_input
from hermes.server.turns.response_items import EVERY_TOOL, ItemEncoder, ResponseObject, build_items
from hermes.server.turns.stored_responses import CONVERSATION_KIND, ResponseStore, StoredResponse
from hermes.server.turns.turn_request import TurnRequest, join_texts, limit_settings

TOOL_ITEMS_HEADER = "X-Hermes-Tool-Items"
_TRUNCATED_MESSAGES = 100
"""How many messages of the history `truncation: auto` keeps."""


class ReasoningOptions(Struct):
    effort: Effort | None = None


class ResponsesRequest(Struct):
    input: TurnInput
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    store: FlagField | None = None
    stream: FlagField | None = None
    truncation: str | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_output_tokens: int | None = None
    reasoning: ReasoningOptions | None = None
    metadata: dict[str, Any] | None = None
    tools: Any = None
    tool_choice: Any = None
    tool_execution: ToolExecution | None = None


class _ResponseTurn(Struct):
    """A request in progress, and what is stored of it."""

    owner: str
    request: TurnRequest
    response: ResponseObject
    past: tuple[Message, ...]
    """The complete past; `request` may have been truncated."""
    instructions: str
    """The instructions that the next response inherits."""
    hosted: Container[str]
    """Tools whose calls must not look like calls for the client to run."""
    is_stored: bool
    conversation: str
    session: str = ""

    def enter_session(self, session: Session) -> None:
        self.session = session.id
        if self.request.session:  # then the past is the stored one, not the request's
            history = session.transcript.client_history
            self.past = history.messages if history else ()

    async def save_response(self, responses: ResponseStore, added: tuple[Message, ...]) -> None:
        """Store the response, if it is to be stored; `added`: the messages of this turn so far."""
        if not self.is_stored:
            return
        transcript = (*self.past, *(added or (self.request.prompt,)))
        stored = StoredResponse(self.response, transcript, self.session, self.instructions)
        await responses.save(self.owner, stored, self.conversation)


async def create_response(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Run one turn and store what is needed to continue from it."""
    body = call.decode_body(ResponsesRequest)
    if not parse_flag(body.stream, "stream"):
        return await services.idempotency.run_once(
            call, lambda: _answer_response(call, services, body)
        )
    async with AsyncExitStack() as resources:
        turn = await _prepare_turn(call, services, body, resources)
        encoder = _ResponseEncoder(services, turn)
        return await services.turns.stream_turn(call, turn.request, encoder, resources.pop_all())


async def _prepare_turn(
    call: ApiCall, services: RouteServices, body: ResponsesRequest, resources: AsyncExitStack
) -> _ResponseTurn:
    """Parse the request. `resources` gets the lock of a named conversation, whose turns run one
    after the other."""
    owner = call.principal.name
    conversation = _parse_conversation(body)
    if conversation:
        lock = f"{CONVERSATION_KIND}/{owner}/{conversation}"
        await resources.enter_async_context(services.turns.sessions.lock_session(lock))
    tools = parse_client_tools(body.tool_execution, body.tools, body.tool_choice)
    is_stored = parse_flag(body.store, "store", default=True)
    session, session_key = call.read_session_headers()
    previous = await _load_previous(services.responses, owner, body, conversation)
    transcript = previous.transcript if previous else ()
    calls = {c.id: c.name for m in transcript for c in m.calls} if tools else None
    system, before, prompt = parse_input(body.input, calls)
    instructions = body.instructions
    if instructions is None:
        instructions = previous.instructions if previous else ""
    past = (*transcript, *before)
    request = TurnRequest(
        prompt,
        past[-_TRUNCATED_MESSAGES:] if body.truncation == "auto" else past,
        join_texts(instructions, system),
        session=session,
        session_key=session_key,
        new_session=previous.session if previous else f"api-{secrets.token_hex(16)}",
        keep=is_stored,
        client_tools=tools,
        settings=limit_settings(
            services.settings.max_output_tokens,
            tokens=body.max_output_tokens,
            temperature=body.temperature,
            effort=body.reasoning.effort if body.reasoning else None,
        ),
    )
    response = _create_response_object(
        body, services.model, instructions, client_tools=tools is not None
    )
    hosted = _choose_hosted_tools(call, body, services.settings.tool_items) if tools is None else ()
    return _ResponseTurn(
        owner, request, response, past, instructions, hosted, is_stored, conversation
    )


def _parse_conversation(body: ResponsesRequest) -> str:
    value = body.conversation
    name = value.get("id") if isinstance(value, dict) else value
    if name is None:
        return ""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or not is_plain_text(name):
        text = f"conversation must be a name of at most {MAX_NAME_LENGTH} characters."
        raise bad_request(text, "conversation")
    if body.previous_response_id:
        raise bad_request("Cannot use both conversation and previous_response_id.", "conversation")
    return name


async def _load_previous(
    responses: ResponseStore, owner: str, body: ResponsesRequest, conversation: str
) -> StoredResponse | None:
    response_id = body.previous_response_id
    if conversation:
        response_id = await responses.find_latest_id(owner, conversation)
    if not response_id:
        return None
    stored = await responses.load(owner, response_id)
    if stored is None and not conversation:
        raise not_found("response", response_id[:80])
    return stored


def _choose_hosted_tools(
    call: ApiCall, body: ResponsesRequest, default: ToolItems
) -> Container[str]:
    """Tools shown as `mcp_call`: by header, by client, by setting, or as the request declares."""
    wanted = call.request.headers.get(TOOL_ITEMS_HEADER)
    if wanted and wanted not in get_args(ToolItems):
        raise bad_request(f"{TOOL_ITEMS_HEADER} must be one of {', '.join(get_args(ToolItems))}.")
    if not wanted and runs_every_call(call.request.headers):
        wanted = "mcp_call"
    if (wanted or default) == "mcp_call":
        return EVERY_TOOL
    return () if wanted else list_tool_names(body.tools)


def _create_response_object(
    body: ResponsesRequest, model: str, instructions: str, *, client_tools: bool
) -> ResponseObject:
    metadata = body.metadata or {}
    return ResponseObject(
        id=f"resp_{secrets.token_hex(16)}",
        object="response",
        created_at=int(time.time()),
        status="in_progress",
        error=None,
        incomplete_details=None,
        instructions=instructions or None,
        metadata={name: text for name, text in metadata.items() if isinstance(text, str)},
        model=body.model or model,
        output=[],
        parallel_tool_calls=True,
        previous_response_id=body.previous_response_id,
        temperature=body.temperature,
        tool_choice=(body.tool_choice or "auto") if client_tools else "auto",
        tools=(body.tools or []) if client_tools else [],
        top_p=None,
        truncation="auto" if body.truncation == "auto" else "disabled",
        usage=None,
    )


async def _answer_response(
    call: ApiCall, services: RouteServices, body: ResponsesRequest
) -> web.Response:
    async with AsyncExitStack() as resources:
        turn = await _prepare_turn(call, services, body, resources)
        result, session = await services.turns.run_turn(call.principal, turn.request)
        turn.enter_session(session)
        response = turn.response
        response.apply_result(result)
        if is_unusable(result):
            response.mark_failed(result.error_code or "server_error", result.error)
        clean = choose_text_filter(services.settings.images, session.transcript.taint)
        response.output = build_items(result.messages[1:], turn.hosted, clean)
        await turn.save_response(services.responses, result.messages)
    headers = build_turn_headers(session.id, turn.request, result)
    raise_if_unusable(result, headers)
    return json_response(response, headers=headers)


class _ResponseEncoder:
    """Encodes the events of a response; stores it before its id is sent and when the turn ends."""

    def __init__(self, services: RouteServices, turn: _ResponseTurn) -> None:
        self._services = services
        self._turn = turn
        self._items = ItemEncoder(turn.hosted)

    async def encode_start(self, session: Session) -> bytes:
        turn, response = self._turn, self._turn.response
        turn.enter_session(session)
        await turn.save_response(self._services.responses, ())
        if turn.is_stored:
            self._services.responses.in_progress.add(response.id)
        return b"".join(
            self._items.encode_frame(kind, response=response)
            for kind in ("response.created", "response.in_progress")
        )

    def encode_event(self, event: TurnEvent) -> bytes:
        return b"".join(self._items.encode_event(event))

    async def encode_end(self, result: TurnResult) -> bytes:
        frames = [*self._items.end_message()]
        for call in list_open_calls(result.messages):
            frames += self._items.encode_call(call)
        response, services = self._turn.response, self._services
        try:
            saving = services.runtime.spawn_task(self._save_result(result), "end of a turn")
            await asyncio.shield(saving)  # it is stored even if the client disconnects now
        except StoreError as error:  # a response that could not be stored has failed
            response.mark_failed("internal", services.turns.redact(str(error)))
        frames.append(self._items.encode_frame(f"response.{response.status}", response=response))
        return b"".join(frames)

    async def _save_result(self, result: TurnResult) -> None:
        response = self._turn.response
        response.apply_result(result)
        response.output = self._items.items
        in_progress = self._services.responses.in_progress
        if response.id not in in_progress:
            return
        try:
            await self._turn.save_response(self._services.responses, result.messages)
        finally:
            in_progress.discard(response.id)


async def get_response(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get a stored response."""
    response_id = call.path_params["id"]
    stored = await services.responses.load(call.principal.name, response_id)
    if stored is None:
        raise not_found("response", response_id)
    return json_response(stored.response)


async def delete_response(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Delete a stored response."""
    response_id = call.path_params["id"]
    if not await services.responses.delete(call.principal.name, response_id):
        raise not_found("response", response_id)
    return json_response(DeletedObject(response_id, "response", True))


_PATH = "/v1/responses/{id}"
ROUTES = (
    turn_route("/v1/responses", create_response, "responses", ResponseObject, ResponsesRequest),
    Route("GET", _PATH, get_response, "response", ResponseObject),
    Route("DELETE", _PATH, delete_response, "response_delete", DeletedObject),
)

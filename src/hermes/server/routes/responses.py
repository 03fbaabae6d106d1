"""/v1/responses: create responses, and read or delete stored ones."""

import asyncio
import secrets
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Literal, get_args

from msgspec import Struct, structs

from hermes.app.session import Session
from hermes.config.api_server import ApiServer, ToolItems
from hermes.core.errors import StoreError
from hermes.core.events import TurnEvent, TurnResult
from hermes.core.message import Message
from hermes.server.http import web
from hermes.server.http.call import MAX_NAME_LENGTH, ApiCall, is_plain_text, json_response
from hermes.server.http.errors import bad_request, not_found, unsupported_parameter
from hermes.server.http.json_body import parse_flag
from hermes.server.http.request_schemas import (
    EffortField,
    FlagField,
    ToolExecutionField,
    TurnInput,
)
from hermes.server.http.response_schemas import DeletedObject
from hermes.server.requests.client_tools import (
    ClientTools,
    choose_execution,
    declares_function,
    list_open_calls,
    list_unused_tools,
    parse_client_tools,
)
from hermes.server.requests.output_format import parse_answer_format
from hermes.server.requests.side_requests import drop_side_tools
from hermes.server.requests.token_count import estimate_tokens
from hermes.server.requests.tool_history import parse_tool_history
from hermes.server.requests.turn_input import parse_input
from hermes.server.requests.turn_request import (
    CommonFields,
    ModelOptions,
    TurnRequest,
    join_texts,
    list_last_results,
)
from hermes.server.route import Route, RouteServices, turn_route
from hermes.server.turns.frame_log import FrameLog
from hermes.server.turns.image_links import choose_text_filter
from hermes.server.turns.outcome import (
    STOPPING_CODE,
    build_turn_headers,
    is_unusable,
    raise_if_unusable,
)
from hermes.server.turns.response_items import (
    ItemEncoder,
    ItemStyle,
    ResponseObject,
    build_input_items,
    build_output,
    replay_frames,
)
from hermes.server.turns.sse import send_frames
from hermes.server.turns.stored_responses import (
    CONVERSATION_KIND,
    ActiveResponse,
    ResponseStore,
    StoredResponse,
)

TOOL_ITEMS_HEADER = "X-Hermes-Tool-Items"
_CANCEL_SECONDS = 10.0
_TRUNCATED_MESSAGES = 100
"""How many messages of the history `truncation: auto` keeps."""


class ReasoningOptions(Struct):
    effort: EffortField | None = None
    summary: str | None = None


class TextOptions(Struct):
    format: Any = None
    verbosity: str | None = None


class ResponsesRequest(CommonFields, kw_only=True):
    input: TurnInput
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    store: FlagField | None = None
    stream: FlagField | None = None
    truncation: str | None = None
    max_output_tokens: int | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    metadata: dict[str, Any] | None = None
    tools: Any = None
    tool_choice: Any = None
    tool_execution: ToolExecutionField | None = None
    include: list[str] | None = None


class InputItems(Struct):
    object: Literal["list"]
    data: list[dict[str, Any]]
    has_more: bool
    first_id: str | None
    last_id: str | None


class InputTokens(Struct):
    object: Literal["response.input_tokens"]
    input_tokens: int


class _ResponseTurn(Struct):
    """A request in progress, and what is stored of it."""

    owner: str
    request: TurnRequest
    response: ResponseObject
    past: tuple[Message, ...]
    """The complete past; `request` may have been truncated."""
    instructions: str
    """The instructions that the next response inherits."""
    style: ItemStyle
    is_stored: bool
    conversation: str
    own_input: tuple[Message, ...]
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
        stored = StoredResponse(
            self.response,
            transcript,
            self.session,
            self.instructions,
            own_input=self.own_input,
        )
        await responses.save(self.owner, stored, self.conversation)


async def create_response(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Run one turn and store what is needed to continue from it."""
    body = call.decode_body(ResponsesRequest)
    if not parse_flag(body.stream, "stream"):
        return await services.turns.idempotency.run_once(
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
    _check_parameters(body)
    owner = call.principal.name
    conversation = _parse_conversation(body)
    if conversation:
        lock = f"{CONVERSATION_KIND}/{owner}/{conversation}"
        await resources.enter_async_context(services.turns.sessions.lock_session(lock))
    is_stored = parse_flag(body.store, "store", default=True)
    session, session_key = call.read_session_headers()
    previous = await _load_previous(services.responses, owner, body, conversation)
    transcript = previous.transcript if previous else ()
    tools, system, (*before, prompt) = _parse_messages(call, body, transcript)
    instructions = body.instructions
    if instructions is None:
        instructions = previous.instructions if previous else ""
    all_instructions = join_texts(instructions, system)
    past = (*transcript, *before)
    options = ModelOptions(
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        seed=body.seed,
        stop=body.stop,
        effort=body.reasoning.effort if body.reasoning else None,
        effort_field="reasoning.effort",
    )
    request = TurnRequest(
        prompt,
        past[-_TRUNCATED_MESSAGES:] if body.truncation == "auto" else past,
        all_instructions,
        session=session,
        session_key=session_key,
        new_session=previous.session if previous else f"api-{secrets.token_hex(16)}",
        keep=is_stored,
        results=list_last_results(before),
        client_tools=drop_side_tools(tools, all_instructions, prompt),
        settings=options.build_settings(services.settings.max_output_tokens),
        answer_format=parse_answer_format(body.text and body.text.format, "text.format"),
        has_own_limit=options.has_limit,
        ignored=(
            *call.list_unknown_fields(ResponsesRequest),
            *list_unused_tools(tools, body.tools),
        ),
    )
    response = _create_response_object(
        body, services.model, instructions, client_tools=tools is not None
    )
    style = _choose_style(call, body, services.settings)
    own_input = (*before, prompt)
    return _ResponseTurn(
        owner, request, response, past, instructions, style, is_stored, conversation, own_input
    )


def _check_parameters(body: ResponsesRequest) -> None:
    """Refuse what this server cannot do and a client would miss."""
    body.check_supported()
    if "message.output_text.logprobs" in (body.include or ()):
        raise unsupported_parameter("logprobs", "they are not available.")


def _parse_messages(
    call: ApiCall, body: ResponsesRequest, transcript: Sequence[Message]
) -> tuple[ClientTools | None, str, Sequence[Message]]:
    """The tools, the system text and the messages of the input, which may have the results of
    calls in the transcript."""
    execution = choose_execution(call, body.tool_execution)
    tools = parse_client_tools(execution, body.tools, body.tool_choice)

    def parse(with_tools: bool) -> tuple[str, Sequence[Message]]:
        known = [c for m in transcript for c in m.calls] if tools else list_open_calls(transcript)
        calls = {c.id: c.name for c in known} if with_tools else None
        with_own = tools is not None and tools.with_own
        system, before, prompt = parse_input(body.input, calls, with_own=with_own)
        return system, (*before, prompt)

    return parse_tool_history(call, parse, tools, execution)


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


def _choose_style(call: ApiCall, body: ResponsesRequest, settings: ApiServer) -> ItemStyle:
    """Calls that ran here are `mcp_call` items by header, by setting, or when the request declares
    a function: its client would run a `function_call` again."""
    wanted = call.request.headers.get(TOOL_ITEMS_HEADER)
    if wanted and wanted not in get_args(ToolItems):
        raise bad_request(f"{TOOL_ITEMS_HEADER} must be one of {', '.join(get_args(ToolItems))}.")
    if not wanted:
        wanted = "mcp_call" if declares_function(body.tools) else settings.tool_items
    asks = body.reasoning is not None and body.reasoning.summary is not None
    return ItemStyle(hosted=wanted == "mcp_call", reasoning=asks or settings.reasoning)


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
        top_p=body.top_p,
        truncation="auto" if body.truncation == "auto" else "disabled",
        usage=None,
        max_output_tokens=body.max_output_tokens,
        reasoning=structs.asdict(body.reasoning) if body.reasoning else None,
        text={"format": (body.text.format if body.text else None) or {"type": "text"}},
    )


async def _answer_response(
    call: ApiCall, services: RouteServices, body: ResponsesRequest
) -> web.Response:
    async with AsyncExitStack() as resources:
        turn = await _prepare_turn(call, services, body, resources)
        result, session = await services.turns.run_turn(call, turn.request)
        turn.enter_session(session)
        response = turn.response
        response.apply_result(result, unusable=is_unusable(result, turn.request))
        clean = choose_text_filter(services.settings.images, session.transcript.taint)
        final_only = turn.request.answer_format is not None
        response.output = build_output(result, turn.style, clean, final_only=final_only)
        await turn.save_response(services.responses, result.messages)
    headers = build_turn_headers(session.id, turn.request, result)
    raise_if_unusable(result, turn.request, headers)
    return json_response(response, headers=headers)


class _ResponseEncoder:
    """Encodes the events of a response; stores it before its id is sent and when the turn ends."""

    def __init__(self, services: RouteServices, turn: _ResponseTurn) -> None:
        self._services = services
        self._turn = turn
        self._items = ItemEncoder(turn.style)
        self.log: FrameLog | None = None

    async def encode_start(self, session: Session) -> bytes:
        turn, response = self._turn, self._turn.response
        turn.enter_session(session)
        await turn.save_response(self._services.responses, ())
        if turn.is_stored:
            responses, spawn = self._services.responses, self._services.runtime.spawn_task
            self.log = responses.open_log(response.id, spawn)
            responses.in_progress[response.id] = ActiveResponse(session.interrupt)
        return b"".join(
            self._items.encode_frame(kind, response=response)
            for kind in ("response.created", "response.in_progress")
        )

    def encode_event(self, event: TurnEvent) -> bytes:
        return b"".join(self._items.encode_event(event))

    def encode_keepalive(self) -> bytes:
        return self._items.encode_frame("keepalive")

    async def encode_end(self, result: TurnResult) -> bytes:
        frames = [*self._items.end_message()]
        for call in list_open_calls(result.messages):
            frames += self._items.encode_call(call)
        response, services = self._turn.response, self._services
        try:
            saving = services.runtime.spawn_task(self._save_result(result), "end of a turn")
            await asyncio.shield(saving)  # it is stored even if the client disconnects now
        except StoreError as error:  # a response that could not be stored has failed
            response.mark_failed("server_error", services.turns.redact(str(error)))
        kind = f"response.{response.end_name}"
        frames.append(self._items.encode_frame(kind, response=response))
        if self.log is not None:  # the task starts after these frames are in the log
            closing = services.responses.close_log(response.id)
            services.runtime.spawn_task(closing, f"frames of {response.id}")
        return b"".join(frames)

    async def _save_result(self, result: TurnResult) -> None:
        response = self._turn.response
        response.apply_result(result, unusable=is_unusable(result, self._turn.request))
        response.output = self._items.items
        is_stopped = result.status == "interrupted" and result.error_code != STOPPING_CODE
        if response.error is not None and not is_stopped:
            response.mark_failed(response.error.code, response.error.message)
        in_progress = self._services.responses.in_progress
        active = in_progress.get(response.id)
        if active is None:
            return
        if active.cancelled:
            response.status = "cancelled"
        try:
            await self._turn.save_response(self._services.responses, result.messages)
        finally:
            in_progress.pop(response.id, None)


async def get_response(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get a stored response; with `stream=true`, the events of its stream."""
    stored = await _load_response(call, services)
    query = call.request.query
    if not parse_flag(query.get("stream"), "stream"):
        return json_response(stored.response)
    after = query.get("starting_after", "-1")
    if not after.removeprefix("-").isdigit() or len(after) > 9:
        raise bad_request("starting_after must be a sequence number.", "starting_after")
    stream = services.responses.read_frames(stored.response.id)
    frames = replay_frames(stream, stored.response, int(after))
    return await send_frames(call.request, services.settings.cors_origins, frames)


async def cancel_response(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Stop a response that is being streamed."""
    stored = await _load_response(call, services)
    in_progress = services.responses.in_progress
    with suppress(TimeoutError):
        async with asyncio.timeout(_CANCEL_SECONDS):
            while (active := in_progress.get(stored.response.id)) is not None:
                active.cancelled = True
                active.stop()
                await asyncio.sleep(0.05)
    return json_response((await _load_response(call, services)).response)


async def list_input_items(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the input of a stored response, the latest item first unless `order=asc`."""
    stored = await _load_response(call, services)
    query = call.request.query
    items = build_input_items(stored.own_input, stored.response.id)
    if query.get("order") != "asc":
        items.reverse()
    if after := query.get("after"):
        known = [item["id"] for item in items]
        if after not in known:
            raise bad_request("after must be the id of an item.", "after")
        del items[: known.index(after) + 1]
    limit = query.get("limit", str(len(items) or 1))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 9 and int(limit)):
        raise bad_request("limit must be a number above 0.", "limit")
    page = items[: int(limit)]
    ids = [item["id"] for item in page] or [None]
    return json_response(InputItems("list", page, len(items) > len(page), ids[0], ids[-1]))


async def count_input_tokens(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Estimate the tokens of a request for a response."""
    body = call.decode_body(ResponsesRequest)
    async with AsyncExitStack() as resources:
        turn = await _prepare_turn(call, services, body, resources)
    request = turn.request
    tools = request.client_tools.specs if request.client_tools else ()
    messages = (*request.past, request.prompt)
    count = estimate_tokens(request.instructions, messages, tools)
    return json_response(InputTokens("response.input_tokens", count))


async def _load_response(call: ApiCall, services: RouteServices) -> StoredResponse:
    response_id = call.path_params["id"]
    stored = await services.responses.load(call.principal.name, response_id)
    if stored is None:
        raise not_found("response", response_id)
    return stored


async def delete_response(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Delete a stored response."""
    response_id = call.path_params["id"]
    if not await services.responses.delete(call.principal.name, response_id):
        raise not_found("response", response_id)
    return json_response(DeletedObject(response_id, "response", True))


_PATH = "/v1/responses/{id}"
ROUTES = (
    turn_route("/v1/responses", create_response, "responses", ResponseObject, ResponsesRequest),
    Route(
        "POST",
        "/v1/responses/input_tokens",
        count_input_tokens,
        "response_input_tokens",
        InputTokens,
        ResponsesRequest,
        errors=(404,),
    ),
    Route(
        "GET",
        _PATH,
        get_response,
        "response",
        ResponseObject,
        streams=True,
        query=("stream", "starting_after"),
    ),
    Route("POST", f"{_PATH}/cancel", cancel_response, "response_cancel", ResponseObject),
    Route(
        "GET",
        f"{_PATH}/input_items",
        list_input_items,
        "response_input_items",
        InputItems,
        query=("order", "after", "limit"),
    ),
    Route("DELETE", _PATH, delete_response, "response_delete", DeletedObject),
)

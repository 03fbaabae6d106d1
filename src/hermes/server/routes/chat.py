"""POST /v1/chat/completions."""

import secrets
import time
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from msgspec import Meta, Struct

from hermes.app.session import Session
from hermes.core import events
from hermes.core.events import TurnEvent, TurnResult
from hermes.core.message import Message, ToolCall, Usage
from hermes.server.http import web
from hermes.server.http.call import ApiCall
from hermes.server.http.errors import bad_request
from hermes.server.http.json_body import encode_json, parse_flag
from hermes.server.http.request_schemas import (
    EffortField,
    FlagField,
    MessageContent,
    ToolExecutionField,
)
from hermes.server.http.response_schemas import AssistantMessage, IncompleteTurn
from hermes.server.requests import client_tools
from hermes.server.requests.content import parse_content, parse_text
from hermes.server.requests.output_format import parse_answer_format
from hermes.server.requests.side_requests import drop_side_tools
from hermes.server.requests.tool_history import parse_tool_history
from hermes.server.requests.turn_request import (
    CommonFields,
    ModelOptions,
    TurnRequest,
    join_texts,
    list_last_results,
    split_prompt,
)
from hermes.server.route import RouteServices, turn_route
from hermes.server.turns.outcome import build_stream_error, describe_incomplete, is_truncated
from hermes.server.turns.sse import DONE_FRAME, KEEPALIVE_COMMENT, encode_frame
from hermes.server.turns.turn_events import is_internal_tool, label_call

_ROLES = ["system", "developer", "user", "assistant", "tool"]


class ChatMessage(Struct):
    role: Annotated[str, Meta(extra_json_schema={"enum": _ROLES})]
    content: MessageContent = None
    tool_calls: Any = None
    tool_call_id: Any = None
    name: Any = None


class StreamOptions(Struct):
    include_usage: bool | None = None


class ChatRequest(CommonFields, kw_only=True):
    messages: list[ChatMessage]
    model: str | None = None
    stream: FlagField | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    reasoning_effort: EffortField | None = None
    response_format: Any = None
    tools: Any = None
    tool_choice: Any = None
    tool_execution: ToolExecutionField | None = None


class ChatChoice(Struct):
    index: int
    message: AssistantMessage
    finish_reason: Literal["stop", "length", "tool_calls", "error"]


class ChatUsage(Struct, omit_defaults=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int] | None = None
    completion_tokens_details: dict[str, int] | None = None


class ChatCompletion(Struct, omit_defaults=True):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    hermes: IncompleteTurn | None = None


async def complete_chat(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Run one turn of a conversation whose history is in the request."""
    body = call.decode_body(ChatRequest)
    request = _parse_request(call, body, services.settings.max_output_tokens)
    model = body.model or services.model
    if not parse_flag(body.stream, "stream"):
        build = partial(_build_completion, model, with_reasoning=services.settings.reasoning)
        return await services.turns.idempotency.run_once(
            call, lambda: services.turns.answer_turn(call, request, build)
        )
    options = body.stream_options
    encoder = _ChunkEncoder(
        model,
        with_usage=bool(options and options.include_usage),
        with_reasoning=services.settings.reasoning,
    )
    return await services.turns.stream_turn(call, request, encoder)


def _parse_request(call: ApiCall, body: ChatRequest, max_output: int | None) -> TurnRequest:
    body.check_supported()
    session, session_key = call.read_session_headers()
    execution = client_tools.choose_execution(call, body.tool_execution)
    tools = client_tools.parse_client_tools(execution, body.tools, body.tool_choice)
    tools, instructions, messages = parse_tool_history(
        call, partial(_parse_messages, body.messages), tools, execution
    )
    past, prompt = split_prompt(messages, "messages")
    options = ModelOptions(
        max_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        seed=body.seed,
        effort=body.reasoning_effort,
        stop=body.stop,
    )
    return TurnRequest(
        prompt,
        past,
        instructions,
        session=session,
        session_key=session_key,
        results=list_last_results(past),
        client_tools=drop_side_tools(tools, instructions, prompt),
        settings=options.build_settings(max_output),
        answer_format=parse_answer_format(body.response_format, "response_format"),
        has_own_limit=options.has_limit,
        ignored=(
            *call.list_unknown_fields(ChatRequest),
            *client_tools.list_unused_tools(tools, body.tools),
        ),
    )


def _parse_messages(messages: list[ChatMessage], with_tools: bool) -> tuple[str, list[Message]]:
    """The system text and all other messages."""
    if not messages:
        raise bad_request("messages must not be empty.", "messages")
    system: list[str] = []
    parsed: list[Message] = []
    call_names: dict[str, str] = {}
    for n, message in enumerate(messages):
        field = f"messages[{n}]"
        match message.role:
            case "system" | "developer":
                system.append(parse_text(message.content, f"{field}.content"))
            case "user":
                parsed.append(Message("user", parse_content(message.content, f"{field}.content")))
            case "assistant":
                parts = parse_content(message.content, f"{field}.content")
                calls: tuple[ToolCall, ...] = ()
                if with_tools:
                    calls = client_tools.parse_tool_calls(message.tool_calls, f"{field}.tool_calls")
                    call_names.update((call.id, call.name) for call in calls)
                parsed.append(Message("assistant", (*parts, *calls)))
            case "tool" | "function":
                if with_tools:
                    parts = parse_content(message.content, f"{field}.content")
                    call_id = message.tool_call_id
                    result = client_tools.parse_tool_result(call_id, parts, call_names, field)
                    parsed.append(result)
            case _:
                raise bad_request(f"{field}.role is unknown.", f"{field}.role")
    return join_texts(*system), parsed


def _build_completion(model: str, result: TurnResult, *, with_reasoning: bool) -> ChatCompletion:
    message = AssistantMessage("assistant", result.text)
    if calls := _list_open_calls(result):
        message.content, message.tool_calls = result.text or None, calls
    if with_reasoning:
        message.reasoning_content = result.reasoning
    return ChatCompletion(
        _create_completion_id(),
        "chat.completion",
        int(time.time()),
        model,
        [ChatChoice(0, message, _choose_finish_reason(result))],
        _build_usage(result.usage),
        describe_incomplete(result),
    )


def _list_open_calls(result: TurnResult) -> list[dict[str, Any]]:
    """The calls that the client must run."""
    return [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.args or "{}"}}
        for c in client_tools.list_open_calls(result.messages)
    ]


def _choose_finish_reason(result: TurnResult) -> Literal["stop", "length", "tool_calls", "error"]:
    if result.status == "completed":
        return "tool_calls" if client_tools.list_open_calls(result.messages) else "stop"
    return "length" if is_truncated(result) else "error"


def _build_usage(usage: Usage) -> ChatUsage:
    cached, reasoning = usage.cache_read, usage.reasoning
    return ChatUsage(
        usage.input,
        usage.output,
        usage.input + usage.output,
        {"cached_tokens": cached} if cached else None,
        {"reasoning_tokens": reasoning} if reasoning else None,
    )


def _create_completion_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"


class _ChunkEncoder:
    """Encodes the chunks of one answer; what they share is encoded once."""

    log = None

    def __init__(self, model: str, *, with_usage: bool, with_reasoning: bool) -> None:
        chunk = {
            "id": _create_completion_id(),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }
        self._head = b"data: " + orjson.dumps(chunk)[:-1] + b","
        self._delta_head = self._head + b'"choices":[{"index":0,"delta":{"'
        self._delta_tail = b'},"finish_reason":null}]}\n\n'
        self._with_usage = with_usage
        self._with_reasoning = with_reasoning
        self._running: dict[str, tuple[str, str]] = {}
        """Running tools: name and label by call id."""

    async def encode_start(self, session: Session) -> bytes:
        return self._delta_head + b'role":"assistant","content":""' + self._delta_tail

    def encode_event(self, event: TurnEvent) -> bytes:
        match event:
            case events.TextDelta(text):
                return self._encode_delta(b"content", text)
            case events.ThinkingDelta(text) if self._with_reasoning:
                return self._encode_delta(b"reasoning_content", text)
            case events.ToolStarted(call) if not is_internal_tool(call.name):
                tool = self._running[call.id] = (call.name, label_call(call))
                return self._encode_progress(tool, call.id, "running")
            case events.ToolDone(result) if done := self._running.pop(result.call_id, None):
                return self._encode_progress(done, result.call_id, "completed")
            case _:
                return b""

    def encode_keepalive(self) -> bytes:
        return KEEPALIVE_COMMENT

    async def encode_end(self, result: TurnResult) -> bytes:
        """The last chunk. The usage is in it, or in a chunk of its own: a client that adds up all
        chunks must not count it twice."""
        calls = [{"index": n, **call} for n, call in enumerate(_list_open_calls(result))]
        delta = {"tool_calls": calls} if calls else {}
        reason = _choose_finish_reason(result)
        frames = b""
        if reason == "error":
            frames = b"data: " + build_stream_error(result).encode_envelope() + b"\n\n"
        usage = _build_usage(result.usage)
        last: dict[str, Any] = {
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
            "usage": None if self._with_usage else usage,
        }
        if incomplete := describe_incomplete(result):
            last["hermes"] = incomplete
        frames += self._encode_chunk(last)
        if self._with_usage:
            frames += self._encode_chunk({"choices": [], "usage": usage})
        return frames + DONE_FRAME

    def _encode_chunk(self, fields: dict[str, Any]) -> bytes:
        return self._head + encode_json(fields)[1:] + b"\n\n"

    def _encode_delta(self, field: bytes, text: str) -> bytes:
        return b"".join((self._delta_head, field, b'":', orjson.dumps(text), self._delta_tail))

    def _encode_progress(self, tool: tuple[str, str], call_id: str, status: str) -> bytes:
        """Encode tool progress. It is an empty chunk as well: many clients read every event of the
        stream as a chunk."""
        name, label = tool
        data = orjson.dumps({"tool": name, "label": label, "toolCallId": call_id, "status": status})
        chunk = self._head.removeprefix(b"data: {") + b'"choices":[]}'
        return encode_frame("hermes.tool.progress", data[:-1] + b"," + chunk)


_PATH = "/v1/chat/completions"
ROUTES = (turn_route(_PATH, complete_chat, "chat_completions", ChatCompletion, ChatRequest),)

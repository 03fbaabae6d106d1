"""POST /v1/messages, the Messages protocol of Anthropic."""

import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import orjson
from msgspec import Meta, Struct

from hermes.app.session import Session
from hermes.core.events import TextDelta, ThinkingDelta, TurnEvent, TurnResult
from hermes.core.message import Media, Message, Text, ToolCall, Usage
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import bad_request, describe_anthropic_error
from hermes.server.http.headers import get_request_id
from hermes.server.http.json_body import parse_flag
from hermes.server.http.request_schemas import (
    EffortField,
    FlagField,
    MessageContent,
    ToolExecutionField,
)
from hermes.server.http.response_schemas import IncompleteTurn
from hermes.server.requests.client_tools import (
    ClientTools,
    choose_execution,
    list_open_calls,
    list_unused_tools,
    parse_client_tools,
    parse_tool_result,
)
from hermes.server.requests.content import (
    has_visible_content,
    parse_content,
    parse_image_url,
    parse_text,
)
from hermes.server.requests.output_format import parse_answer_format
from hermes.server.requests.side_requests import drop_side_tools
from hermes.server.requests.token_count import estimate_tokens
from hermes.server.requests.tool_history import parse_tool_history
from hermes.server.requests.turn_request import (
    CommonFields,
    ModelOptions,
    TurnRequest,
    join_texts,
    list_last_results,
    split_prompt,
)
from hermes.server.route import Route, RouteServices, turn_route
from hermes.server.turns.outcome import build_stream_error, describe_incomplete, is_truncated
from hermes.server.turns.sse import encode_frame

_BLOCK_TYPES = ["text", "image", "tool_use", "tool_result", "thinking"]
_BLOCK = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": _BLOCK_TYPES}},
}
_SKIPPED_BLOCKS = frozenset(
    "tool_use tool_result thinking redacted_thinking server_tool_use web_search_tool_result "
    "web_fetch_tool_result code_execution_tool_result mcp_tool_use mcp_tool_result "
    "container_upload".split()
)
"""Blocks of tools that others ran, and of reasoning that only its provider can read."""
_BLOCKS = {"anyOf": [{"type": "string"}, {"type": "array", "items": _BLOCK}]}


class InputMessage(Struct):
    role: Annotated[str, Meta(extra_json_schema={"enum": ["user", "assistant", "system"]})]
    content: Annotated[Any, Meta(extra_json_schema=_BLOCKS)]


class ThinkingOptions(Struct):
    type: str = "disabled"
    budget_tokens: int | None = None


class OutputOptions(Struct):
    effort: EffortField | None = None
    format: Any = None


class CountRequest(CommonFields, kw_only=True):
    messages: list[InputMessage]
    model: str | None = None
    system: MessageContent = None
    tools: Any = None
    tool_choice: Any = None
    tool_execution: ToolExecutionField | None = None
    thinking: ThinkingOptions | None = None
    thread: Any = None


class MessagesRequest(CountRequest, kw_only=True):
    max_tokens: Annotated[int, Meta(ge=1)]
    stream: FlagField | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_sequences: list[str] | None = None
    output_config: OutputOptions | None = None
    metadata: Any = None


class TokenCount(Struct):
    input_tokens: int


StopReason: TypeAlias = Literal["end_turn", "max_tokens", "tool_use", "refusal"]


class AnthropicMessage(Struct, omit_defaults=True):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: dict[str, int]
    hermes: IncompleteTurn | None = None


async def create_message(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Run one turn in the Messages protocol of Anthropic."""
    body = call.decode_body(MessagesRequest)
    request = _parse_request(call, body, services.settings.max_output_tokens)
    model = body.model or services.model
    if not parse_flag(body.stream, "stream"):
        build = partial(_build_message, model, with_reasoning=services.settings.reasoning)
        return await services.turns.idempotency.run_once(
            call, lambda: services.turns.answer_turn(call, request, build)
        )
    encoder = _MessageEncoder(
        model, get_request_id(call.request), with_reasoning=services.settings.reasoning
    )
    return await services.turns.stream_turn(call, request, encoder)


async def count_tokens(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Estimate the tokens of a request for a message."""
    body = call.decode_body(CountRequest)
    tools, instructions, messages = _parse_conversation(call, body)
    specs = tools.specs if tools else ()
    return json_response(TokenCount(estimate_tokens(instructions, messages, specs)))


def _parse_conversation(
    call: ApiCall, body: CountRequest
) -> tuple[ClientTools | None, str, Sequence[Message]]:
    """The tools, the instructions and the messages of a request."""
    if body.thread is not None:
        error = bad_request("thread is not supported. Send the complete messages.", "thread")
        error.extra = {"details": {"error_code": "thread_unsupported_request"}}
        raise error
    execution = choose_execution(call, body.tool_execution)
    tools = parse_client_tools(execution, body.tools, body.tool_choice)
    return parse_tool_history(call, partial(_parse_messages, body), tools, execution)


def _parse_request(call: ApiCall, body: MessagesRequest, max_output: int | None) -> TurnRequest:
    body.check_supported()
    session, session_key = call.read_session_headers()
    tools, instructions, messages = _parse_conversation(call, body)
    past, prompt = split_prompt(messages, "messages")
    output = body.output_config or OutputOptions()
    options = ModelOptions(
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        seed=body.seed,
        effort=output.effort,
        effort_field="output_config.effort",
        stop=body.stop_sequences or body.stop,
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
        answer_format=parse_answer_format(output.format, "output_config.format"),
        has_own_limit=True,
        ignored=(*call.list_unknown_fields(MessagesRequest), *list_unused_tools(tools, body.tools)),
    )


def _parse_messages(body: CountRequest, with_tools: bool) -> tuple[str, list[Message]]:
    """The system text and all other messages."""
    if not body.messages:
        raise bad_request("messages must not be empty.", "messages")
    system = [parse_text(body.system, "system")]
    parsed: list[Message] = []
    call_names: dict[str, str] = {}
    for n, message in enumerate(body.messages):
        field = f"messages[{n}].content"
        if message.role == "system":
            system.append(parse_text(message.content, field))
            continue
        if message.role not in ("user", "assistant"):
            role = f"messages[{n}].role"
            raise bad_request(f"{role} must be user, assistant or system.", role)
        blocks = message.content
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if not isinstance(blocks, list):
            raise bad_request(f"{field} must be a string or a list of blocks.", field)
        parsed += _parse_blocks(message.role, blocks, call_names if with_tools else None, field)
    return join_texts(*system), parsed


def _parse_blocks(
    role: str, blocks: list[Any], call_names: dict[str, str] | None, field: str
) -> Iterator[Message]:
    """Yield a message per tool result, then one of all other blocks. `call_names`: the names of the
    tool calls so far, by id; None leaves tool blocks out, for tools that the server runs."""
    parts: list[Any] = []
    for n, block in enumerate(blocks):
        block_field = f"{field}[{n}]"
        if not isinstance(block, dict):
            raise bad_request(f"{block_field} must be an object.", block_field)
        match block.get("type"):
            case "text":
                parts += parse_content([block], block_field)
            case "image":
                parts.append(_parse_image_block(block, block_field))
            case "tool_use" if call_names is not None:
                parts.append(_parse_tool_use(block, call_names, block_field))
            case "tool_result" if call_names is not None:
                yield parse_tool_result(
                    block.get("tool_use_id"),
                    _parse_result_content(block.get("content"), block_field),
                    call_names,
                    block_field,
                    error=block.get("is_error") is True,
                )
            case "document" if isinstance(text := _read_document(block), str):
                parts.append(Text(text))
            case kind if kind in _SKIPPED_BLOCKS:
                continue
            case kind:
                raise bad_request(
                    f"{block_field}: blocks of type {str(kind)[:40]!r} are not supported.",
                    block_field,
                    "unsupported_content_type",
                )
    message = Message("user" if role == "user" else "assistant", tuple(parts))
    if has_visible_content(message) or message.calls:
        yield message


def _parse_result_content(content: Any, field: str) -> list[Text | Media]:
    """The texts and images of a tool result; other blocks are left out."""
    if not isinstance(content, list):
        return list(parse_content(content, field))
    parts: list[Text | Media] = []
    for n, block in enumerate(content):
        match block.get("type") if isinstance(block, dict) else None:
            case "image":
                parts.append(_parse_image_block(block, f"{field}[{n}]"))
            case "text":
                parts += parse_content([block], f"{field}[{n}]")
    return parts


def _read_document(block: dict[str, Any]) -> str | None:
    """The text of a document; None for one that is not text."""
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") == "text":
        return str(source.get("data") or "")
    return None


def _parse_image_block(block: dict[str, Any], field: str) -> Media:
    source = block.get("source")
    if not isinstance(source, dict):
        raise bad_request(f"{field}.source must be an object.", field)
    if source.get("type") == "url":
        return parse_image_url(str(source.get("url") or ""), field)
    return parse_image_url(f"data:{source.get('media_type')};base64,{source.get('data')}", field)


def _parse_tool_use(block: dict[str, Any], call_names: dict[str, str], field: str) -> ToolCall:
    call_id, name = block.get("id"), block.get("name")
    if not isinstance(call_id, str) or not isinstance(name, str):
        raise bad_request(f"{field} must have an id and a name.", field)
    call_names[call_id] = name
    return ToolCall(call_id, name, orjson.dumps(block.get("input") or {}).decode())


def _build_message(model: str, result: TurnResult, *, with_reasoning: bool) -> AnthropicMessage:
    message = _create_empty_message(model)
    if with_reasoning and (thinking := result.reasoning):
        message.content.append({"type": "thinking", "thinking": thinking, "signature": ""})
    if result.text:
        message.content.append({"type": "text", "text": result.text})
    message.content += _list_tool_uses(result)
    message.stop_reason = _choose_stop_reason(result)
    message.usage = _build_usage(result.usage)
    message.hermes = describe_incomplete(result)
    return message


def _create_empty_message(model: str) -> AnthropicMessage:
    message_id = f"msg_{secrets.token_hex(12)}"
    usage = _build_usage(Usage())
    return AnthropicMessage(message_id, "message", "assistant", model, [], None, None, usage)


def _choose_stop_reason(result: TurnResult) -> StopReason | None:
    """Why the answer ended; None for a failure, which no reason of the protocol describes."""
    if result.status == "completed":
        return "tool_use" if list_open_calls(result.messages) else "end_turn"
    if is_truncated(result):
        return "max_tokens"
    return "refusal" if result.error_code == "content_policy" else None


def _build_usage(usage: Usage) -> dict[str, int]:
    """Token counts; in this protocol, cached tokens are not part of the input."""
    return {
        "input_tokens": max(0, usage.input - usage.cache_read - usage.cache_write),
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": usage.output,
    }


def _list_tool_uses(result: TurnResult) -> list[dict[str, Any]]:
    """The calls that the client must run."""
    return [
        {"type": "tool_use", "id": c.id, "name": c.name, "input": _parse_call_args(c)}
        for c in list_open_calls(result.messages)
    ]


def _parse_call_args(call: ToolCall) -> Any:
    try:
        return orjson.loads(call.args or "{}")
    except orjson.JSONDecodeError:
        return {}


class _MessageEncoder:
    """Encodes the events of one answer; at most one content block is open."""

    log = None

    def __init__(self, model: str, request_id: str, *, with_reasoning: bool) -> None:
        self._request_id = request_id
        self._message = _create_empty_message(model)
        self._with_reasoning = with_reasoning
        self._index = -1
        self._open_kind = ""

    async def encode_start(self, session: Session) -> bytes:
        return _encode_event("message_start", message=self._message)

    def encode_event(self, event: TurnEvent) -> bytes:
        match event:
            case TextDelta(text):
                return self._encode_delta("text", text)
            case ThinkingDelta(text) if self._with_reasoning:
                return self._encode_delta("thinking", text)
            case _:
                return b""

    def encode_keepalive(self) -> bytes:
        return _encode_event("ping")

    async def encode_end(self, result: TurnResult) -> bytes:
        frames = self._close_block()
        for block in _list_tool_uses(result):
            frames += self._encode_tool_use(block)
        if result.status != "completed" and not is_truncated(result):
            error = describe_anthropic_error(build_stream_error(result))
            return frames + _encode_event("error", error=error, request_id=self._request_id)
        delta = {"stop_reason": _choose_stop_reason(result), "stop_sequence": None}
        last: dict[str, Any] = {"delta": delta, "usage": _build_usage(result.usage)}
        if incomplete := describe_incomplete(result):
            last["hermes"] = incomplete
        return frames + _encode_event("message_delta", **last) + _encode_event("message_stop")

    def _encode_delta(self, kind: str, text: str) -> bytes:
        head = b""
        if self._open_kind != kind:
            head = self._close_block() + self._open_block(kind)
        delta = {"type": f"{kind}_delta", kind: text}
        return head + _encode_event("content_block_delta", index=self._index, delta=delta)

    def _open_block(self, kind: str) -> bytes:
        self._index += 1
        self._open_kind = kind
        block = {"type": kind, kind: ""}
        if kind == "thinking":
            block["signature"] = ""
        return _encode_event("content_block_start", index=self._index, content_block=block)

    def _close_block(self) -> bytes:
        if not self._open_kind:
            return b""
        self._open_kind = ""
        return _encode_event("content_block_stop", index=self._index)

    def _encode_tool_use(self, block: dict[str, Any]) -> bytes:
        self._index += 1
        position = {"index": self._index}
        delta = {"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()}
        return (
            _encode_event("content_block_start", **position, content_block={**block, "input": {}})
            + _encode_event("content_block_delta", **position, delta=delta)
            + _encode_event("content_block_stop", **position)
        )


def _encode_event(name: str, **data: Any) -> bytes:
    return encode_frame(name, {"type": name, **data})


ROUTES = (
    turn_route(
        "/v1/messages",
        create_message,
        "messages",
        AnthropicMessage,
        MessagesRequest,
    ),
    Route(
        "POST",
        "/v1/messages/count_tokens",
        count_tokens,
        "messages_count_tokens",
        TokenCount,
        CountRequest,
    ),
)

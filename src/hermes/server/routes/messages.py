"""POST /v1/messages, the Messages protocol of Anthropic."""

import secrets
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from msgspec import Meta, Struct

from hermes.app.session import Session
from hermes.core.events import TextDelta, ThinkingDelta, TurnEvent, TurnResult
from hermes.core.message import Media, Message, ToolCall, Usage
from hermes.server.http import web
from hermes.server.http.call import ApiCall
from hermes.server.http.errors import bad_request
from hermes.server.http.json_body import parse_flag
from hermes.server.http.request_schemas import FlagField, MessageContent, ToolExecution
from hermes.server.http.response_schemas import IncompleteTurn
from hermes.server.route import RouteServices, turn_route
from hermes.server.turns.client_tools import list_open_calls, parse_client_tools, parse_tool_result
from hermes.server.turns.content import (
    has_visible_content,
    parse_content,
    parse_image_url,
    parse_text,
)
from hermes.server.turns.outcome import describe_incomplete, is_unusable
from hermes.server.turns.sse import encode_frame
from hermes.server.turns.turn_request import TurnRequest, limit_settings, split_prompt

_BLOCK_TYPES = ["text", "image", "tool_use", "tool_result", "thinking"]
_BLOCK = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": _BLOCK_TYPES}},
}
_BLOCKS = {"anyOf": [{"type": "string"}, {"type": "array", "items": _BLOCK}]}


class InputMessage(Struct):
    role: Annotated[str, Meta(extra_json_schema={"enum": ["user", "assistant"]})]
    content: Annotated[Any, Meta(extra_json_schema=_BLOCKS)]


class ThinkingOptions(Struct):
    type: str = "disabled"
    budget_tokens: int | None = None


class MessagesRequest(Struct):
    messages: list[InputMessage]
    max_tokens: Annotated[int, Meta(ge=1)]
    model: str | None = None
    system: MessageContent = None
    stream: FlagField | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_sequences: list[str] | None = None
    tools: Any = None
    tool_choice: Any = None
    tool_execution: ToolExecution | None = None
    thinking: ThinkingOptions | None = None
    metadata: Any = None


class AnthropicMessage(Struct, omit_defaults=True):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal["end_turn", "max_tokens", "tool_use"] | None
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
        return await services.idempotency.run_once(
            call, lambda: services.turns.answer_turn(call, request, build)
        )
    encoder = _MessageEncoder(model, with_reasoning=services.settings.reasoning)
    return await services.turns.stream_turn(call, request, encoder)


def _parse_request(call: ApiCall, body: MessagesRequest, max_output: int | None) -> TurnRequest:
    session, session_key = call.read_session_headers()
    tools = parse_client_tools(body.tool_execution, body.tools, body.tool_choice)
    messages = _parse_messages(body.messages, client_tools=tools is not None)
    past, prompt = split_prompt(messages, "messages")
    return TurnRequest(
        prompt,
        past,
        parse_text(body.system, "system"),
        session=session,
        session_key=session_key,
        client_tools=tools,
        settings=limit_settings(
            max_output,
            tokens=body.max_tokens,
            temperature=body.temperature,
            stop=body.stop_sequences,
        ),
    )


def _parse_messages(messages: list[InputMessage], *, client_tools: bool) -> list[Message]:
    if not messages:
        raise bad_request("messages must not be empty.", "messages")
    parsed: list[Message] = []
    call_names: dict[str, str] = {}
    for n, message in enumerate(messages):
        field = f"messages[{n}].content"
        if message.role not in ("user", "assistant"):
            role = f"messages[{n}].role"
            raise bad_request(f"{role} must be user or assistant.", role)
        blocks = message.content
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if not isinstance(blocks, list):
            raise bad_request(f"{field} must be a string or a list of blocks.", field)
        parsed += _parse_blocks(message.role, blocks, call_names if client_tools else None, field)
    return parsed


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
                call_id, content = block.get("tool_use_id"), block.get("content")
                yield parse_tool_result(call_id, content, call_names, block_field)
            case "tool_use" | "tool_result" | "thinking" | "redacted_thinking":
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


def _choose_stop_reason(result: TurnResult) -> Literal["end_turn", "max_tokens", "tool_use"]:
    if list_open_calls(result.messages):
        return "tool_use"
    return "max_tokens" if result.error_code == "output_truncated" else "end_turn"


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

    def __init__(self, model: str, *, with_reasoning: bool) -> None:
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

    async def encode_end(self, result: TurnResult) -> bytes:
        frames = self._close_block()
        for block in _list_tool_uses(result):
            frames += self._encode_tool_use(block)
        if is_unusable(result):
            error = {"type": "api_error", "message": result.error or "The agent did not finish."}
            return frames + _encode_event("error", error=error)
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
        x_api_key=True,
    ),
)

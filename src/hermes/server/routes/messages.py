"""POST /v1/messages: the same agent for clients that speak Anthropic's protocol."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct

from hermes.core.events import TextDelta, ThinkingDelta, TurnEvent, TurnResult
from hermes.core.message import Media, Message, Text, ToolCall, Usage
from hermes.server.http import web
from hermes.server.http.errors import bad
from hermes.server.http.idempotency import once
from hermes.server.http.request_schemas import Blocks, Content, Execution, Flag, Turns
from hermes.server.http.response_schemas import AnthropicMessage
from hermes.server.http.route import Call, Route, flag
from hermes.server.turns.client_tools import open_calls, returned, wanted
from hermes.server.turns.content import image, parts_of, visible
from hermes.server.turns.outcome import ending, incomplete, incomplete_headers, turn_headers
from hermes.server.turns.sessions import Ask, session_headers, wanted_settings
from hermes.server.turns.sse import event
from hermes.server.turns.streaming import follow, to_the_end


class Turned(Struct):
    """A message of the protocol."""

    role: Turns
    content: Blocks


class Thinking(Struct):
    type: str = "disabled"
    budget_tokens: int | None = None


class MessagesRequest(Struct):
    messages: list[Turned]
    max_tokens: Annotated[int, Meta(ge=1)]
    model: str | None = None
    system: Content = None
    stream: Flag | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_sequences: list[str] | None = None
    tools: Any = None
    tool_choice: Any = None
    tool_execution: Execution | None = None
    thinking: Thinking | None = None
    metadata: Any = None


async def create(call: Call) -> web.StreamResponse:
    body = call.json(MessagesRequest)
    headers = session_headers(call)
    tools = wanted(body.tool_execution, body.tools, body.tool_choice)
    past, prompt = _talk(body.messages, client_tools=tools is not None)
    ask = Ask(
        prompt,
        past,
        Message("user", parts_of(body.system, "system")).text,
        session=headers.session,
        session_key=headers.key,
        client_tools=tools,
        settings=wanted_settings(
            call.server,
            tokens=body.max_tokens,
            temperature=body.temperature,
            effort=None,
            stop=body.stop_sequences,
        ),
    )
    if not flag(body.stream, "stream"):
        return await once(call, lambda: _whole(call, body, ask))
    return await follow(call, ask, lambda session: _Telling(call, body, ask, session.id))


# -- reading the request ---------------------------------------------------------------------


def _talk(messages: list[Turned], *, client_tools: bool) -> tuple[tuple[Message, ...], Message]:
    if not messages:
        raise bad("messages must not be empty.", "messages")
    spoken: list[Message] = []
    made: dict[str, str] = {}
    for n, message in enumerate(messages):
        where = f"messages[{n}].content"
        if message.role not in ("user", "assistant"):
            raise bad(f"messages[{n}].role must be user or assistant.", f"messages[{n}].role")
        blocks = message.content
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if not isinstance(blocks, list):
            raise bad(f"{where} must be a string or a list of blocks.", where)
        spoken += _messages(message.role, blocks, made if client_tools else None, where)
    last = len(spoken) - 1
    while last >= 0 and spoken[last].role == "assistant":
        last -= 1
    if last < 0:
        raise bad("messages: there is no user message with visible content.", "messages")
    return tuple(spoken[:last]), spoken[last]


def _messages(
    role: str, blocks: list[Any], made: dict[str, str] | None, where: str
) -> Iterator[Message]:
    """`made`: the calls so far, when the client runs them; else they are left out."""
    parts: list[Any] = []
    for n, block in enumerate(blocks):
        at = f"{where}[{n}]"
        if not isinstance(block, dict):
            raise bad(f"{at} must be an object.", at)
        match block.get("type"):
            case "text":
                parts += parts_of([block], at)
            case "image":
                parts.append(_image(block, at))
            case "tool_use" if made is not None:
                parts.append(_call(block, made, at))
            case "tool_result" if made is not None:
                yield returned(block.get("tool_use_id"), block.get("content"), made, at)
            case "tool_use" | "tool_result" | "thinking" | "redacted_thinking":
                continue
            case kind:
                raise bad(
                    f"{at}: blocks of type {str(kind)[:40]!r} are not supported.",
                    at,
                    "unsupported_content_type",
                )
    message = Message("user" if role == "user" else "assistant", tuple(parts))
    if visible(message) or message.calls:
        yield message


def _image(block: dict[str, Any], where: str) -> Text | Media:
    source = block.get("source")
    if not isinstance(source, dict):
        raise bad(f"{where}.source must be an object.", where)
    if source.get("type") == "url":
        return image(str(source.get("url") or ""), where)
    return image(f"data:{source.get('media_type')};base64,{source.get('data')}", where)


def _call(block: dict[str, Any], made: dict[str, str], where: str) -> ToolCall:
    identity, name = block.get("id"), block.get("name")
    if not isinstance(identity, str) or not isinstance(name, str):
        raise bad(f"{where} must have an id and a name.", where)
    made[identity] = name
    return ToolCall(identity, name, orjson.dumps(block.get("input") or {}).decode())


# -- answering -------------------------------------------------------------------------------


async def _whole(call: Call, body: MessagesRequest, ask: Ask) -> web.Response:
    result, session = await to_the_end(call, ask)
    headers = turn_headers(session.id, ask) | incomplete_headers(result)
    if result.status != "completed" and not result.text.strip():
        raise incomplete(result, headers)
    content: list[dict[str, Any]] = []
    if call.server.settings.reasoning and result.reasoning:
        content.append({"type": "thinking", "thinking": result.reasoning, "signature": ""})
    if result.text:
        content.append({"type": "text", "text": result.text})
    content += _uses(result)
    answer = {
        **_message(call, body),
        "content": content,
        "stop_reason": _stop(result),
        "usage": _usage(result.usage),
    }
    if result.status != "completed":
        answer["hermes"] = ending(result)
    return call.answer(answer, headers=headers)


def _message(call: Call, body: MessagesRequest) -> dict[str, Any]:
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": body.model or call.server.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(Usage()),
    }


def _stop(result: TurnResult) -> str:
    if open_calls(result.messages):
        return "tool_use"
    return "max_tokens" if result.error_code == "output_truncated" else "end_turn"


def _usage(usage: Usage) -> dict[str, int]:
    """There the cached part is counted apart from the rest of the prompt."""
    return {
        "input_tokens": max(0, usage.input - usage.cache_read - usage.cache_write),
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": usage.output,
    }


def _uses(result: TurnResult) -> list[dict[str, Any]]:
    return [
        {"type": "tool_use", "id": c.id, "name": c.name, "input": _args(c)}
        for c in open_calls(result.messages)
    ]


def _args(call: ToolCall) -> Any:
    try:
        return orjson.loads(call.args or "{}")
    except orjson.JSONDecodeError:
        return {}


class _Blocks:
    """The content blocks of one streamed answer: at most one of them is open."""

    def __init__(self) -> None:
        self._index = -1
        self._open = ""

    def text(self, kind: str, text: str) -> bytes:
        head = b"" if self._open == kind else self.close() + self._begin(kind)
        return head + _frame("content_block_delta", index=self._index, delta=_delta(kind, text))

    def _begin(self, kind: str) -> bytes:
        self._index += 1
        self._open = kind
        block = {"type": kind, kind: ""}
        if kind == "thinking":
            block["signature"] = ""
        return _frame("content_block_start", index=self._index, content_block=block)

    def close(self) -> bytes:
        if not self._open:
            return b""
        self._open = ""
        return _frame("content_block_stop", index=self._index)

    def use(self, block: dict[str, Any]) -> bytes:
        self._index += 1
        delta = {"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()}
        return (
            _frame("content_block_start", index=self._index, content_block={**block, "input": {}})
            + _frame("content_block_delta", index=self._index, delta=delta)
            + _frame("content_block_stop", index=self._index)
        )


def _delta(kind: str, text: str) -> dict[str, str]:
    return {"type": f"{kind}_delta", kind: text}


def _frame(name: str, **data: Any) -> bytes:
    return event(name, orjson.dumps({"type": name, **data}))


class _Telling:
    def __init__(self, call: Call, body: MessagesRequest, ask: Ask, session: str) -> None:
        self.headers = turn_headers(session, ask)
        self._first = _message(call, body)
        self._server = call.server
        self._blocks = _Blocks()

    async def begin(self) -> bytes:
        return _frame("message_start", message=self._first)

    def tell(self, happened: TurnEvent) -> bytes:
        match happened:
            case TextDelta(text):
                return self._blocks.text("text", text)
            case ThinkingDelta(text) if self._server.settings.reasoning:
                return self._blocks.text("thinking", text)
            case _:
                return b""

    async def end(self, result: TurnResult) -> bytes:
        self._server.metrics.turn(result)
        return _last(self._blocks, result)


def _last(blocks: _Blocks, result: TurnResult) -> bytes:
    frames = [blocks.close(), *(blocks.use(block) for block in _uses(result))]
    if result.status != "completed" and not result.text.strip():
        error = {"type": "api_error", "message": result.error or "The agent did not finish."}
        return b"".join((*frames, _frame("error", error=error)))
    delta = {"stop_reason": _stop(result), "stop_sequence": None}
    end: dict[str, Any] = {"delta": delta, "usage": _usage(result.usage)}
    if result.status != "completed":
        end["hermes"] = ending(result)
    return b"".join((*frames, _frame("message_delta", **end), _frame("message_stop")))


ROUTES = (
    Route(
        "POST",
        "/v1/messages",
        create,
        "messages",
        "One turn, in the protocol of Anthropic.",
        x_api_key=True,
        body=MessagesRequest,
        errors=(400, 403, 404, 413, 415, 429, 502),
        streams=True,
        answer=AnthropicMessage,
        headers=("Idempotency-Key", "X-Hermes-Session-Id", "X-Hermes-Session-Key"),
    ),
)

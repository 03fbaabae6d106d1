"""POST /v1/chat/completions."""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct

from hermes.core.events import (
    TextDelta,
    ThinkingDelta,
    ToolDone,
    ToolStarted,
    TurnEvent,
    TurnResult,
)
from hermes.core.message import Usage
from hermes.core.provider import Effort
from hermes.server.http import web
from hermes.server.http.client_quirks import reads_chunks_only
from hermes.server.http.idempotency import once
from hermes.server.http.request_schemas import Execution, Flag
from hermes.server.http.response_schemas import Completion
from hermes.server.http.route import Call, Route, flag
from hermes.server.turns.chat_messages import ChatMessage, talk_of
from hermes.server.turns.client_tools import open_calls, wanted
from hermes.server.turns.outcome import ending, incomplete, incomplete_headers, turn_headers
from hermes.server.turns.sessions import Ask, session_headers, wanted_settings
from hermes.server.turns.sse import DONE, event
from hermes.server.turns.streaming import follow, to_the_end
from hermes.server.turns.tool_labels import label


class StreamOptions(Struct):
    include_usage: bool | None = None


class ChatRequest(Struct):
    messages: list[ChatMessage]
    model: str | None = None
    stream: Flag | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    reasoning_effort: Effort | None = None
    stop: str | list[str] | None = None
    tools: Any = None
    tool_choice: Any = None
    tool_execution: Execution | None = None


async def completions(call: Call) -> web.StreamResponse:
    body = call.json(ChatRequest)
    headers = session_headers(call)
    tools = wanted(body.tool_execution, body.tools, body.tool_choice)
    talk = talk_of(body.messages, client_tools=tools is not None)
    ask = Ask(
        talk.prompt,
        talk.past,
        talk.instructions,
        client_tools=tools,
        session=headers.session,
        session_key=headers.key,
        settings=wanted_settings(
            call.server,
            tokens=body.max_completion_tokens or body.max_tokens,
            temperature=body.temperature,
            effort=body.reasoning_effort,
            stop=body.stop,
        ),
    )
    if not flag(body.stream, "stream"):
        return await once(call, lambda: _whole(call, body, ask))
    return await follow(call, ask, lambda session: _Chunks(call, body, ask, session.id))


# -- the answer in one piece -----------------------------------------------------------------


async def _whole(call: Call, body: ChatRequest, ask: Ask) -> web.Response:
    result, session = await to_the_end(call, ask)
    headers = turn_headers(session.id, ask) | incomplete_headers(result)
    if result.status != "completed" and not result.text.strip():
        raise incomplete(result, headers)
    message: dict[str, Any] = {"role": "assistant", "content": result.text}
    if calls := _calls(result):
        message |= {"content": result.text or None, "tool_calls": calls}
    if call.server.settings.reasoning and result.reasoning:
        message["reasoning_content"] = result.reasoning
    answer: dict[str, Any] = {
        "id": _new_id(),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.model or call.server.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(result)}],
        "usage": usage_of(result.usage),
    }
    if result.status != "completed":
        answer["hermes"] = ending(result)
    return call.answer(answer, headers=headers)


def _calls(result: TurnResult) -> list[dict[str, Any]]:
    """Those the client has to run."""
    return [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.args or "{}"}}
        for c in open_calls(result.messages)
    ]


def finish_reason(result: TurnResult) -> str:
    if result.status == "completed":
        return "tool_calls" if open_calls(result.messages) else "stop"
    return "length" if result.error_code == "output_truncated" else "error"


def usage_of(usage: Usage) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
    }
    if usage.cache_read:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cache_read}
    if usage.reasoning:
        counts["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return counts


def _new_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"


# -- the answer as it comes ------------------------------------------------------------------


class _Chunks:
    """The frames of one answer: what stays the same in them is written once."""

    def __init__(self, call: Call, body: ChatRequest, ask: Ask, session: str) -> None:
        head = {
            "id": _new_id(),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": body.model or call.server.model,
        }
        self._head = b"data: " + orjson.dumps(head)[:-1] + b","
        self._delta = self._head + b'"choices":[{"index":0,"delta":{"'
        self._rest = b'},"finish_reason":null}]}\n\n'
        self._metrics = call.server.metrics
        self._reasoning = call.server.settings.reasoning
        self._usage = bool(body.stream_options and body.stream_options.include_usage)
        self._running: dict[str, tuple[str, str]] = {}
        """Tools at work: name and label, by call."""
        self._chunks_only = reads_chunks_only(call.request.headers)
        self.headers = turn_headers(session, ask)

    async def begin(self) -> bytes:
        return self._delta + b'role":"assistant","content":""' + self._rest

    def tell(self, happened: TurnEvent) -> bytes:
        match happened:
            case TextDelta(text):
                return self._text(b"content", text)
            case ThinkingDelta(text) if self._reasoning:
                return self._text(b"reasoning_content", text)
            case ToolStarted(call) if not call.name.startswith("_"):
                named = self._running[call.id] = (call.name, label(call))
                return self._progress(named, call.id, "running")
            case ToolDone(done) if begun := self._running.pop(done.call_id, None):
                return self._progress(begun, done.call_id, "completed")
            case _:
                return b""

    async def end(self, result: TurnResult) -> bytes:
        self._metrics.turn(result)
        calls = [{"index": n, **call} for n, call in enumerate(_calls(result))]
        delta = {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason(result)}
        usage = usage_of(result.usage)
        end: dict[str, Any] = {"choices": [choice], "usage": usage}
        if result.status != "completed":
            end["hermes"] = ending(result)
        frames = self._head + orjson.dumps(end)[1:] + b"\n\n"
        if self._usage:
            frames += self._head + orjson.dumps({"choices": [], "usage": usage})[1:] + b"\n\n"
        return frames + DONE

    def _text(self, field: bytes, text: str) -> bytes:
        return b"".join((self._delta, field, b'":', orjson.dumps(text), self._rest))

    def _progress(self, named: tuple[str, str], identity: str, status: str) -> bytes:
        """For those who can read nothing else, it is a chunk as well that says nothing."""
        tool, shown = named
        told = {"tool": tool, "label": shown, "toolCallId": identity, "status": status}
        data = orjson.dumps(told)
        if self._chunks_only:
            head = self._head.removeprefix(b"data: {")
            data = data[:-1] + b"," + head + b'"choices":[{"index":0,"delta":{}' + self._rest[1:-2]
        return event("hermes.tool.progress", data)


ROUTES = (
    Route(
        "POST",
        "/v1/chat/completions",
        completions,
        "chat_completions",
        "One turn of a conversation whose past is in the request.",
        body=ChatRequest,
        errors=(400, 403, 404, 413, 415, 429, 502),
        streams=True,
        answer=Completion,
        headers=("Idempotency-Key", "X-Hermes-Session-Id", "X-Hermes-Session-Key"),
    ),
)

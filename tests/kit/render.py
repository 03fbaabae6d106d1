"""One Answer as each wire writes it: streamed (a list of Events) and whole (one JSON object)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.kit import frames
from tests.kit.answers import Answer, Call, Say, Think, Tokens

WIRES = ("chat", "responses", "anthropic", "gemini", "bedrock")
STREAM_TYPE = dict.fromkeys(WIRES, "text/event-stream") | {
    "bedrock": "application/vnd.amazon.eventstream"
}


@dataclass(frozen=True)
class Event:
    """Bytes of one stream event. kind: start, open, think, text, call, args, close, stop, usage,
    done, error: what the event means, so that a script can point at it on every wire."""

    kind: str
    data: bytes


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def sse(kind: str, value: Any, *, name: str = "") -> Event:
    head = f"event: {name}\n".encode() if name else b""
    return Event(kind, head + b"data: " + _json(value) + b"\n\n")


def stream(wire: str, answer: Answer) -> list[Event]:
    return list(_STREAMS[wire](answer))


def whole(wire: str, answer: Answer) -> bytes:
    return _json(_WHOLES[wire](answer))


# -- chat ----------------------------------------------------------------------------------

_CHAT_STOP = {
    "end": "stop",
    "tool_use": "tool_calls",
    "length": "length",
    "filtered": "content_filter",
}


def _chat_usage(t: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": t.input,
        "completion_tokens": t.output,
        "total_tokens": t.input + t.output,
        "prompt_tokens_details": {"cached_tokens": t.cached},
        "completion_tokens_details": {"reasoning_tokens": t.reasoning},
    }


def _chat_call(call: Call, index: int, args: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": args}
    base = {"index": index, "id": call.id, "type": "function", "function": function}
    return {**base, **call.extra}


def _chat_stream(a: Answer) -> Iterator[Event]:
    def chunk(kind: str, delta: dict[str, Any] | None, finish: str | None = None) -> Event:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        return sse(kind, {**head, "choices": choices, "usage": None})

    head = {
        "id": "chatcmpl-kit",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": a.model,
    }
    yield chunk("start", {"role": "assistant", "content": ""})
    index = 0
    for part in a.parts:
        match part:
            case Say(pieces=pieces):
                yield from (chunk("text", {"content": p}) for p in pieces)
            case Think(pieces=pieces):
                yield from (chunk("think", {"reasoning_content": p}) for p in pieces)
            case Call(pieces=pieces):
                yield chunk("call", {"tool_calls": [_chat_call(part, index, "")]})
                for piece in pieces:
                    args = {"index": index, "function": {"arguments": piece}}
                    yield chunk("args", {"tool_calls": [args]})
                index += 1
    if a.ending:
        yield chunk("stop", {}, _CHAT_STOP.get(a.ending, a.ending))
    if a.tokens:
        yield sse("usage", {**head, "choices": [], "usage": _chat_usage(a.tokens)})
    yield Event("done", b"data: [DONE]\n\n")


def _chat_whole(a: Answer) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": a.text or None}
    if thoughts := "".join(p.text for p in a.parts if isinstance(p, Think)):
        message["reasoning_content"] = thoughts
    if a.calls:
        message["tool_calls"] = [_chat_call(c, i, c.args) for i, c in enumerate(a.calls)]
    finish = _CHAT_STOP.get(a.ending, a.ending) or None
    return {
        "id": "chatcmpl-kit",
        "object": "chat.completion",
        "created": 1,
        "model": a.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": _chat_usage(a.tokens) if a.tokens else None,
    }


# -- responses -----------------------------------------------------------------------------


def _response(a: Answer, output: list[Any] | None, status: str) -> dict[str, Any]:
    usage = None
    if a.tokens and status not in ("in_progress",):
        usage = {
            "input_tokens": a.tokens.input,
            "input_tokens_details": {"cached_tokens": a.tokens.cached},
            "output_tokens": a.tokens.output,
            "output_tokens_details": {"reasoning_tokens": a.tokens.reasoning},
            "total_tokens": a.tokens.input + a.tokens.output,
        }
    why = {"length": "max_output_tokens", "filtered": "content_filter"}.get(a.ending)
    return {
        "id": "resp_kit",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": why} if status == "incomplete" else None,
        "model": a.model,
        "output": output,
        "usage": usage,
    }


def _responses_status(a: Answer) -> str:
    return "incomplete" if a.ending in ("length", "filtered") else "completed"


def _responses_item(part: Say | Think | Call, index: int) -> dict[str, Any]:
    match part:
        case Say(text=text):
            content = [{"type": "output_text", "text": text, "annotations": []}]
            return {
                "type": "message",
                "id": f"msg_{index}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        case Think(text=text, signature=signature):
            item = {
                "type": "reasoning",
                "id": f"rs_{index}",
                "summary": [{"type": "summary_text", "text": text}],
            }
            return {**item, "encrypted_content": signature} if signature else item
        case Call(id=id, name=name, args=args, extra=extra):
            return {
                "type": "function_call",
                "id": f"fc_{index}",
                "call_id": id,
                "name": name,
                "arguments": args,
                "status": "completed",
                **extra,
            }


def _responses_part(part: Say | Think | Call, index: int) -> Iterator[Event]:
    def ev(kind: str, type: str, **rest: Any) -> Event:
        return sse(kind, {"type": type, "output_index": index, **rest}, name=type)

    item = _responses_item(part, index)
    at = {"item_id": item["id"]}
    match part:
        case Say(pieces=pieces, text=text):
            yield ev("open", "response.output_item.added", item={**item, "content": []})
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield ev("open", "response.content_part.added", content_index=0, part=empty, **at)
            for p in pieces:
                yield ev("text", "response.output_text.delta", content_index=0, delta=p, **at)
            yield ev("close", "response.output_text.done", content_index=0, text=text, **at)
        case Think(pieces=pieces, text=text):
            yield ev("open", "response.output_item.added", item={**item, "summary": []})
            for p in pieces:
                yield ev(
                    "think", "response.reasoning_summary_text.delta", summary_index=0, delta=p, **at
                )
            yield ev(
                "close", "response.reasoning_summary_text.done", summary_index=0, text=text, **at
            )
        case Call(pieces=pieces, args=args):
            yield ev("call", "response.output_item.added", item={**item, "arguments": ""})
            for p in pieces:
                yield ev("args", "response.function_call_arguments.delta", delta=p, **at)
            yield ev("close", "response.function_call_arguments.done", arguments=args, **at)
    yield ev("close", "response.output_item.done", item=item)


def _responses_stream(a: Answer) -> Iterator[Event]:
    for type in ("response.created", "response.in_progress"):
        yield sse("start", {"type": type, "response": _response(a, [], "in_progress")}, name=type)
    for index, part in enumerate(a.parts):
        yield from _responses_part(part, index)
    if a.ending:
        status = _responses_status(a)
        output = [_responses_item(p, i) for i, p in enumerate(a.parts)]
        type = f"response.{status}"
        yield sse("stop", {"type": type, "response": _response(a, output, status)}, name=type)


def _responses_whole(a: Answer) -> Any:
    return _response(
        a, [_responses_item(p, i) for i, p in enumerate(a.parts)], _responses_status(a)
    )


# -- anthropic -----------------------------------------------------------------------------

_ANTHROPIC_STOP = {
    "end": "end_turn",
    "tool_use": "tool_use",
    "length": "max_tokens",
    "filtered": "refusal",
}


def _anthropic_usage(t: Tokens | None) -> dict[str, Any]:
    if t is None:
        return {}
    return {
        "input_tokens": t.input - t.cached,
        "cache_read_input_tokens": t.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": t.output,
    }


def _anthropic_block(part: Say | Think | Call) -> dict[str, Any]:
    match part:
        case Say(text=text):
            return {"type": "text", "text": text}
        case Think(text=text, signature=signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Call(id=id, name=name, args=args, extra=extra):
            return {
                "type": "tool_use",
                "id": id,
                "name": name,
                "input": json.loads(args or "{}"),
                **extra,
            }


def _anthropic_part(part: Say | Think | Call, index: int) -> Iterator[Event]:
    def ev(kind: str, type: str, **rest: Any) -> Event:
        return sse(kind, {"type": type, "index": index, **rest}, name=type)

    match part:
        case Say(pieces=pieces):
            yield ev("open", "content_block_start", content_block={"type": "text", "text": ""})
            for p in pieces:
                yield ev("text", "content_block_delta", delta={"type": "text_delta", "text": p})
        case Think(pieces=pieces, signature=signature):
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            yield ev("open", "content_block_start", content_block=empty)
            for p in pieces:
                delta = {"type": "thinking_delta", "thinking": p}
                yield ev("think", "content_block_delta", delta=delta)
            if signature:
                delta = {"type": "signature_delta", "signature": signature}
                yield ev("close", "content_block_delta", delta=delta)
        case Call(id=id, name=name, pieces=pieces, extra=extra):
            block = {"type": "tool_use", "id": id, "name": name, "input": {}, **extra}
            yield ev("call", "content_block_start", content_block=block)
            for p in ("", *pieces):
                delta = {"type": "input_json_delta", "partial_json": p}
                yield ev("args", "content_block_delta", delta=delta)
    yield ev("close", "content_block_stop")


def _anthropic_message(a: Answer, content: list[Any], stop: str | None) -> dict[str, Any]:
    return {
        "id": "msg_kit",
        "type": "message",
        "role": "assistant",
        "model": a.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": _anthropic_usage(a.tokens),
    }


def _anthropic_stream(a: Answer) -> Iterator[Event]:
    start = {"type": "message_start", "message": _anthropic_message(a, [], None)}
    yield sse("start", start, name="message_start")
    yield sse("start", {"type": "ping"}, name="ping")
    for index, part in enumerate(a.parts):
        yield from _anthropic_part(part, index)
    if a.ending:
        delta = {"stop_reason": _ANTHROPIC_STOP.get(a.ending, a.ending), "stop_sequence": None}
        end = {"type": "message_delta", "delta": delta, "usage": _anthropic_usage(a.tokens)}
        yield sse("stop", end, name="message_delta")
    yield sse("done", {"type": "message_stop"}, name="message_stop")


def _anthropic_whole(a: Answer) -> Any:
    stop = _ANTHROPIC_STOP.get(a.ending, a.ending) or None
    return _anthropic_message(a, [_anthropic_block(p) for p in a.parts], stop)


# -- gemini --------------------------------------------------------------------------------

_GEMINI_STOP = {"end": "STOP", "tool_use": "STOP", "length": "MAX_TOKENS", "filtered": "SAFETY"}


def _gemini_parts(part: Say | Think | Call) -> list[tuple[str, dict[str, Any]]]:
    match part:
        case Say(pieces=pieces):
            return [("text", {"text": p}) for p in pieces]
        case Think(pieces=pieces, signature=signature):
            extra = {"thoughtSignature": signature} if signature else {}
            return [("think", {"text": p, "thought": True, **extra}) for p in pieces]
        case Call(id=id, name=name, args=args, extra=extra):
            call = {"name": name, "args": json.loads(args or "{}")}
            return [("call", {"functionCall": {**call, "id": id} if id else call, **extra})]


def _gemini_object(a: Answer, parts: list[Any] | None, stop: str | None, usage: bool) -> Any:
    candidate: dict[str, Any] = {"index": 0}
    if parts is not None:
        candidate["content"] = {"parts": parts, "role": "model"}
    if stop:
        candidate["finishReason"] = _GEMINI_STOP.get(stop, stop)
    out = {"candidates": [candidate], "modelVersion": a.model, "responseId": "kit"}
    if usage and a.tokens:
        out["usageMetadata"] = {
            "promptTokenCount": a.tokens.input,
            "candidatesTokenCount": a.tokens.output - a.tokens.reasoning,
            "thoughtsTokenCount": a.tokens.reasoning,
            "cachedContentTokenCount": a.tokens.cached,
            "totalTokenCount": a.tokens.input + a.tokens.output,
        }
    return out


def _gemini_stream(a: Answer) -> Iterator[Event]:
    def ev(kind: str, value: Any) -> Event:
        return Event(kind, b"data: " + _json(value) + b"\r\n\r\n")

    for part in a.parts:
        for kind, piece in _gemini_parts(part):
            yield ev(kind, _gemini_object(a, [piece], None, False))
    if a.ending:
        blocked = a.ending == "filtered" and not a.parts
        yield ev("stop", _gemini_object(a, None if blocked else [{"text": ""}], a.ending, True))


def _gemini_whole(a: Answer) -> Any:
    parts = [piece for part in a.parts for _, piece in _gemini_parts(part)]
    return _gemini_object(a, parts, a.ending, True)


# -- bedrock -------------------------------------------------------------------------------

_BEDROCK_STOP = {
    "end": "end_turn",
    "tool_use": "tool_use",
    "length": "max_tokens",
    "filtered": "guardrail_intervened",
}


def _bedrock_usage(t: Tokens) -> dict[str, Any]:
    return {
        "inputTokens": t.input - t.cached,
        "outputTokens": t.output,
        "cacheReadInputTokens": t.cached,
        "cacheReadInputTokenCount": t.cached,
        "totalTokens": t.input + t.output,
    }


def _bedrock_part(part: Say | Think | Call, index: int) -> Iterator[Event]:
    def delta(kind: str, value: Any) -> Event:
        payload = {"contentBlockIndex": index, "delta": value}
        return Event(kind, frames.event("contentBlockDelta", payload))

    match part:
        case Say(pieces=pieces):
            yield from (delta("text", {"text": p}) for p in pieces)
        case Think(pieces=pieces, signature=signature):
            yield from (delta("think", {"reasoningContent": {"text": p}}) for p in pieces)
            if signature:
                yield delta("close", {"reasoningContent": {"signature": signature}})
        case Call(id=id, name=name, pieces=pieces, extra=extra):
            start = {"toolUse": {"toolUseId": id, "name": name, **extra}}
            payload = {"contentBlockIndex": index, "start": start}
            yield Event("call", frames.event("contentBlockStart", payload))
            yield from (delta("args", {"toolUse": {"input": p}}) for p in pieces)
    yield Event("close", frames.event("contentBlockStop", {"contentBlockIndex": index}))


def _bedrock_stream(a: Answer) -> Iterator[Event]:
    yield Event("start", frames.event("messageStart", {"role": "assistant"}))
    for index, part in enumerate(a.parts):
        yield from _bedrock_part(part, index)
    if a.ending:
        stop = {"stopReason": _BEDROCK_STOP.get(a.ending, a.ending)}
        yield Event("stop", frames.event("messageStop", stop))
    if a.tokens:
        meta = {"usage": _bedrock_usage(a.tokens), "metrics": {"latencyMs": 1}}
        yield Event("usage", frames.event("metadata", meta))


def _bedrock_whole(a: Answer) -> Any:
    content: list[Any] = []
    for part in a.parts:
        match part:
            case Say(text=text):
                content.append({"text": text})
            case Think(text=text, signature=signature):
                reason = {"text": text} | ({"signature": signature} if signature else {})
                content.append({"reasoningContent": {"reasoningText": reason}})
            case Call(id=id, name=name, args=args, extra=extra):
                use = {"toolUseId": id, "name": name, "input": json.loads(args or "{}"), **extra}
                content.append({"toolUse": use})
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": _BEDROCK_STOP.get(a.ending, a.ending),
        "usage": _bedrock_usage(a.tokens) if a.tokens else {},
        "metrics": {"latencyMs": 1},
    }


_STREAMS: dict[str, Callable[[Answer], Iterator[Event]]] = {
    "chat": _chat_stream,
    "responses": _responses_stream,
    "anthropic": _anthropic_stream,
    "gemini": _gemini_stream,
    "bedrock": _bedrock_stream,
}
_WHOLES: dict[str, Callable[[Answer], Any]] = {
    "chat": _chat_whole,
    "responses": _responses_whole,
    "anthropic": _anthropic_whole,
    "gemini": _gemini_whole,
    "bedrock": _bedrock_whole,
}

"""Turn events as server-sent events, for the streams of runs and sessions."""

import time
from typing import Any

import orjson

from hermes.core import events
from hermes.core.events import TurnEvent, TurnResult
from hermes.core.message import ToolCall
from hermes.server.http.response_schemas import TokenUsage
from hermes.server.turns.sse import encode_frame

_LABEL_LENGTH = 80


def describe_event(event: TurnEvent) -> tuple[str, dict[str, Any]] | None:
    """The name and fields of an event that both streams show; None for other events."""
    match event:
        case events.TextDelta(text):
            return "message.delta", {"delta": text}
        case events.ThinkingDelta(text):
            return "reasoning.available", {"text": text}
        case events.ToolStarted(call) if not is_internal_tool(call.name):
            tool = {"tool": call.name, "toolCallId": call.id}
            return "tool.started", {**tool, "preview": label_call(call)}
        case events.ToolDone(result, duration) if not is_internal_tool(result.name):
            tool = {"tool": result.name, "toolCallId": result.call_id}
            took = round(duration, 3)
            return "tool.completed", {**tool, "duration": took, "error": result.error}
        case _:
            return None


def encode_event(name: str, owner: dict[str, str], data: dict[str, Any], number: str = "") -> bytes:
    """Encode an event; `owner` is the field that names its run or session."""
    body = {"event": name, **owner, "timestamp": time.time(), **data}
    return encode_frame(name, body, number)


def is_internal_tool(tool: str) -> bool:
    """Whether calls of this tool are hidden from clients."""
    return tool.startswith("_")


def label_call(call: ToolCall, *, full: bool = False) -> str:
    """The first text argument of a call as one short line, or in full."""
    try:
        args = orjson.loads(call.args or "{}")
    except orjson.JSONDecodeError:
        return call.args if full else call.name
    values = args.values() if isinstance(args, dict) else ()
    text = next((v for v in values if isinstance(v, str) and v.strip()), call.name)
    return text if full else " ".join(text.split())[:_LABEL_LENGTH]


def build_token_usage(result: TurnResult) -> TokenUsage:
    usage = result.usage
    return TokenUsage(usage.input, usage.output, usage.input + usage.output)

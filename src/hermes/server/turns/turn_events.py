"""What happens in a turn, as named events with a little JSON: the form of runs and sessions."""

from __future__ import annotations

import time
from typing import Any

import orjson

from hermes.core.events import (
    Notice,
    TextDelta,
    ThinkingDelta,
    ToolDone,
    ToolStarted,
    TurnEnd,
    TurnEvent,
    TurnResult,
)
from hermes.server.turns.response_items import usage_of
from hermes.server.turns.sse import event
from hermes.server.turns.tool_labels import label


def plain_usage(result: TurnResult) -> dict[str, int]:
    counts = usage_of(result.usage)
    return {name: n for name, n in counts.items() if not name.endswith("_details")}


def tell(happened: TurnEvent, named: dict[str, Any]) -> bytes:
    """One frame, or nothing. `named` says whose it is."""
    match happened:
        case TextDelta(text):
            return _frame("message.delta", named, delta=text)
        case ThinkingDelta(text):
            return _frame("reasoning.available", named, text=text)
        case ToolStarted(call) if not call.name.startswith("_"):
            return _frame(
                "tool.started", named, tool=call.name, toolCallId=call.id, preview=label(call)
            )
        case ToolDone(result, duration) if not result.name.startswith("_"):
            return _frame(
                "tool.completed",
                named,
                tool=result.name,
                toolCallId=result.call_id,
                duration=round(duration, 3),
                error=result.error,
            )
        case Notice(code, text):
            return _frame("notice", named, code=code, text=text)
        case TurnEnd(result):
            return _ended(result, named)
        case _:
            return b""


def _ended(result: TurnResult, named: dict[str, Any]) -> bytes:
    usage = plain_usage(result)
    if result.status == "completed":
        return _frame("turn.completed", named, output=result.text, usage=usage)
    if result.status == "interrupted":
        return _frame("turn.cancelled", named, output=result.text, usage=usage)
    return _frame(
        "turn.failed",
        named,
        output=result.text,
        error=result.error,
        error_code=result.error_code,
        usage=usage,
    )


def _frame(name: str, named: dict[str, Any], **data: Any) -> bytes:
    body = {"event": name, **named, "timestamp": time.time(), **data}
    return event(name, orjson.dumps(body))

"""Turns as spans, in the OTLP/HTTP JSON form and with the names of the gen_ai conventions."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from hermes.core.message import Message, Target, ToolCall, ToolReturn, Usage
from hermes.version import VERSION

AGENT = "hermes"
Operation: TypeAlias = Literal["invoke_agent", "chat", "execute_tool"]
Attribute: TypeAlias = str | int | Sequence[str]
_KINDS: dict[Operation, int] = {"invoke_agent": 1, "chat": 3, "execute_tool": 1}
"""Of OTLP: internal and client."""
_FINISH = {"end": "stop", "tool_use": "tool_calls", "filtered": "content_filter"}


class SpanLink(Struct, frozen=True):
    """The place of a span in a trace."""

    trace: str
    span: str


def new_link(parent: SpanLink | None = None) -> SpanLink:
    return SpanLink(parent.trace if parent else secrets.token_hex(16), secrets.token_hex(8))


class Span(Struct):
    """One operation. Times are nanoseconds since 1970."""

    link: SpanLink
    parent: str
    operation: Operation
    subject: str
    """The agent, the model or the tool."""
    start: int
    end: int = 0
    attributes: dict[str, Attribute] = {}
    error: str = ""


def open_span(
    operation: Operation, subject: str, start: int, parent: SpanLink | None, session_id: str
) -> Span:
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": operation,
        "gen_ai.conversation.id": session_id,
    }
    return Span(
        new_link(parent), parent.span if parent else "", operation, subject, start, 0, attributes
    )


def describe_request(span: Span, target: Target) -> None:
    """Note which model a call or a turn asks."""
    span.attributes["gen_ai.provider.name"] = target.provider
    span.attributes["gen_ai.request.model"] = target.model


def describe_usage(span: Span, usage: Usage) -> None:
    span.attributes["gen_ai.usage.input_tokens"] = usage.input
    span.attributes["gen_ai.usage.output_tokens"] = usage.output


def describe_answer(span: Span, message: Message) -> None:
    """Note what a call of a model returned, apart from its content."""
    if message.origin is not None:
        span.attributes["gen_ai.response.model"] = message.origin.model
    if message.stop is not None:
        span.attributes["gen_ai.response.finish_reasons"] = [
            _FINISH.get(message.stop, message.stop)
        ]
    if message.usage is not None:
        describe_usage(span, message.usage)


def describe_call(span: Span, call: ToolCall) -> None:
    span.attributes["gen_ai.tool.name"] = call.name
    span.attributes["gen_ai.tool.call.id"] = call.id


def describe_message(message: Message) -> str:
    """A message as the conventions write contents."""
    parts: list[dict[str, Any]] = []
    if message.text:
        parts.append({"type": "text", "content": message.text})
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.args}
        for call in message.calls
    ]
    parts += [
        {"type": "tool_call_response", "id": part.call_id, "response": part.text}
        for part in message.parts
        if isinstance(part, ToolReturn)
    ]
    return msgspec.json.encode([{"role": message.role, "parts": parts}]).decode()


def encode_spans(spans: Iterable[Span]) -> bytes:
    """The body of an OTLP/HTTP request."""
    return msgspec.json.encode(
        {
            "resourceSpans": [
                {
                    "resource": {
                        "attributes": _list_attributes(
                            {"service.name": AGENT, "service.version": VERSION}
                        )
                    },
                    "scopeSpans": [
                        {
                            "scope": {"name": AGENT, "version": VERSION},
                            "spans": [_encode_span(span) for span in spans],
                        }
                    ],
                }
            ]
        }
    )


def _encode_span(span: Span) -> dict[str, Any]:
    attributes = dict(span.attributes)
    if span.operation == "invoke_agent":
        attributes["gen_ai.agent.name"] = span.subject
    row: dict[str, Any] = {
        "traceId": span.link.trace,
        "spanId": span.link.span,
        "name": f"{span.operation} {span.subject}",
        "kind": _KINDS[span.operation],
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(max(span.start, span.end)),
    }
    if span.parent:
        row["parentSpanId"] = span.parent
    if span.error:
        attributes["error.type"] = span.error
        row["status"] = {"code": 2}
    row["attributes"] = _list_attributes(attributes)
    return row


def _list_attributes(values: Mapping[str, Attribute]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _encode_value(value)} for key, value in values.items()]


def _encode_value(value: Attribute) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"arrayValue": {"values": [{"stringValue": item} for item in value]}}

"""Turns as spans, in the OTLP/HTTP JSON form and with the names of the gen_ai conventions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as _quote
from random import getrandbits
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
    trace = parent.trace if parent else f"{getrandbits(128):032x}"
    return SpanLink(trace, f"{getrandbits(64):016x}")


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
    """The body of an OTLP/HTTP request. Written as text: objects for every attribute would cost
    more than everything else."""
    about = _join_attributes({"service.name": AGENT, "service.version": VERSION})
    scope = f'{{"name":{_quote(AGENT)},"version":{_quote(VERSION)}}}'
    return (
        f'{{"resourceSpans":[{{"resource":{{"attributes":[{about}]}},"scopeSpans":[{{'
        f'"scope":{scope},"spans":[{",".join(map(_write_span, spans))}]}}]}}]}}'
    ).encode()


def _write_span(span: Span) -> str:
    parent = f'"parentSpanId":"{span.parent}",' if span.parent else ""
    attributes, status = span.attributes, ""
    if span.operation == "invoke_agent":
        attributes = {**attributes, "gen_ai.agent.name": span.subject}
    if span.error:
        attributes = {**attributes, "error.type": span.error}
        status = '"status":{"code":2},'
    return (
        f'{{"traceId":"{span.link.trace}","spanId":"{span.link.span}",{parent}'
        f'"name":{_quote(f"{span.operation} {span.subject}")},"kind":{_KINDS[span.operation]},'
        f'"startTimeUnixNano":"{span.start}","endTimeUnixNano":"{max(span.start, span.end)}",'
        f'{status}"attributes":[{_join_attributes(attributes)}]}}'
    )


def _join_attributes(values: Mapping[str, Attribute]) -> str:
    return ",".join([f'{{"key":"{k}","value":{{{_write_value(v)}}}}}' for k, v in values.items()])


def _write_value(value: Attribute) -> str:
    if isinstance(value, str):
        return f'"stringValue":{_quote(value)}'
    if isinstance(value, int):
        return f'"intValue":"{value}"'
    items = ",".join([f'{{"stringValue":{_quote(item)}}}' for item in value])
    return f'"arrayValue":{{"values":[{items}]}}'

"""The trace of a stored session: spans from its messages and from the ledger."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from msgspec import structs

from hermes.app.live.spans import (
    AGENT,
    Span,
    SpanLink,
    describe_answer,
    describe_call,
    describe_message,
    describe_request,
    describe_usage,
    open_span,
)
from hermes.core.ledger import CallRecord
from hermes.core.message import Target, ToolReturn, Usage
from hermes.core.store import SUBAGENT, SessionMeta, Store, StoredMessage

_SIDE_PURPOSE = "auxiliary/"
_DELEGATE = "delegate_task"


async def list_spans(store: Store, meta: SessionMeta, *, has_content: bool) -> list[Span]:
    """The spans of a session and of its subagents, each turn a trace."""
    return await _list_session_spans(store, meta, None, has_content=has_content)


async def _list_session_spans(
    store: Store, meta: SessionMeta, parent: SpanLink | None, *, has_content: bool
) -> list[Span]:
    items = [item async for item in store.sessions.stream_messages(meta.id)]
    calls = [
        entry
        for entry in await store.ledger.list_calls(meta.id, 0.0)
        if not entry.purpose.startswith(_SIDE_PURPOSE)
    ]
    spans: list[Span] = []
    turns = _split_turns(items)
    for number, turn in enumerate(turns):
        until = turns[number + 1][0].created if number + 1 < len(turns) else float("inf")
        made = [c for c in calls if turn[0].created <= c.started < until]
        spans += _trace_turn(meta, turn, made, parent, has_content=has_content)
    recent = await store.sessions.list_recent(limit=sys.maxsize, source=SUBAGENT)
    for child in (found for found in recent if found.parent == meta.id):
        above = _find_delegation(spans, child)
        spans += await _list_session_spans(store, child, above, has_content=has_content)
    return spans


def _split_turns(items: Sequence[StoredMessage]) -> list[list[StoredMessage]]:
    turns: list[list[StoredMessage]] = []
    for item in items:
        if item.message.role == "user" and item.message.kind == "normal":
            turns.append([])
        if turns:
            turns[-1].append(item)
    return turns


def _trace_turn(
    meta: SessionMeta,
    items: Sequence[StoredMessage],
    calls: Sequence[CallRecord],
    parent: SpanLink | None,
    *,
    has_content: bool,
) -> list[Span]:
    turn = open_span("invoke_agent", AGENT, _to_nanoseconds(items[0].created), parent, meta.id)
    turn.end = _to_nanoseconds(items[-1].created)
    answers = iter([item for item in items if item.message.role == "assistant"])
    spans = [turn]
    total = Usage()
    for entry in calls:
        began = _to_nanoseconds(entry.started)
        span = open_span("chat", entry.model, began, turn.link, meta.id)
        span.end = began + _to_nanoseconds(entry.seconds)
        span.error = entry.outcome
        describe_request(span, Target(entry.provider, entry.model, ""))
        describe_usage(span, Usage(entry.input, entry.output))
        total += Usage(entry.input, entry.output)
        if not entry.outcome and (answer := next(answers, None)) is not None:
            describe_answer(span, structs.replace(answer.message, usage=None))
            if has_content:
                span.attributes["gen_ai.output.messages"] = describe_message(answer.message)
        turn.end = max(turn.end, span.end)
        spans.append(span)
    if calls:
        describe_request(turn, Target(calls[0].provider, calls[0].model, ""))
        describe_usage(turn, total)
    if calls and calls[-1].outcome:
        turn.error = calls[-1].outcome
    return spans + _trace_calls(meta, items, turn, has_content=has_content)


def _trace_calls(
    meta: SessionMeta, items: Sequence[StoredMessage], turn: Span, *, has_content: bool
) -> list[Span]:
    open_spans: dict[str, Span] = {}
    ended: list[Span] = []
    for item in items:
        at = _to_nanoseconds(item.created)
        for call in item.message.calls:
            span = open_span("execute_tool", call.name, at, turn.link, meta.id)
            describe_call(span, call)
            if has_content:
                span.attributes["gen_ai.tool.call.arguments"] = call.args
            open_spans[call.id] = span
        for part in item.message.parts:
            if not isinstance(part, ToolReturn):
                continue
            if (found := open_spans.pop(part.call_id, None)) is not None:
                found.end, found.error = at, "tool_error" if part.error else ""
                if has_content:
                    found.attributes["gen_ai.tool.call.result"] = part.text
                ended.append(found)
    return ended


def _find_delegation(spans: Sequence[Span], child: SessionMeta) -> SpanLink | None:
    """The call that started a subagent, else the turn in which it was started."""
    at = _to_nanoseconds(child.created)
    around = [span for span in spans if span.start <= at <= span.end]
    for span in around:
        if span.operation == "execute_tool" and span.subject == _DELEGATE:
            return span.link
    return next((span.link for span in around if span.operation == "invoke_agent"), None)


def _to_nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)

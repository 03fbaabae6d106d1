"""Sends the spans of turns to a collector, without making anybody wait."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress
from contextvars import Context, ContextVar
from itertools import islice
from urllib.parse import urlsplit

from hermes.agent.turn import Agent
from hermes.app.live.spans import (
    AGENT,
    Operation,
    Span,
    SpanLink,
    describe_answer,
    describe_call,
    describe_message,
    describe_request,
    describe_usage,
    encode_spans,
    open_span,
)
from hermes.app.session import Session
from hermes.config.schema import TraceSection
from hermes.core.errors import ConfigError, ProviderError
from hermes.core.events import (
    Notice,
    Recorded,
    Recovering,
    StepStart,
    ToolDone,
    ToolStarted,
    TurnEnd,
    TurnEvent,
)
from hermes.core.message import Message
from hermes.llm.http.transport import Transport

log = logging.getLogger(__name__)

MAX_WAITING = 4096
"""Spans that wait for the collector; more are dropped and counted."""
_GROUP = 512
_PATH = "/v1/traces"
_SEND_SECONDS = 10.0
_LAST_SECONDS = 2.0
"""How long the end of a process waits for what is left."""
PARENT: ContextVar[SpanLink | None] = ContextVar("parent_span", default=None)
"""The span of the tool call that runs in this task: subagents are below it."""


class TraceExporter:
    """One per process. Adding spans never waits and never fails; what the collector does not take
    is dropped and counted."""

    def __init__(self, settings: TraceSection) -> None:
        parts = urlsplit(settings.otlp)
        is_base = parts.path in ("", "/")
        self._url = settings.otlp.rstrip("/") + _PATH if is_base else settings.otlp
        self._has_content = settings.content
        self._transport = Transport()
        self._waiting: deque[Span] = deque()
        self._wake = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._is_closing = False
        self.dropped = 0

    def trace_session(self, session: Session) -> None:
        """Send the turns of this session from now on."""
        session.attach_sink(SessionTrace(self, session, has_content=self._has_content))

    def add_spans(self, spans: list[Span]) -> None:
        room = MAX_WAITING - len(self._waiting)
        self._waiting.extend(spans[:room])
        self.dropped += max(0, len(spans) - room)
        if self._sender is None:
            # A context of its own: what it sends is not on the tape of the turn that woke it.
            loop, apart = asyncio.get_running_loop(), Context()
            self._sender = loop.create_task(self._send_waiting(), context=apart)
        self._wake.set()

    async def close(self) -> None:
        """Send what is left, within a short time."""
        self._is_closing = True
        self._wake.set()
        if self._sender is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._sender, _LAST_SECONDS)
        self.dropped += len(self._waiting)
        await self._transport.close()
        if self.dropped:
            log.warning("%d spans were not delivered to %s", self.dropped, self._url)

    async def _send_waiting(self) -> None:
        while not (self._is_closing and not self._waiting):
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                count = min(_GROUP, len(self._waiting))
                if not await self._send_group(list(islice(self._waiting, count))):
                    self.dropped += count
                for _ in range(count):
                    self._waiting.popleft()

    async def _send_group(self, group: list[Span]) -> bool:
        """Whether the collector took the spans."""
        headers = {"Content-Type": "application/json"}
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                answer = await self._transport.send(
                    "POST", self._url, headers=headers, body=encode_spans(group)
                )
                status = answer.status
                answer.close()
        except (ProviderError, ConfigError, TimeoutError) as error:
            log.debug("spans were not delivered: %s", error)
            return False
        return 200 <= status < 300


class SessionTrace:
    """Makes spans of the events of one session. An EventSink."""

    def __init__(self, exporter: TraceExporter, session: Session, *, has_content: bool) -> None:
        self.is_closed = False
        self._exporter = exporter
        self._session = session
        self._has_content = has_content
        self._turn: Span | None = None
        self._chat: Span | None = None
        self._calls: dict[str, Span] = {}
        self._ended: list[Span] = []
        self._active = 0
        """The index of the model in use."""
        self._last: Message | None = None

    def put(self, event: TurnEvent) -> None:
        now = time.time_ns()
        match event:
            case Recorded(message=message):
                self._note_message(message, now)
            case StepStart():
                self._open_chat(now)
            case Recovering(kind=kind, wait=wait):
                self._close_chat(now, kind)
                self._open_chat(now + int(wait * 1e9))
            case Notice(code="fallback"):
                self._active += 1
            case ToolStarted(call=call):
                span = self._open_child("execute_tool", call.name, now)
                describe_call(span, call)
                self._add_content(span, "gen_ai.tool.call.arguments", call.args)
                self._calls[call.id] = span
                PARENT.set(span.link)
            case ToolDone(result=result):
                if (span_of_call := self._calls.pop(result.call_id, None)) is not None:
                    self._add_content(span_of_call, "gen_ai.tool.call.result", result.text)
                    self._close_span(span_of_call, now, "tool_error" if result.error else "")
            case TurnEnd(result=end) if self._turn is not None:
                self._close_chat(now, end.error_code)
                for left in self._calls.values():
                    self._close_span(left, now, end.error_code)
                describe_usage(self._turn, end.usage)
                if end.target is not None:
                    self._turn.attributes["gen_ai.response.model"] = end.target.model
                self._close_span(self._turn, now, end.error_code)
                self._exporter.add_spans(self._ended)
                self._turn, self._calls, self._ended, self._active = None, {}, [], 0

    def close(self) -> None:
        self.is_closed = True

    def _note_message(self, message: Message, now: int) -> None:
        if message.role == "user" and message.kind == "normal" and self._turn is None:
            self._open_turn(now)
        if message.role == "assistant" and self._chat is not None:
            describe_answer(self._chat, message)
            self._add_content(self._chat, "gen_ai.output.messages", message)
            error = message.stop if message.stop in ("died", "aborted") else ""
            self._close_chat(now, error or "")
        self._last = message

    def _open_turn(self, now: int) -> Span:
        if self._turn is None:
            session = self._session.id
            self._turn = open_span("invoke_agent", AGENT, now, PARENT.get(), session)
            if providers := self._agent.providers:
                describe_request(self._turn, providers[0].target)
        return self._turn

    @property
    def _agent(self) -> Agent:
        return self._session.agent

    def _open_child(self, operation: Operation, subject: str, now: int) -> Span:
        return open_span(operation, subject, now, self._open_turn(now).link, self._session.id)

    def _open_chat(self, now: int) -> None:
        providers = self._agent.providers
        target = providers[min(self._active, len(providers) - 1)].target
        self._chat = self._open_child("chat", target.model, now)
        describe_request(self._chat, target)
        if self._last is not None:
            self._add_content(self._chat, "gen_ai.input.messages", self._last)

    def _close_chat(self, now: int, error: str) -> None:
        if self._chat is not None:
            self._close_span(self._chat, now, error)
            self._chat = None

    def _close_span(self, span: Span, now: int, error: str) -> None:
        span.start, span.end, span.error = min(span.start, now), now, error
        self._ended.append(span)

    def _add_content(self, span: Span, name: str, value: Message | str) -> None:
        if self._has_content:
            text = value if isinstance(value, str) else describe_message(value)
            span.attributes[name] = self._agent.redactor.redact(text)

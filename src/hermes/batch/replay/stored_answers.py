"""Plays a session that has no tape: its stored messages are the answers of the model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from msgspec import structs

from hermes.app.live.session_tape import AgentRecord, TapeTurn
from hermes.app.session_records import find_turn_starts
from hermes.batch.replay.replay_host import ReplayHost, StoredConversation
from hermes.core.events import StreamEvent
from hermes.core.message import Message, Native, Target, Text, Thinking, ToolCall
from hermes.core.provider import Request, ResponseSink
from hermes.llm.client import Client
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.tools.registry import list_tool_names

STORED = "stored"
"""The digest of the agent of turns that have no tape."""
_TARGET = Target("custom", "stored", "chat")


class StoredAnswers(Client):
    """Answers with the next stored message. A turn whose messages end is interrupted."""

    host: ReplayHost

    async def stream(
        self, request: Request, sink: ResponseSink
    ) -> AsyncGenerator[list[StreamEvent], None]:
        message = self.host.next_message
        if message is None or message.role != "assistant":
            self.host.tape.interrupt_turn()
            await self.host.tape.wait_stopped()
        _fill_sink(sink, message)
        yield sink.finish_events()
        if message.stop == "aborted":
            self.host.tape.interrupt_turn()
            await self.host.tape.wait_stopped()


def _fill_sink(sink: ResponseSink, message: Message) -> None:
    for slot, part in enumerate(message.parts):
        match part:
            case Text(text=text, extra=extra):
                sink.add_text(slot, text)
                if extra:
                    sink.add_extra(slot, "text", **extra)
            case Thinking(text=text, extra=extra):
                sink.add_thinking(slot, text)
                if extra:
                    sink.add_extra(slot, "thinking", **extra)
            case ToolCall(id=id, name=name, args=args, extra=extra):
                sink.add_call(slot, id=id, name=name, args=args)
                if extra:
                    sink.add_extra(slot, "call", **extra)
            case Native(data=data):
                sink.set_native(slot, data)
            case _:
                continue
    sink.stop = "tool_use" if message.calls else "end"
    if message.stop == "paused":
        sink.stop = "paused"


def list_untaped_turns(conversation: StoredConversation, session_id: str) -> list[TapeTurn]:
    """The turns of a session as if they had been recorded; what was compressed away meanwhile is
    left out."""
    messages = conversation.messages[session_id]
    starts = find_turn_starts(messages)
    if conversation.metas[session_id].next:
        starts = starts[:-1]
    return [
        TapeTurn(session_id, first, "new", 0.0, 0, STORED, is_opened=not number)
        for number, first in enumerate(starts)
        if _is_answered(messages, first)
    ]


def _is_answered(messages: Sequence[Message], first: int) -> bool:
    return any(message.role == "assistant" for message in messages[first + 1 : first + 2])


def make_stored_agent() -> AgentRecord:
    record = AgentRecord((ModelEndpoint(_TARGET, "http://stored.invalid"),))
    limits = structs.replace(record.limits, max_calls=1_000_000)
    compression = structs.replace(record.compression, enabled=False)
    names = tuple(sorted(list_tool_names()))
    return structs.replace(record, tools=names, limits=limits, compression=compression)

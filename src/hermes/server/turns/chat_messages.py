"""The messages of a chat request: what is said to the agent, and what was said before."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hermes.core.message import Message, ToolCall
from hermes.server.http.errors import bad
from hermes.server.http.request_schemas import Content, Role
from hermes.server.turns.client_tools import calls_of, returned
from hermes.server.turns.content import parts_of, visible


class ChatMessage(Struct):
    role: Role
    content: Content = None
    tool_calls: Any = None
    tool_call_id: Any = None
    name: Any = None


class Talk(Struct, frozen=True):
    instructions: str
    past: tuple[Message, ...]
    prompt: Message


def talk_of(messages: list[ChatMessage], *, client_tools: bool) -> Talk:
    if not messages:
        raise bad("messages must not be empty.", "messages")
    system: list[str] = []
    spoken: list[Message] = []
    made: dict[str, str] = {}
    for n, message in enumerate(messages):
        where = f"messages[{n}].content"
        match message.role:
            case "system" | "developer":
                system.append(Message("user", parts_of(message.content, where)).text)
            case "user":
                spoken.append(Message("user", parts_of(message.content, where)))
            case "assistant":
                parts = parts_of(message.content, where)
                calls: tuple[ToolCall, ...] = ()
                if client_tools:
                    calls = calls_of(message.tool_calls, f"messages[{n}].tool_calls")
                    made.update((call.id, call.name) for call in calls)
                spoken.append(Message("assistant", (*parts, *calls)))
            case "tool" | "function":
                if client_tools:
                    at = f"messages[{n}]"
                    spoken.append(returned(message.tool_call_id, message.content, made, at))
            case _:
                raise bad(f"messages[{n}].role is unknown.", f"messages[{n}].role")
    return _split("\n\n".join(filter(None, system)), spoken)


def _split(instructions: str, spoken: list[Message]) -> Talk:
    """The last thing said to the agent is the turn: a user's message, or a result it waits for."""
    last = len(spoken) - 1
    while last >= 0 and spoken[last].role == "assistant":
        last -= 1
    if last < 0 or not _answerable(spoken[last]):
        raise bad("messages: there is no user message with visible content.", "messages")
    past = tuple(m for m in spoken[:last] if m.role == "tool" or m.calls or visible(m))
    return Talk(instructions, past, spoken[last])


def _answerable(message: Message) -> bool:
    return message.role == "tool" or visible(message)

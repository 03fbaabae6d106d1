"""The input of a response or a run: a string, or items the last of which is the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes.core.message import Message, Text, ToolCall
from hermes.server.http.errors import bad_request
from hermes.server.turns.client_tools import parse_tool_result
from hermes.server.turns.content import has_visible_content, parse_content
from hermes.server.turns.turn_request import join_texts, split_prompt

_IGNORED_ROLES = frozenset({"tool", "function"})


def parse_input(
    value: Any, calls: dict[str, str] | None = None
) -> tuple[str, tuple[Message, ...], Message]:
    """Its system text, past and prompt. `calls`: the names of the calls so far by id, if the client
    runs them; without it they are left out."""
    if isinstance(value, str):
        if not value.strip():
            raise bad_request("input must not be empty.", "input")
        return "", (), Message("user", (Text(value),))
    if not isinstance(value, list) or not value:
        raise bad_request("input must be a string or a list of items.", "input")
    system, messages = _parse_items(value, calls, "input")
    return system, *split_prompt(messages, "input", "item")


def parse_history(items: Sequence[Any], field: str) -> tuple[str, tuple[Message, ...]]:
    """The system text and the messages of items none of which is the prompt."""
    system, messages = _parse_items(items, None, field)
    return system, tuple(m for m in messages if has_visible_content(m))


def _parse_items(
    items: Sequence[Any], calls: dict[str, str] | None, field: str
) -> tuple[str, list[Message]]:
    system: list[str] = []
    messages: list[Message] = []
    for n, item in enumerate(items):
        where = f"{field}[{n}]"
        if not isinstance(item, dict):
            raise bad_request(f"{where} must be an object.", where)
        role = item.get("role")
        if role in ("user", "assistant"):
            messages.append(Message(role, parse_content(item.get("content"), f"{where}.content")))
        elif role in ("system", "developer"):
            system.append(
                Message("user", parse_content(item.get("content"), f"{where}.content")).text
            )
        elif role in _IGNORED_ROLES:
            continue
        elif role is None and item.get("type", "message") != "message":
            if calls is not None:
                _parse_tool_item(item, calls, messages, where)
        else:
            raise bad_request(f"{where}.role is unknown.", f"{where}.role")
    return join_texts(*system), messages


def _parse_tool_item(
    item: dict[str, Any], calls: dict[str, str], messages: list[Message], where: str
) -> None:
    """A call the client was to run, or its result; items of other types are ignored."""
    call_id = item.get("call_id")
    match item.get("type"):
        case "function_call":
            name, args = item.get("name"), item.get("arguments", "{}")
            if not all(isinstance(text, str) for text in (call_id, name, args)):
                raise bad_request(f"{where} must have a call_id, a name and arguments.", where)
            calls[str(call_id)] = str(name)
            call = ToolCall(str(call_id), str(name), str(args))
            if messages and messages[-1].role == "assistant":  # one answer, one message
                messages[-1] = Message("assistant", (*messages[-1].parts, call))
            else:
                messages.append(Message("assistant", (call,)))
        case "function_call_output":
            messages.append(parse_tool_result(call_id, item.get("output"), calls, where))
        case _:
            return

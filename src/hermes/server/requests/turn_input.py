"""Parses the input of responses and runs: a string, or items of which the last is the prompt."""

from collections.abc import Sequence
from typing import Any

import orjson

from hermes.core.message import Message, Text, ToolCall, ToolReturn
from hermes.server.http.errors import bad_request
from hermes.server.requests.client_tools import parse_tool_result
from hermes.server.requests.content import has_visible_content, parse_content
from hermes.server.requests.turn_request import join_texts, split_prompt

_IGNORED_ROLES = frozenset({"tool", "function"})


def parse_input(
    value: Any, calls: dict[str, str] | None = None, *, with_own: bool = False
) -> tuple[str, tuple[Message, ...], Message]:
    """The system text, past and prompt of an input. `calls`: the names of the tool calls so far, by
    id; None leaves tool items out, for tools that the server runs. `with_own`: calls that ran here
    are part of the past as well."""
    if isinstance(value, str):
        if not value.strip():
            raise bad_request("input must not be empty.", "input")
        return "", (), Message("user", (Text(value),))
    if not isinstance(value, list) or not value:
        raise bad_request("input must be a string or a list of items.", "input")
    system, messages = _parse_items(value, calls, "input", with_own=with_own)
    return system, *split_prompt(messages, "input", "item")


def parse_history(items: Sequence[Any], field: str) -> tuple[str, tuple[Message, ...]]:
    """The system text and messages of items that do not include the prompt."""
    system, messages = _parse_items(items, None, field)
    return system, tuple(m for m in messages if has_visible_content(m))


def _parse_items(
    items: Sequence[Any], calls: dict[str, str] | None, field: str, *, with_own: bool = False
) -> tuple[str, list[Message]]:
    system: list[str] = []
    messages: list[Message] = []
    for n, item in enumerate(items):
        item_field = f"{field}[{n}]"
        if not isinstance(item, dict):
            raise bad_request(f"{item_field} must be an object.", item_field)
        role = item.get("role")
        if role in ("user", "assistant", "system", "developer"):
            parts = parse_content(item.get("content"), f"{item_field}.content")
            if role in ("user", "assistant"):
                messages.append(Message(role, parts))
            else:
                system.append(Message("user", parts).text)
        elif role in _IGNORED_ROLES:
            continue
        elif role is None and item.get("type", "message") != "message":
            if with_own and item.get("type") == "mcp_call":
                messages += _parse_own_call(item, item_field)
            elif calls is not None:
                _parse_tool_item(item, calls, messages, item_field)
        else:
            raise bad_request(f"{item_field}.role is unknown.", f"{item_field}.role")
    return join_texts(*system), messages


def _parse_tool_item(
    item: dict[str, Any], calls: dict[str, str], messages: list[Message], field: str
) -> None:
    """Add a tool call or its result to `messages`; items of other types are ignored."""
    call_id = item.get("call_id")
    match item.get("type"):
        case "function_call":
            name, args = item.get("name"), item.get("arguments", "{}")
            if not all(isinstance(text, str) for text in (call_id, name, args)):
                raise bad_request(f"{field} must have a call_id, a name and arguments.", field)
            calls[str(call_id)] = str(name)
            call = ToolCall(str(call_id), str(name), str(args))
            if messages and messages[-1].role == "assistant":  # the call is part of it
                messages[-1] = Message("assistant", (*messages[-1].parts, call))
            else:
                messages.append(Message("assistant", (call,)))
        case "function_call_output":
            parts = parse_content(item.get("output"), f"{field}.output")
            messages.append(parse_tool_result(call_id, parts, calls, field))
        case _:
            return


def _parse_own_call(item: dict[str, Any], field: str) -> tuple[Message, ...]:
    """A call that ran on the server, as its client repeats it."""
    texts = [item.get(name) for name in ("id", "name", "arguments")]
    if not all(isinstance(text, str) and text for text in texts):
        raise bad_request(f"{field} must have an id, a name and arguments.", field)
    call_id, name, args = map(str, texts)
    error = item.get("error")
    output = item.get("output") if error is None else error
    text = output if isinstance(output, str) else orjson.dumps(output).decode()
    result = ToolReturn(call_id, name, (Text(text),), error is not None)
    return Message("assistant", (ToolCall(call_id, name, args),)), Message("tool", (result,))

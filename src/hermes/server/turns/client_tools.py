"""Tools that the client runs: declared in its request, called in our answer, then answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from hermes.core.message import Message, Text, ToolCall, ToolReturn
from hermes.core.provider import ToolSpec
from hermes.server.http.errors import bad
from hermes.server.turns.content import parts_of

CLIENT = "client"
_MOST = 256
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class ClientTools(Struct, frozen=True):
    specs: tuple[ToolSpec, ...]
    settings: dict[str, Any]
    """What `tool_choice` means for the provider."""


def wanted(execution: str | None, tools: Any, choice: Any) -> ClientTools | None:
    """None: tools run on the server, and those the client names are not looked at."""
    if execution is None or execution == "server":
        return None
    if execution != CLIENT:
        raise bad("tool_execution must be server or client.", "tool_execution")
    if tools is not None and not isinstance(tools, list):
        raise bad("tools must be a list.", "tools")
    if len(tools or ()) > _MOST:
        raise bad(f"tools: at most {_MOST}.", "tools")
    specs = tuple(_spec(tool, f"tools[{n}]") for n, tool in enumerate(tools or ()))
    return ClientTools(specs, _choice(choice, {spec.name for spec in specs}))


def _spec(tool: Any, where: str) -> ToolSpec:
    """In the form of chat completions, of responses or of messages."""
    if not isinstance(tool, dict):
        raise bad(f"{where} must be an object.", where)
    given = tool.get("function", tool)
    if not isinstance(given, dict):
        raise bad(f"{where}.function must be an object.", where)
    name = given.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= 64 or not _NAME.issuperset(name):
        raise bad(f"{where}: the name has 1 to 64 letters, digits, _ or -.", where)
    schema = given.get("parameters", given.get("input_schema"))
    if schema is None:
        schema = {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise bad(f"{where}: the parameters must be a JSON Schema.", where)
    return ToolSpec(name, str(given.get("description") or ""), schema)


def names_of(tools: Any) -> frozenset[str]:
    """What the functions are called that a request declares, whoever runs them."""
    found: set[str] = set()
    for tool in tools if isinstance(tools, list) else ():
        given = tool.get("function", tool) if isinstance(tool, dict) else None
        name = given.get("name") if isinstance(given, dict) else None
        if isinstance(name, str):
            found.add(name)
    return frozenset(found)


def _choice(choice: Any, names: set[str]) -> dict[str, Any]:
    if choice is None or choice == "auto" or choice == {"type": "auto"}:
        return {}
    if choice in ("none", {"type": "none"}):
        return {"tool_choice": "none"}
    if choice in ("required", "any", {"type": "any"}):
        return {"tool_choice": "required"}
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else choice.get("name")
        if name in names:
            return {"tool_choice": "required", "tool": name}
    raise bad("tool_choice must be auto, none, required or one of the tools.", "tool_choice")


def calls_of(given: Any, where: str) -> tuple[ToolCall, ...]:
    """The calls of an assistant message, in the form of chat completions."""
    if given is None:
        return ()
    if not isinstance(given, list):
        raise bad(f"{where} must be a list.", where)
    found = []
    for n, entry in enumerate(given):
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(function, dict) or not isinstance(entry.get("id"), str):
            raise bad(f"{where}[{n}] must have an id and a function.", where)
        name, args = function.get("name"), function.get("arguments", "{}")
        if not isinstance(name, str) or not isinstance(args, str):
            raise bad(f"{where}[{n}].function must have a name and arguments.", where)
        found.append(ToolCall(entry["id"], name, args))
    return tuple(found)


def returned(call_id: Any, content: Any, made: dict[str, str], where: str) -> Message:
    """A result, which has to be one of a call that was made."""
    if not isinstance(call_id, str) or call_id not in made:
        raise bad(f"{where} is a result of a call that was not made.", where)
    text = Message("user", parts_of(content, where)).text
    return Message("tool", (ToolReturn(call_id, made[call_id], (Text(text),)),))


def open_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """What the turn ended with: calls for the client to run."""
    last = messages[-1] if messages else None
    return last.calls if last is not None and last.role == "assistant" else ()

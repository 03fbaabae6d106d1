"""Client-side tools: declared in the request, called by the model, run by the client."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from hermes.core.message import Message, Text, ToolCall, ToolReturn
from hermes.core.provider import ToolSpec
from hermes.server.http.errors import bad_request
from hermes.server.turns.content import parse_text

_MAX_TOOLS = 256
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class ClientTools(Struct, frozen=True):
    """The tools a client declares, and which of them the model must call."""

    specs: tuple[ToolSpec, ...]
    settings: dict[str, Any]
    """`tool_choice` as fields of core.provider.Settings."""


def parse_client_tools(execution: str | None, tools: Any, choice: Any) -> ClientTools | None:
    """The tools of the request, or None when the server runs its own instead."""
    if execution is None or execution == "server":
        return None
    if execution != "client":
        raise bad_request("tool_execution must be server or client.", "tool_execution")
    if tools is not None and not isinstance(tools, list):
        raise bad_request("tools must be a list.", "tools")
    if len(tools or ()) > _MAX_TOOLS:
        raise bad_request(f"tools must have at most {_MAX_TOOLS} entries.", "tools")
    specs = tuple(_parse_tool_spec(tool, f"tools[{n}]") for n, tool in enumerate(tools or ()))
    return ClientTools(specs, _parse_tool_choice(choice, {spec.name for spec in specs}))


def _parse_tool_spec(tool: Any, field: str) -> ToolSpec:
    """Parse a tool in the form of Chat Completions, Responses or Messages."""
    if not isinstance(tool, dict):
        raise bad_request(f"{field} must be an object.", field)
    function = tool.get("function", tool)
    if not isinstance(function, dict):
        raise bad_request(f"{field}.function must be an object.", field)
    name = function.get("name")
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= 64
        or not _NAME_CHARACTERS.issuperset(name)
    ):
        raise bad_request(f"{field}: the name must have 1 to 64 letters, digits, _ or -.", field)
    schema = function.get("parameters", function.get("input_schema"))
    if schema is None:
        schema = {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise bad_request(f"{field}: the parameters must be a JSON Schema object.", field)
    return ToolSpec(name, str(function.get("description") or ""), schema)


def list_tool_names(tools: Any) -> frozenset[str]:
    """The names of the functions that a request declares, whoever runs them."""
    found: set[str] = set()
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            found.add(name)
    return frozenset(found)


def _parse_tool_choice(choice: Any, names: set[str]) -> dict[str, Any]:
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
    raise bad_request(
        "tool_choice must be auto, none, required or one of the tools.", "tool_choice"
    )


def parse_tool_calls(entries: Any, field: str) -> tuple[ToolCall, ...]:
    """Parse the calls of an assistant message of Chat Completions."""
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise bad_request(f"{field} must be a list.", field)
    calls = []
    for n, entry in enumerate(entries):
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(function, dict) or not isinstance(entry.get("id"), str):
            raise bad_request(f"{field}[{n}] must have an id and a function.", field)
        name, args = function.get("name"), function.get("arguments", "{}")
        if not isinstance(name, str) or not isinstance(args, str):
            raise bad_request(f"{field}[{n}].function must have a name and arguments.", field)
        calls.append(ToolCall(entry["id"], name, args))
    return tuple(calls)


def parse_tool_result(call_id: Any, content: Any, calls: dict[str, str], field: str) -> Message:
    """Parse the result of a tool call; `calls`: the names of the calls so far, by id."""
    if not isinstance(call_id, str) or call_id not in calls:
        raise bad_request(f"{field} is the result of an unknown tool call.", field)
    text = Text(parse_text(content, field))
    return Message("tool", (ToolReturn(call_id, calls[call_id], (text,)),))


def list_open_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls that the turn ended with and the client must run."""
    last = messages[-1] if messages else None
    return last.calls if last is not None and last.role == "assistant" else ()

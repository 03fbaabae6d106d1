"""Client-side tools: declared in the request, called by the model, run by the client."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from hermes.core.message import Media, Message, Text, ToolCall, ToolReturn
from hermes.core.provider import ToolSpec
from hermes.server.http.call import ApiCall
from hermes.server.http.errors import bad_request

_MAX_TOOLS = 256
_MAX_NAME_LENGTH = 128
"""Anthropic's limit; programs with MCP servers use it. Others refuse more than 64 themselves."""
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class ClientTools(Struct, frozen=True):
    """The tools a client declares, and which of them the model must call."""

    specs: tuple[ToolSpec, ...] = ()
    settings: dict[str, Any] = {}
    """`tool_choice` as fields of core.provider.Settings."""
    with_own: bool = False
    """Whether the server offers its own tools as well."""


NO_TOOLS = ClientTools()
EXECUTION_HEADER = "X-Hermes-Tool-Execution"
_EXECUTIONS = ("client", "server", "both", "none")


def choose_execution(call: ApiCall, chosen: str | None) -> str:
    """Who runs the tools of a request: as its body, its header or the settings of its key say;
    empty: as its tools imply."""
    header = call.request.headers.get(EXECUTION_HEADER, "").strip().lower()
    execution = chosen or header or call.principal.tool_execution or ""
    if execution and execution not in _EXECUTIONS:
        field = "tool_execution" if chosen else EXECUTION_HEADER
        raise bad_request(f"{field} must be one of {', '.join(_EXECUTIONS)}.", "tool_execution")
    return execution


def parse_client_tools(execution: str, tools: Any, choice: Any) -> ClientTools | None:
    """The tools of the request; None when the server runs only its own. Without a choice, declared
    functions are the client's. `execution`: what was chosen, or empty."""
    if execution == "none":
        return NO_TOOLS
    if execution == "server":
        return None
    if tools is not None and not isinstance(tools, list):
        if not execution:
            return None
        raise bad_request("tools must be a list.", "tools")
    if len(tools or ()) > _MAX_TOOLS:
        raise bad_request(f"tools must have at most {_MAX_TOOLS} entries.", "tools")
    found = (_parse_tool_spec(tool, f"tools[{n}]") for n, tool in enumerate(tools or ()))
    specs = tuple(spec for spec in found if spec is not None)
    if not specs and execution != "client":
        return None
    chosen = _parse_tool_choice(choice, specs)
    return structs.replace(chosen, with_own=execution == "both")


def declares_function(tools: Any) -> bool:
    """Whether a request declares a function, whoever runs it."""
    return isinstance(tools, list) and any(_find_function(tool) is not None for tool in tools)


def list_unused_tools(used: ClientTools | None, tools: Any) -> tuple[str, ...]:
    """The declared tools that have no effect on this request."""
    if not isinstance(tools, list) or not tools:
        return ()
    if used is None and declares_function(tools):
        return ("tools",)
    hosted = [tool for tool in tools if _find_function(tool) is None]
    kinds = {str(tool.get("type")) for tool in hosted if isinstance(tool, dict)}
    return tuple(sorted(f"tools.{kind}" for kind in kinds if _NAME_CHARACTERS.issuperset(kind)))


def _find_function(tool: Any) -> dict[str, Any] | None:
    """The function of a tool; None for one that its provider would run itself."""
    if not isinstance(tool, dict):
        return None
    if tool.get("type", "custom") not in ("function", "custom", None):
        return None
    function = tool.get("function", tool)
    if not isinstance(function, dict):
        return None
    is_freeform = tool.get("type") == "custom" and "input_schema" not in tool
    return None if is_freeform or not isinstance(function.get("name"), str) else function


def is_tool_name(name: str) -> bool:
    """Whether providers accept a tool of this name."""
    return 0 < len(name) <= _MAX_NAME_LENGTH and _NAME_CHARACTERS.issuperset(name)


def _parse_tool_spec(tool: Any, field: str) -> ToolSpec | None:
    """Parse a tool in the form of Chat Completions, Responses or Messages."""
    if not isinstance(tool, dict):
        raise bad_request(f"{field} must be an object.", field)
    function = _find_function(tool)
    if function is None:
        if tool.get("type") == "function":  # without it, the server's own tools would run
            raise bad_request(f"{field}: the function must have a name.", field)
        return None
    name = function.get("name")
    if not isinstance(name, str) or not is_tool_name(name):
        raise bad_request(
            f"{field}: the name must have 1 to {_MAX_NAME_LENGTH} letters, digits, _ or -.", field
        )
    schema = function.get("parameters", function.get("input_schema"))
    if schema is None:
        schema = {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise bad_request(f"{field}: the parameters must be a JSON Schema object.", field)
    return ToolSpec(name, str(function.get("description") or ""), schema)


def _parse_tool_choice(choice: Any, specs: Sequence[ToolSpec]) -> ClientTools:
    """The tools that the client allows, and whether the model must call one. A choice of a hosted
    tool has no more effect than the tool itself."""
    allowed = tuple(specs)
    fields = choice if isinstance(choice, dict) else {"type": choice}
    kind = fields.get("type")
    if kind == "allowed_tools":
        fields = fields.get("allowed_tools", fields)
        named = {_read_tool_name(tool) for tool in fields.get("tools") or ()}
        allowed, kind = tuple(s for s in specs if s.name in named), fields.get("mode")
    match kind:
        case None | "auto":
            return ClientTools(allowed)
        case "none":
            return ClientTools(allowed, {"tool_choice": "none"})
        case "required" | "any":
            return ClientTools(allowed, {"tool_choice": "required"})
        case "function" | "tool" | "custom":
            name = _read_tool_name(fields)
            if any(spec.name == name for spec in specs):
                return ClientTools(allowed, {"tool_choice": "required", "tool": name})
        case str() if isinstance(choice, dict):
            return ClientTools(allowed)
    raise bad_request(
        "tool_choice must be auto, none, required or one of the tools.", "tool_choice"
    )


def _read_tool_name(tool: Any) -> Any:
    """The name in a reference to a function, in the form of any protocol."""
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    return function.get("name") if isinstance(function, dict) else None


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


def parse_tool_result(
    call_id: Any,
    parts: Sequence[Text | Media],
    calls: dict[str, str],
    field: str,
    *,
    error: bool = False,
) -> Message:
    """The result of a tool call as a message; `calls`: the names of the calls so far, by id."""
    if not isinstance(call_id, str) or call_id not in calls:
        raise bad_request(f"{field} is the result of an unknown tool call.", field)
    content = tuple(parts) or (Text(""),)
    return Message("tool", (ToolReturn(call_id, calls[call_id], content, error),))


def list_open_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls that the turn ended with and the client must run."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "assistant":
            return tuple(call for call in message.calls if call.id not in answered)
        answered |= {part.call_id for part in message.parts if isinstance(part, ToolReturn)}
    return ()

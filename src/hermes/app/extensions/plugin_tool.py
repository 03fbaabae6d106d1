"""Tools whose parameters are described by a JSON Schema instead of a type."""

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cached_property
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from typing_extensions import override

from hermes.app.extensions.run_time_tools import SessionTraits
from hermes.config.schema import ToolsSection
from hermes.core.errors import ToolError
from hermes.core.provider import ToolSpec
from hermes.core.text import clean_value, describe_exception, take_text
from hermes.core.tool import Risk, Tool, ToolContext, ToolResult, tool
from hermes.tools.registry import ALL, is_allowed

_MAX_RESULT = 10_000_000
_MAX_DEPTH = 100
_EMPTY_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


class _ObjectSchema(Struct, frozen=True):
    """What is used of a schema here."""

    type: Literal["object"] = "object"
    properties: dict[str, Any] = {}
    required: tuple[str, ...] = ()


class Arguments(Struct, frozen=True):
    """The arguments of a call as the model gave them."""

    values: dict[str, Any] = {}


class PluginTool(Tool[Arguments], frozen=True, dict=True):
    """A tool of a plugin; its handler checks the arguments itself."""

    schema: dict[str, Any] = field(default_factory=dict)

    @cached_property
    @override
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.schema)

    @override
    def parse_params(self, args: dict[str, Any]) -> Arguments:
        missing = [name for name in self.schema.get("required", ()) if name not in args]
        if missing:
            raise ToolError(f"Invalid arguments for {self.name}: {', '.join(missing)} is missing.")
        return Arguments(args)

    @override
    def describe_ignored(self, args: dict[str, Any]) -> str:
        return ""


class PluginTools:
    """The tools of all plugins, as a source of run-time tools."""

    def __init__(self, tools: Collection[PluginTool], settings: ToolsSection) -> None:
        self._tools = tools
        self._settings = settings
        self._lists: dict[tuple[str, tuple[str, ...] | None], tuple[Tool[Any], ...]] = {}

    @property
    def words(self) -> frozenset[str]:
        """What selects them: their names and those of their toolsets."""
        return frozenset(word for tool in self._tools for word in (tool.name, tool.toolset))

    def serves_session(self, session: SessionTraits) -> bool:
        return bool(self.list_tools(session))

    def list_tools(self, session: SessionTraits) -> tuple[Tool[Any], ...]:
        platform, wanted = session.platform, session.options.toolsets
        if (platform, wanted) not in self._lists:
            self._lists[platform, wanted] = tuple(
                tool
                for tool in self._tools
                if is_allowed(tool, self._settings, platform, is_selected=wanted is not None)
                and (wanted is None or not {ALL, tool.name, tool.toolset}.isdisjoint(wanted))
            )
        return self._lists[platform, wanted]

    def list_declared(self, session: SessionTraits) -> tuple[Tool[Any], ...]:
        return ()


def _read_parameters(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a tool as plain JSON. TypeError when models could not be told of them: it
    would be raised at every search for tools."""
    try:
        found: Any = json.loads(json.dumps(schema.get("parameters", schema), allow_nan=False))
        msgspec.json.encode(found)
    except (TypeError, ValueError, RecursionError):
        raise TypeError(f"the schema of {name} is not JSON") from None
    try:
        msgspec.convert(found, _ObjectSchema)
    except msgspec.ValidationError:
        raise TypeError(f"the schema of {name} does not describe an object") from None
    parameters: dict[str, Any] = clean_value(found)
    if _measure_depth(parameters) > _MAX_DEPTH:
        raise TypeError(f"the schema of {name} has more than {_MAX_DEPTH} levels")
    return parameters


def _measure_depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_measure_depth, inner), default=0)


def make_plugin_tool(
    name: str,
    toolset: str,
    schema: Mapping[str, Any],
    call: Callable[[dict[str, Any], ToolContext], Awaitable[Any]],
    *,
    description: str,
    risk: Risk,
) -> PluginTool:
    """A tool that calls a handler. `schema`: a JSON Schema of its arguments, or a function object
    that holds one in `parameters`."""
    parameters = _read_parameters(name, schema)
    if not isinstance(description, str):
        raise TypeError(f"the description of {name} is not a text")

    async def run(p: Arguments, ctx: ToolContext) -> ToolResult | str:
        try:
            value = await call(dict(p.values), ctx)
            is_text = isinstance(value, str)
            found = take_text(value) if is_text else json.dumps(value, default=str)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the code of others
            raise ToolError(f"{name} failed: {describe_exception(error)}") from None
        if len(found) > _MAX_RESULT:
            raise ToolError(f"{name} returned {len(found)} characters, more than {_MAX_RESULT}.")
        return found

    text = description or str(schema.get("description") or "") or name.replace("_", " ")
    made = tool(text, name=name, risk=risk, toolset=toolset)(run)
    fields = {field: getattr(made, field) for field in made.__struct_fields__}
    whole = {**_EMPTY_SCHEMA, **parameters}
    return PluginTool(**fields, schema=whole)

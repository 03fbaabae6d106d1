"""Tools whose parameters are described by a JSON Schema instead of a type."""

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct, field
from typing_extensions import override

from hermes.app.extensions.run_time_tools import SessionTraits
from hermes.config.schema import ToolsSection
from hermes.core.errors import ToolError
from hermes.core.provider import ToolSpec
from hermes.core.tool import Risk, Tool, ToolContext, ToolResult, tool
from hermes.tools.registry import ALL, is_allowed

_MAX_RESULT = 10_000_000
_EMPTY_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


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
    parameters = schema.get("parameters", schema)
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        raise TypeError(f"the schema of {name} does not describe an object")

    async def run(p: Arguments, ctx: ToolContext) -> ToolResult | str:
        try:
            value = await call(dict(p.values), ctx)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the code of others
            raise ToolError(f"{name} failed: {type(error).__name__}: {error}") from None
        found = value if isinstance(value, str) else json.dumps(value, default=str)
        if len(found) > _MAX_RESULT:
            raise ToolError(f"{name} returned {len(found)} characters, more than {_MAX_RESULT}.")
        return found

    text = description or str(schema.get("description") or "") or name.replace("_", " ")
    made = tool(text, name=name, risk=risk, toolset=toolset)(run)
    fields = {field: getattr(made, field) for field in made.__struct_fields__}
    whole = {**_EMPTY_SCHEMA, **parameters}
    return PluginTool(**fields, schema=whole)

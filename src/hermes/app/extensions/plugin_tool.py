"""Tools whose parameters are described by a JSON Schema instead of a type."""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct, field
from typing_extensions import override

from hermes.core.errors import ToolError
from hermes.core.provider import ToolSpec
from hermes.core.tool import Risk, Tool, ToolContext, ToolResult, tool

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
        return value if isinstance(value, str) else json.dumps(value, default=str)

    text = description or str(schema.get("description") or "") or name.replace("_", " ")
    made = tool(text, name=name, risk=risk, toolset=toolset)(run)
    fields = {field: getattr(made, field) for field in made.__struct_fields__}
    whole = {**_EMPTY_SCHEMA, **parameters}
    return PluginTool(**fields, schema=whole)

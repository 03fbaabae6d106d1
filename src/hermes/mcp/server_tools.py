"""Makes tools of the definitions that servers send."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from hermes.core.tool import RawArguments, SchemaTool, Tool, ToolContext, ToolResult
from hermes.core.untrusted_text import make_inert
from hermes.mcp.definitions import ToolDefinition, name_tools
from hermes.mcp.server_config import ServerConfig

CallTool: TypeAlias = Callable[[ToolDefinition, dict[str, Any], ToolContext], Awaitable[ToolResult]]
TOOLSET = "mcp"
_CORE = "core"
_MAX_SECONDS = 3600.0
"""For a whole call, with the time in which a person answers a question of the server."""


def make_tools(
    config: ServerConfig, definitions: Sequence[ToolDefinition], call: CallTool
) -> tuple[Tool[Any], ...]:
    """The tools of a server; those in `declare` belong to the toolset `core`."""
    names = name_tools(config.name, (tool.name for tool in definitions))
    return tuple(_make_tool(config, names[tool.name], tool, call) for tool in definitions)


def _make_tool(
    config: ServerConfig, name: str, definition: ToolDefinition, call: CallTool
) -> SchemaTool:
    return SchemaTool(
        name,
        make_inert(definition.description) or definition.name,
        RawArguments,
        partial(_run_tool, call, definition),
        toolset=_CORE if definition.name in config.settings.declare else TOOLSET,
        risk="network",
        timeout=_MAX_SECONDS,
        brings=frozenset({"untrusted"}),
        sends=True,
        acts=not definition.read_only,
        schema=definition.schema,
    )


async def _run_tool(
    call: CallTool, definition: ToolDefinition, params: RawArguments, ctx: ToolContext
) -> ToolResult:
    return await call(definition, params.values, ctx)

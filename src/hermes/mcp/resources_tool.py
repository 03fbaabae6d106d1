"""Lists and reads the resources of MCP servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.services import ServiceKey
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.mcp.server_link import ServerLink

SERVERS: ServiceKey[Callable[[], Mapping[str, ServerLink]]] = ServiceKey("MCP servers")
"""The servers of the session, by name."""


class Params(Struct, frozen=True):
    server: str
    uri: str = ""


@tool(
    "Resources of an MCP server: lists them, or reads the one at `uri`.",
    toolset="mcp",
    risk="network",
    timeout=3600.0,
    words="mcp resource read list",
)
async def mcp_resources(p: Params, ctx: ToolContext) -> ToolResult:
    try:
        return await _read_resources(p, ctx)
    except ToolError as error:
        failure = {"ok": False, "error": str(error)}
        return ToolResult(msgspec.json.encode(failure).decode(), error=True)


async def _read_resources(p: Params, ctx: ToolContext) -> ToolResult:
    servers = ctx.services.get(SERVERS)
    known = servers() if servers else {}
    link = known.get(p.server)
    if link is None:
        names = ", ".join(sorted(known)) or "none"
        raise ToolError(f"There is no MCP server {p.server!r}. Servers: {names}.")
    if p.uri:
        return await link.read(lambda connection: connection.read_resource(p.uri), ctx)
    found = await link.read(lambda connection: connection.list_resources(), ctx)
    return ToolResult(msgspec.json.encode({"ok": True, "resources": found}).decode(), data=found)

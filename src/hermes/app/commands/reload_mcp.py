"""/reload-mcp: reads the configuration of MCP servers again."""

from pathlib import Path

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.text import format_plural


@command(
    "reload-mcp",
    "read the configuration of MCP servers again",
    admin_only=True,
    needs_model=False,
)
async def reload_servers(ctx: CommandContext, args: str) -> Reply:
    servers = ctx.runtime.mcp_servers
    stopped = await servers.reload()
    links = servers.list_links(Path(ctx.session.transcript.meta.cwd))
    lines = [format_plural(len(links), "MCP server") + "."]
    if stopped:
        lines.append(f"Changed or removed: {', '.join(stopped)}.")
    return Reply(" ".join(lines))

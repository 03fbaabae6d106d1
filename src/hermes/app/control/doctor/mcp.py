"""The check of the MCP servers: whether they can be reached, and what needs attention."""

import asyncio
from pathlib import Path

from hermes.app.control.doctor.check import Check
from hermes.app.extensions.mcp_servers import McpServers, open_servers
from hermes.config.load import Setup
from hermes.core.errors import HermesError
from hermes.core.text import format_plural
from hermes.mcp.server_config import ServerConfig

_WAIT_SECONDS = 30.0


async def check_servers(setup: Setup) -> list[Check]:
    """Starts each enabled server once; nothing where none is configured."""
    async with open_servers(setup) as servers:
        known = servers.read_servers(Path.cwd())
        used = [config for config in known.values() if config.settings.enabled or config.problem]
        if not used:
            return []
        problems = await asyncio.gather(*(_find_problem(servers, config) for config in used))
    details = tuple(problem for problem in problems if problem)
    text = format_plural(len(used), "server")
    if not details:
        return [Check("mcp", "ok", f"{text} reached")]
    return [Check("mcp", "note", f"{len(details)} of {text} cannot be used fully", details)]


async def _find_problem(servers: McpServers, config: ServerConfig) -> str:
    link = servers.get_link(config)
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            await link.connect()
    except TimeoutError:
        return f"MCP {config.name} did not answer within {_WAIT_SECONDS:g} s."
    except HermesError as error:
        return str(error)
    return link.agreement.describe_changes()

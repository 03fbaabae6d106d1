"""The MCP servers that are configured: their states, and changes to them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes.config.load import Setup
from hermes.config.paths import logins_folder
from hermes.config.update import apply_changes
from hermes.core.errors import ConfigError, HermesError
from hermes.mcp.failures import LoginNeeded

if TYPE_CHECKING:
    from hermes.app.extensions.mcp_servers import McpServers
    from hermes.mcp.server_config import ServerConfig
    from hermes.mcp.server_link import ServerLink


def require_server(known: Mapping[str, ServerConfig], name: str) -> ServerConfig:
    """The server of this name; ConfigError when there is none."""
    if name not in known:
        names = ", ".join(known) or "none"
        raise ConfigError(f"There is no MCP server {name}. Servers: {names}.")
    return known[name]


def add_server(setup: Setup, name: str, entry: dict[str, Any]) -> None:
    """Add a server to config.yaml; ConfigError when the name is taken or the entry is wrong."""
    from hermes.mcp.server_config import parse_server

    if name in setup.config.mcp_servers:
        raise ConfigError(f"There is already an MCP server {name}. Run: hermes mcp remove {name}")
    if problem := parse_server(name, entry).problem:
        raise ConfigError(f"{name} was not added: {problem}.")
    apply_changes(setup.home, {f"mcp_servers.{name}": entry})


def switch_server(setup: Setup, config: ServerConfig, *, enabled: bool) -> None:
    _require_own(setup, config)
    apply_changes(setup.home, {f"mcp_servers.{config.name}.enabled": enabled})


def remove_server(setup: Setup, config: ServerConfig) -> None:
    """Forget a server, what was agreed to and its login."""
    from hermes.mcp.pins import PinStore

    _require_own(setup, config)
    apply_changes(setup.home, {f"mcp_servers.{config.name}": None})
    PinStore(setup.home).remove_pin(config.key)
    (logins_folder(setup.home) / f"mcp-{config.name}.json").unlink(missing_ok=True)


def _require_own(setup: Setup, config: ServerConfig) -> None:
    if config.name not in setup.config.mcp_servers:
        raise ConfigError(f"{config.name} is in {config.origin}; change it there.")


async def describe_server(servers: McpServers, config: ServerConfig) -> dict[str, Any]:
    """Connect to a server that is enabled, and say whether it works."""
    row: dict[str, Any] = {"name": config.name, "state": "disabled", "tools": None}
    if config.settings.enabled or config.problem:
        link = servers.get_link(config)
        try:
            await link.connect()
            row["state"] = "changed" if link.agreement.describe_changes() else "ok"
            row["tools"] = len(link.agreement.read_tools())
        except HermesError as error:
            row["state"] = describe_failure(config.name, error)
    return {**row, "origin": config.origin}


def describe_known(servers: McpServers, config: ServerConfig) -> dict[str, Any]:
    """What is known about a server without starting it."""
    row: dict[str, Any] = {"name": config.name, "state": "disabled", "tools": None}
    row |= {"origin": config.origin, "url": config.settings.url, "command": config.settings.command}
    if config.problem:
        return {**row, "state": f"failed: {config.problem}"}
    if not config.settings.enabled:
        return row
    link = servers.get_link(config)
    row["state"] = "not started"
    if link.failure:
        row["state"] = f"failed: {link.failure}"
    elif link.agreement.was_checked:
        row["state"] = "changed" if link.agreement.describe_changes() else "ok"
    row["tools"] = link.agreement.count_tools()
    return row


def describe_failure(name: str, error: HermesError) -> str:
    if isinstance(error, LoginNeeded):
        return "login needed"
    text = str(error).removeprefix(f"MCP {name}").lstrip(": ").rstrip(".")
    return f"failed: {text}"


async def try_server(link: ServerLink) -> dict[str, Any]:
    """Connect to a server; what it offers, or why it cannot be used."""
    name, began = link.config.name, time.monotonic()
    found: dict[str, Any] = {"name": name, "state": "ok", "tools": None, "version": "", "note": ""}
    try:
        connection = await link.connect()
    except HermesError as error:
        return {**found, "state": describe_failure(name, error), "milliseconds": None}
    found["milliseconds"] = round((time.monotonic() - began) * 1000)
    if sentence := link.agreement.describe_changes():
        return {**found, "state": "changed", "note": sentence}
    tools = len(link.agreement.read_tools())
    return {**found, "tools": tools, "version": connection.version}


async def list_changes(link: ServerLink) -> list[dict[str, Any]]:
    """What a server offers that was not agreed to: each tool, with its description before."""
    from hermes.core.untrusted_text import reveal_hidden

    old = link.agreement.read_pinned()
    await link.connect()
    rows: list[dict[str, Any]] = []
    for tool in link.agreement.changed:
        before = old.get(tool.name)
        rows.append(
            {
                "name": reveal_hidden(tool.name),
                "is_new": before is None,
                "description": reveal_hidden(tool.description),
                "before": reveal_hidden(before.description) if before else None,
                "parameters_changed": before is not None and before.schema != tool.schema,
            }
        )
    return rows

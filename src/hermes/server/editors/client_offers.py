"""What an editor offers to its sessions: its files, and MCP servers of its own."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import acp
from acp import RequestError, schema

from hermes.mcp.server_config import NAME_PATTERN, ServerConfig, ServerSettings

log = logging.getLogger(__name__)

_FILE_SECONDS = 10.0
_CLIENT = "editor"


class EditorFiles:
    """The text files of the editor. Paths have been checked before they arrive here; a file that
    the editor cannot handle is read from and written to the disk only."""

    def __init__(
        self, client: acp.Client, session_id: str, offers: schema.ClientCapabilities
    ) -> None:
        self._client = client
        self._session_id = session_id
        self._offered = offers.fs or schema.FileSystemCapabilities()

    async def read_text(self, path: Path) -> str | None:
        if not self._offered.read_text_file:
            return None
        try:
            async with asyncio.timeout(_FILE_SECONDS):
                found = await self._client.read_text_file(self._session_id, str(path))
        except (RequestError, ConnectionError, TimeoutError, ValueError) as error:
            log.info("the editor did not read %s: %s", path, error)
            return None
        return found.content

    async def write_text(self, path: Path, text: str) -> None:
        if not self._offered.write_text_file:
            return
        try:
            async with asyncio.timeout(_FILE_SECONDS):
                await self._client.write_text_file(self._session_id, str(path), text)
        except (RequestError, ConnectionError, TimeoutError, ValueError) as error:
            log.info("the editor did not write %s: %s", path, error)


def read_offers(capabilities: Any) -> schema.ClientCapabilities:
    """What a client says it can do; nothing if it says nothing valid."""
    try:
        return schema.ClientCapabilities.model_validate(capabilities or {})
    except ValueError:
        return schema.ClientCapabilities()


def read_servers(rows: Sequence[Any] | None) -> tuple[ServerConfig, ...]:
    """The MCP servers of a client; RequestError when one cannot be used."""
    return tuple(map(_read_server, rows or ()))


def _read_server(row: Any) -> ServerConfig:
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in row.name)
    name = name.replace("__", "_")[:32]
    if not NAME_PATTERN.match(name):
        raise RequestError.invalid_params({"reason": f"{row.name!r} cannot name an MCP server"})
    match row:
        case schema.McpServerStdio():
            env = {variable.name: variable.value for variable in row.env}
            settings = ServerSettings(command=row.command, args=tuple(row.args), env=env)
        case schema.HttpMcpServer() | schema.SseMcpServer():
            headers = {header.name: header.value for header in row.headers}
            settings = ServerSettings(url=row.url, transport=row.type, headers=headers)
        case _:
            reason = f"this kind of MCP server is not supported: {row.name}"
            raise RequestError.invalid_params({"reason": reason})
    return ServerConfig(name, settings, origin="the editor", client=_CLIENT)

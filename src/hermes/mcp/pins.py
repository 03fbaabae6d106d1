"""What the operator has agreed to: the tools of each server, by their hashes."""

import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.paths import cache_folder, make_private_folder
from hermes.config.private_files import hold_lock, replace_file
from hermes.core.errors import ConfigError
from hermes.core.text import safe_name
from hermes.mcp.definitions import ToolDefinition


class ServerPin(Struct, frozen=True):
    """One server as the operator agreed to it."""

    source: str
    """The digest of its command or address."""
    tools: dict[str, str] = {}
    """Tool -> digest of its definition."""

    def sort_tools(
        self, definitions: Iterable[ToolDefinition]
    ) -> tuple[list[ToolDefinition], list[ToolDefinition]]:
        """The tools that are as agreed, and those that are new or changed."""
        agreed: list[ToolDefinition] = []
        changed: list[ToolDefinition] = []
        for tool in definitions:
            (agreed if self.tools.get(tool.name) == tool.digest else changed).append(tool)
        return agreed, changed


class PinStore:
    """`mcp/pins.json` in the home, read each time, and the definitions behind it, in the cache.
    Definitions that do not have the pinned digest are not used."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "mcp"
        self._file = self._folder / "pins.json"
        self._cache = cache_folder(home) / "mcp"

    def read_all(self) -> dict[str, ServerPin]:
        """Server -> pin; ConfigError when the file is damaged, so that nothing is agreed to by
        accident."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, ServerPin])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            raise ConfigError(
                f"{self._file} cannot be read, so no MCP server is used. Remove the file to agree "
                "to all servers anew."
            ) from None

    def save_pin(self, key: str, source: str, tools: Collection[ToolDefinition]) -> ServerPin:
        """Agree to a server with exactly these tools."""
        pin = ServerPin(source, {tool.name: tool.digest for tool in tools})
        self._change_pins({key: pin})
        self.save_definitions(key, tools)
        return pin

    def remove_pin(self, key: str) -> None:
        self._change_pins({key: None})
        self._locate_definitions(key).unlink(missing_ok=True)

    def save_definitions(self, key: str, tools: Collection[ToolDefinition]) -> None:
        """Keep the definitions for sessions that begin before the server is started."""
        make_private_folder(self._cache)
        file, data = self._locate_definitions(key), msgspec.json.encode(list(tools))
        try:
            if not file.exists() or file.read_bytes() != data:
                replace_file(file, data)
        except OSError:
            return  # the next session starts the server for its search

    def read_definitions(self, key: str, pin: ServerPin) -> list[ToolDefinition]:
        """The pinned tools; those whose definitions are not at hand are missing."""
        try:
            data = self._locate_definitions(key).read_bytes()
            return pin.sort_tools(msgspec.json.decode(data, type=list[ToolDefinition]))[0]
        except (OSError, ValueError):
            return []

    def _locate_definitions(self, key: str) -> Path:
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        return self._cache / f"{safe_name(key, 'server')[:32]}-{digest}.json"

    def _change_pins(self, changes: dict[str, ServerPin | None]) -> None:
        make_private_folder(self._folder)
        with hold_lock(self._folder / ".pins.lock", self._file.name):
            merged = {**self.read_all(), **changes}
            kept = {key: pin for key, pin in sorted(merged.items()) if pin is not None}
            try:
                replace_file(self._file, msgspec.json.format(msgspec.json.encode(kept)))
            except OSError as error:
                raise ConfigError(
                    f"{self._file} could not be written ({error.strerror}); nothing was changed."
                ) from None

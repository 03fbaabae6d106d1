"""Which servers are configured: in config.yaml, in mcp.json, and in the .mcp.json of a project."""

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, structs

from hermes.config.schema import Section
from hermes.core.errors import ConfigError

NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")
MAX_DECLARED = 5
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_KIND_NAMES = {"http": "http", "streamable-http": "http", "streamableHttp": "http", "sse": "sse"}
"""What other programs write for `transport`."""


class ToolFilter(Section, frozen=True):
    include: tuple[str, ...] = ()
    """Only these tools; empty: all."""
    exclude: tuple[str, ...] = ()


class OAuthOptions(Section, frozen=True):
    client_id: str = ""
    """A client that the server knows, or the address of a document about it; empty: register."""
    client_secret: str = ""
    scope: str = ""
    redirect_port: Annotated[int, Meta(ge=0, le=65535)] = 0


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `mcp_servers`: a program to start, or an address."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    transport: Literal["http", "sse"] = "http"
    headers: dict[str, str] = {}
    auth: Literal["", "oauth"] = ""
    oauth: OAuthOptions = OAuthOptions()
    enabled: bool = True
    timeout: Annotated[float, Meta(gt=0)] = 120
    """Seconds of one call."""
    connect_timeout: Annotated[float, Meta(gt=0)] = 30
    tools: ToolFilter = ToolFilter()
    declare: Annotated[tuple[str, ...], Meta(max_length=MAX_DECLARED)] = ()
    """Tools that every request declares."""
    sampling: bool = False
    roots: bool = False
    elicitation: bool = True
    parallel: bool = False
    """Whether calls may run at the same time."""


class ServerConfig(Struct, frozen=True):
    """A configured server. One with a problem is listed but never started."""

    name: str
    settings: ServerSettings = ServerSettings()
    origin: str = "config.yaml"
    """The file that names it."""
    folder: Path | None = None
    """The project it belongs to; None: it is the operator's own."""
    problem: str = ""
    client: str = ""
    """The kind of client that brought it along; empty: it is configured here."""

    @property
    def key(self) -> str:
        """Its name among the pins: servers of projects and clients do not share those of the
        operator."""
        if self.client:
            whole = hashlib.sha256(msgspec.json.encode(self.settings)).hexdigest()
            return f"{self.name}@{self.client}:{whole[:16]}"
        return f"{self.name}@{self.folder}" if self.folder else self.name

    @property
    def digest(self) -> str:
        """Changes with what is started or connected to; secrets are not part of it."""
        s = self.settings
        parts = [s.command, s.args, sorted(s.env.items()), s.cwd, s.url, s.transport]
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()

    def expand_variables(self, get: Callable[[str], str | None]) -> "ServerConfig":
        """The server with `${NAME}` replaced; ConfigError for a variable that is not set."""

        def expand(text: str) -> str:
            return _VARIABLE.sub(replace, text)

        def replace(found: re.Match[str]) -> str:
            value = get(found[1])
            if value is None:
                raise ConfigError(
                    f"MCP {self.name} needs {found[1]}, which is set neither in the environment "
                    "nor in .env."
                )
            return value

        s = self.settings
        expanded = structs.replace(
            s,
            command=expand(s.command),
            args=tuple(map(expand, s.args)),
            env={name: expand(value) for name, value in s.env.items()},
            cwd=expand(s.cwd),
            url=expand(s.url),
            headers={name: expand(value) for name, value in s.headers.items()},
            oauth=structs.replace(s.oauth, client_secret=expand(s.oauth.client_secret)),
        )
        return structs.replace(self, settings=expanded)


def read_config_section(section: Mapping[str, Mapping[str, Any]]) -> dict[str, ServerConfig]:
    """The servers of `mcp_servers` in config.yaml."""
    return {name: parse_server(name, dict(entry)) for name, entry in section.items()}


def read_server_file(data: bytes, origin: str, folder: Path | None) -> dict[str, ServerConfig]:
    """The servers of a file with `mcpServers`, as other programs write it; keys that mean nothing
    here are ignored. ConfigError when it cannot be read."""
    try:
        entries = msgspec.json.decode(data)["mcpServers"]
        found = {str(name): dict(entry) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{origin} needs an object `mcpServers` of servers by name.") from None
    known = set(ServerSettings.__struct_fields__)
    servers = {}
    for name, entry in found.items():
        mine = {key: value for key, value in entry.items() if key in known}
        if kind := _KIND_NAMES.get(str(entry.get("type", ""))):
            mine["transport"] = kind
        if entry.get("disabled") is True:
            mine["enabled"] = False
        servers[name] = parse_server(name, mine, origin, folder)
    return servers


def parse_server(
    name: str, entry: dict[str, Any], origin: str = "config.yaml", folder: Path | None = None
) -> ServerConfig:
    """One server; what is wrong with it is its `problem`."""
    if not NAME_PATTERN.match(name) or "__" in name:
        problem = "its name must be 1 to 32 letters, digits, _ and -, without __"
        return ServerConfig(name[:32], origin=origin, folder=folder, problem=problem)
    try:
        if isinstance(env := entry.get("env"), dict):
            entry = {**entry, "env": {str(k): _format_scalar(v) for k, v in env.items()}}
        settings = msgspec.convert(entry, ServerSettings)
    except msgspec.ValidationError as error:
        return ServerConfig(name, origin=origin, folder=folder, problem=str(error))
    problem = ""
    if bool(settings.command) == bool(settings.url):
        problem = "it needs either a command or a url"
    elif settings.url and not settings.url.startswith(("http://", "https://", "${")):
        problem = "its url must begin with http:// or https://"
    return ServerConfig(name, settings, origin, folder, problem)


def _format_scalar(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value

"""The process environment: read here only, and filtered for child processes."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the first prompt must not wait for this import
    from hermes.config.secrets import Secrets

CHILD_MARK = "HERMES_CHILD"
"""Set for every process the agent starts; operator commands are refused there."""


def get_environment() -> Mapping[str, str]:
    return os.environ


_OF_MAKE = frozenset("MAKEFLAGS MAKELEVEL MAKEOVERRIDES MFLAGS MAKE_TERMOUT MAKE_TERMERR".split())
"""Of a `make` that started us: a `make` in a command is none of its children."""


def build_child_env(secrets: "Secrets", environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment for child processes, without any variable that names or contains a secret."""
    values = secrets.redactable_values()
    kept = {
        name: value
        for name, value in environ.items()
        if not secrets.must_hide(name)
        and name not in _OF_MAKE
        and not any(secret in value for secret in values)
        and not _has_password(value)
    }
    kept[CHILD_MARK] = "1"
    return kept


def _has_password(value: str) -> bool:
    """Whether it is a private key, or the address of a service with a password in it, such as a
    database; those of proxies and package indexes are kept."""
    if "PRIVATE KEY-----" in value:
        return True
    scheme, separator, rest = value.partition("://")
    person, at, _ = rest.partition("/")[0].rpartition("@")
    return bool(separator and at) and ":" in person and scheme.lower() not in ("http", "https")


def is_inside_agent(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process was started by an agent's tool."""
    return bool(environ.get(CHILD_MARK))


def supports_colour(stream_is_tty: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to use colour: only on a terminal that supports it, and never with NO_COLOR set."""
    return stream_is_tty and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


_REFLOWING = {
    "TERM_PROGRAM": ("tmux", "iTerm.app", "WezTerm", "vscode", "ghostty", "Apple_Terminal"),
    "TERM": ("xterm-kitty", "alacritty", "foot", "wezterm", "xterm-ghostty"),
    "TMUX": (),
    "VTE_VERSION": (),
    "WT_SESSION": (),
    "KONSOLE_VERSION": (),
}
"""Variables of terminals that rewrap long lines when resized, with their values; (): any."""


def terminal_reflows(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal rewraps long lines when it is resized."""
    return any(
        environ.get(name) and (not values or environ[name] in values)
        for name, values in _REFLOWING.items()
    )


def decode_argument(argument: str) -> str:
    """A command-line argument decoded as UTF-8, whatever the locale."""
    if argument.isascii():
        return argument
    raw = argument.encode(sys.getfilesystemencoding(), "surrogateescape")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return argument.encode("utf-8", "replace").decode("utf-8")


def find_proxy(url: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The proxy for this URL, from HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY as curl reads
    them: lower case first, and no upper-case HTTP_PROXY where a web server sets variables."""
    scheme, _, rest = url.partition("://")
    scheme = {"ws": "http", "wss": "https"}.get(scheme.lower(), scheme.lower())
    names = [f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"]
    if "REQUEST_METHOD" in environ:
        names.remove(f"{scheme.upper()}_PROXY")
    proxy = next((environ[name].strip() for name in names if environ.get(name, "").strip()), "")
    if not proxy:
        return None
    host, port = _split_host_port(rest, {"http": 80, "https": 443}.get(scheme, 0))
    bypass = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if any(_is_exempt(entry, host, port) for entry in bypass.replace(",", " ").split()):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _split_host_port(rest: str, default_port: int) -> tuple[str, int]:
    authority = rest.split("/", 1)[0].split("?", 1)[0].split("#", 1)[0].rpartition("@")[2]
    host, port = authority, ""
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        port = port.removeprefix(":")
    elif authority.count(":") == 1:
        host, _, port = authority.partition(":")
    return host.lower().rstrip("."), int(port) if port.isdecimal() else default_port


def _is_exempt(entry: str, host: str, port: int) -> bool:
    """Whether one entry of NO_PROXY covers the host: `*`, a domain and its subdomains, an address
    or a network."""
    if entry == "*":
        return True
    entry = entry.lower()
    if "/" in entry:
        return _is_in_network(host, entry)
    name, only_port = _split_host_port(
        entry if entry.count(":") < 2 or "[" in entry else f"[{entry}]", 0
    )
    if only_port and only_port != port:
        return False
    name = name.removeprefix("*").lstrip(".")
    return bool(name) and (host == name or host.endswith("." + name))


def _is_in_network(host: str, network: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False


def get_platform_name() -> str:
    """The operating system under its common name."""
    name = os.uname().sysname
    return {"Darwin": "macOS"}.get(name, name)


_MINIMAL_VARIABLES = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH"})


def build_minimal_env(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """For helper processes that need no settings: none of these variables can hold a secret."""
    return {name: environ[name] for name in _MINIMAL_VARIABLES if name in environ}


_SERVER_VARIABLES = frozenset("PATH HOME USER LOGNAME SHELL LANG TERM TMPDIR".split())
_SERVER_PREFIXES = ("LC_", "XDG_")


def build_server_env(
    own: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """For MCP servers: a few harmless variables, and what the operator gives this one."""
    kept = {
        name: value
        for name, value in environ.items()
        if name in _SERVER_VARIABLES or name.startswith(_SERVER_PREFIXES)
    }
    return {**kept, **own}

"""How a confined command finds the egress proxy it was granted."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from hermes.core.errors import ToolError

RELAY_PORT = 3128
_NAMES = ("http_proxy", "https_proxy", "all_proxy")


def through_relay(command: list[str], proxy: str) -> tuple[list[str], dict[str, str]]:
    """With namespaces: a relay beside the command offers the proxy's socket on its own loopback,
    where programs expect a proxy. The command with it, and what it needs in its environment."""
    if not proxy.startswith("/"):
        raise ToolError("This sandbox needs the path of the proxy's socket; nothing was run.")
    python = os.path.realpath(sys.executable)
    relay = [python, "-I", "-S", "-c", _source(), os.path.realpath(proxy), str(RELAY_PORT)]
    return [*relay, *command], environment(f"http://127.0.0.1:{RELAY_PORT}")


def by_address(proxy: str) -> tuple[str, int]:
    """Without them: the only address of the machine's loopback that may be connected to."""
    at = urlsplit(proxy)
    if at.scheme != "http" or at.hostname != "127.0.0.1" or not at.port:
        raise ToolError("This sandbox needs the proxy's address on loopback; nothing was run.")
    return at.hostname, at.port


def environment(url: str) -> dict[str, str]:
    """What makes curl, pip, git and most others use it."""
    found = {form: url for name in _NAMES for form in (name, name.upper())}
    return found | dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")


@cache
def _source() -> str:
    return Path(__file__).with_name("tcp_relay.py").read_text(encoding="utf-8")

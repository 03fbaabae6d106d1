"""Connects a confined command to the egress proxy it was granted."""

import os
import sys
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from hermes.core.errors import ToolError
from hermes.exec.sandbox.tcp_relay import VARIABLES

OFFLINE_ENVIRONMENT = {
    "PIP_RETRIES": "0",
    "UV_HTTP_RETRIES": "0",
    "npm_config_fetch_retries": "0",
    "CARGO_NET_RETRY": "0",
}
"""Without network, package managers fail at once instead of trying again for a minute."""
_NO_PROXY = dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")


def wrap_in_relay(command: list[str], proxy: str, mounted: str) -> tuple[list[str], dict[str, str]]:
    """With namespaces: the command behind a relay that offers the proxy's socket, mounted at this
    path, on the loopback inside; and its environment."""
    if not proxy.startswith("/"):
        raise ToolError("This sandbox needs the path of the proxy's socket; nothing was run.")
    python = os.path.realpath(sys.executable)
    relay = [python, "-I", "-S", "-c", _relay_source(), mounted]
    return [*relay, *command], _NO_PROXY


def parse_proxy_address(proxy: str) -> tuple[str, int]:
    """Without namespaces: the only address on loopback that may be connected to."""
    address = urlsplit(proxy)
    if address.scheme != "http" or address.hostname != "127.0.0.1" or not address.port:
        raise ToolError("This sandbox needs the proxy's address on loopback; nothing was run.")
    return address.hostname, address.port


def proxy_environment(url: str) -> dict[str, str]:
    """Variables that make curl, pip, git and most other programs use the proxy."""
    return {form: url for name in VARIABLES for form in (name, name.upper())} | _NO_PROXY


@cache
def _relay_source() -> str:
    return Path(__file__).with_name("tcp_relay.py").read_text(encoding="utf-8")

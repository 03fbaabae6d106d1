"""Tells addresses on this machine and in its network from others."""

import re
import socket
from urllib.parse import urlsplit

from hermes.llm.providers import provider_index

_OWN = re.compile(
    r"https?://(?:localhost|127\.[\d.]+|10\.[\d.]+|192\.168\.[\d.]+|172\.(?:1[6-9]|2\d|3[01])\.[\d.]+"
    r"|\[::1\]|[\w-]+|[\w.-]+\.(?:local|localhost|lan|internal))(?::\d+)?(?:/|$)",
    re.IGNORECASE,
)
_LOOPBACK6 = bytes(15) + b"\1"


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        if ":" in host:
            return socket.inet_pton(socket.AF_INET6, host) == _LOOPBACK6
        return socket.inet_pton(socket.AF_INET, host)[0] == 127
    except (OSError, ValueError):
        return False


def is_own_address(url: str) -> bool:
    """Whether the address is on this machine or in its own network."""
    return _OWN.match(url) is not None


def is_usual_server(url: str) -> bool:
    """Whether a model server of this machine usually listens there."""
    address = urlsplit(url).netloc
    return any(urlsplit(u).netloc == address for u in provider_index().local_servers.values())

"""The port the server listens on, and the names it goes by there."""

from __future__ import annotations

import socket

from hermes.config.api_server import ApiServer
from hermes.core.errors import ConfigError

BACKLOG = 1024
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = ("0.0.0.0", "::", "")


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host.strip("[]"), port))
        sock.listen(BACKLOG)  # of two that start at once, one is told only here
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"The API server cannot listen on {host}:{port}: {error.strerror}. Choose another "
            "with --port, or stop what uses it."
        ) from None
    return sock


def address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def names(settings: ApiServer) -> frozenset[str]:
    """Under which a request may call it."""
    bound = [settings.host.lower()] if settings.host not in _EVERYWHERE else []
    if not bound:
        bound = [socket.gethostname().lower(), *_addresses()]
    allowed = (_split(name)[0] for name in settings.allowed_hosts)
    return frozenset((*_LOOPBACK, *bound, *allowed))


def goes_by(known: frozenset[str], host: str) -> bool:
    """`host`: as a request says it, with a port or without."""
    name, port = _split(host)
    return name in known and (not port or port.isdigit())


def _split(host: str) -> tuple[str, str]:
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name.lower(), port.removeprefix(":")
    name, _, port = host.partition(":")
    return name.lower().rstrip("."), port


def _addresses() -> list[str]:
    """This machine's own, where it listens on all of them."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return []
    return [str(info[4][0]) for info in found]

"""Connections of another local user: the kernel notes who made a socket."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

import pytest

NOBODY = 65534


def connect_as(uid: int, url: str) -> socket.socket:
    own = os.geteuid()
    if own not in (0, uid):
        pytest.skip("only root can make sockets of other users")
    os.seteuid(uid)
    try:
        made = socket.socket(socket.AF_INET6 if "[" in url else socket.AF_INET)
    finally:
        os.seteuid(own)
    made.settimeout(20)
    made.connect((urlsplit(url).hostname, urlsplit(url).port))
    return made


def get_status(uid: int, url: str, path: str, *headers: str) -> int:
    """The status of a request by this user. Blocks: not for the event loop of the server."""
    with connect_as(uid, url) as made:
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
        made.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(made.recv(4096).split()[1])

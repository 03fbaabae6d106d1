"""Connections of another local user: the kernel notes who made a socket."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
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


def curl_as(uid: int, *args: str) -> int:
    """The status that a program of this user gets; 0: no answer."""
    if os.geteuid() != 0:
        pytest.skip("only root can start programs of other users")
    curl = shutil.which("curl", path="/usr/bin:/bin")
    if not curl:
        pytest.skip("needs curl")
    command = [curl, "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "60", *args]
    ran = subprocess.run(
        command, user=uid, group=uid, extra_groups=[], env={}, cwd="/", stdout=subprocess.PIPE
    )
    return int(ran.stdout)


def get_status(uid: int, url: str, path: str, *headers: str) -> int:
    """The status of a request by this user. Blocks: not for the event loop of the server."""
    with connect_as(uid, url) as made:
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
        made.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(made.recv(4096).split()[1])

"""A real OpenSSH server of our own on loopback, and a client that knows only it."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CONFIG = """\
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
SetEnv SHLVL=5
LogLevel VERBOSE
"""
"""With that SHLVL bash does not read the start files of whoever runs the tests."""
_CLIENT = """\
Host there
  HostName 127.0.0.1
  Port {port}
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
  IdentityFile none
  IdentityAgent none
"""


def missing() -> str:
    """Why there can be no server here; empty when there can."""
    if not _server():
        return "sshd (OpenSSH's server) is not installed"
    if not shutil.which("ssh") or not shutil.which("ssh-keygen"):
        return "ssh (OpenSSH's client) is not installed"
    return ""


def _server() -> str:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or ""


class Sshd:
    """`settings` is for `terminal.ssh`; `path` has to be the PATH of who connects."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.user = getpass.getuser()
        self.bin = folder / "bin"
        self.log = folder / "log"

    @property
    def settings(self) -> dict[str, object]:
        return {"host": "there", "user": self.user, "key_file": str(self.folder / "key")}

    @property
    def path(self) -> str:
        return f"{self.bin}:{os.environ.get('PATH', os.defpath)}"

    def accepted(self) -> int:
        """Connections that were made so far."""
        return self.log.read_text().count("Accepted publickey")

    def sessions(self) -> list[int]:
        """Processes of the server that serve a connection."""
        named = f"sshd: {self.user}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    if (folder / "cmdline").read_bytes().startswith(named):
                        found.append(int(folder.name))
                except OSError:
                    continue
        return found

    def forget_host(self) -> None:
        (self.folder / "known_hosts").write_text("")

    def refuse_key(self) -> None:
        (self.folder / "authorized").write_text("")


@contextmanager
def sshd(folder: Path) -> Iterator[Sshd]:
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("host_key", "key"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(make, check=True, timeout=90)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Sshd(folder, port)
    shutil.copy(folder / "key.pub", folder / "authorized")
    public = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {public}")
    (folder / "server").write_text(_CONFIG.format(folder=folder, port=port))
    (folder / "client").write_text(_CLIENT.format(folder=folder, port=port))
    server.bin.mkdir()
    client = server.bin / "ssh"  # the user's own configuration is no part of a test
    client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/client "$@"\n')
    client.chmod(0o755)
    with server.log.open("wb") as log:
        process = subprocess.Popen(
            [_server(), "-D", "-e", "-f", str(folder / "server")], stdout=log, stderr=log
        )
    try:
        until = time.monotonic() + 90
        while "listening on" not in server.log.read_text():
            assert process.poll() is None, server.log.read_text()
            assert time.monotonic() < until, server.log.read_text()
            time.sleep(0.01)
        yield server
    finally:
        process.terminate()
        process.wait(10)

"""Runs inside a sandbox that is being tried, and says of each forbidden thing whether it worked."""

# It is handed to an interpreter as a text, so it imports nothing of ours.

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable

_NEWUSER = 0x10000000


def main(outside: str, secret: str, port: int, agent: int) -> dict[str, str]:
    """What each attempt ended with; an empty text means that it succeeded."""
    libc = ctypes.CDLL(None, use_errno=True)
    attempts: dict[str, Callable[[], object]] = {
        "write outside the workspace": lambda: _write(f"{outside}/written"),
        "read a hidden file": lambda: _read(secret),
        "reach the network": lambda: socket.create_connection(("127.0.0.1", port), 1).close(),
        "reach the machine beneath": lambda: socket.socket(40, socket.SOCK_STREAM).close(),
        "mount": lambda: _mount(libc, outside.encode()),
        "make a user namespace": lambda: _checked(libc.unshare(_NEWUSER)),
        "use a capability": lambda: _status("0" * 16, "CapInh", "CapPrm", "CapAmb", "CapEff"),
        "gain privileges": lambda: _status("1", "NoNewPrivs"),
        "make forbidden system calls": lambda: _status("2", "Seccomp"),
        "read the first process's environment": lambda: _environment(1),
        "read the agent's environment": lambda: _environment(agent),
        "signal the agent": lambda: os.kill(agent, 0),
    }
    results = {name: _result(attempt) for name, attempt in attempts.items()}
    results["write in the workspace"] = _result(lambda: _write("canary"))
    return results


def _result(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return str(error.strerror or error)
    return ""


def _write(path: str) -> None:
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write("x")


def _read(path: str) -> None:
    with open(path, "rb") as file:  # noqa: PTH123
        file.read()


def _mount(libc: ctypes.CDLL, folder: bytes) -> None:
    _checked(libc.mount(b"none", folder, b"tmpfs", 0, None))
    libc.umount2(folder, 0)


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _status(wanted: str, *names: str) -> None:
    """Fails, that is: all is as it should be, when these lines of our status say so."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        found = dict(line.split(":", 1) for line in file.read().splitlines() if ":" in line)
    if all(found.get(name, "").strip() == wanted for name in names):
        raise PermissionError(1, f"{names[-1]} is {wanted}")


def _environment(process: int) -> None:
    with open(f"/proc/{process}/environ", "rb") as file:  # noqa: PTH123
        if not file.read():
            raise PermissionError(1, "it is empty")


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))  # noqa: T201

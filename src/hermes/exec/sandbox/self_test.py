"""Runs inside a sandbox that is being probed: attempts what must be forbidden and reports it."""

# Passed to an interpreter as text, so it imports nothing of ours.

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

_NEWUSER = 0x10000000


def run_attempts(outside: str, secret: str, port: int, agent: int) -> dict[str, str]:
    """Attempt -> the error it ended with; empty: it succeeded."""
    libc = ctypes.CDLL(None, use_errno=True)
    attempts: dict[str, Callable[[], object]] = {
        "write outside the workspace": lambda: Path(outside, "written").write_text("x"),
        "read a hidden file": Path(secret).read_bytes,
        "reach the network": lambda: socket.create_connection(("127.0.0.1", port), 1).close(),
        "reach the hypervisor": lambda: socket.socket(40, socket.SOCK_STREAM).close(),
        "mount": lambda: _mount_folder(libc, outside.encode()),
        "create a user namespace": lambda: _check_result(libc.unshare(_NEWUSER)),
        "use a capability": lambda: _check_status("0" * 16, "CapInh", "CapPrm", "CapAmb", "CapEff"),
        "gain privileges": lambda: _check_status("1", "NoNewPrivs"),
        "make forbidden system calls": lambda: _check_status("2", "Seccomp"),
        "read the environment of the first process": lambda: _read_environment(1),
        "read the agent's environment": lambda: _read_environment(agent),
        "signal the agent": lambda: os.kill(agent, 0),
    }
    results = {name: _try_attempt(attempt) for name, attempt in attempts.items()}
    results["write_inside"] = _try_attempt(lambda: Path("self-test").write_text("x"))
    return results


def _try_attempt(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return str(error.strerror or error)
    except AttributeError as error:  # a call that this system does not have
        return str(error)
    return ""


def _mount_folder(libc: ctypes.CDLL, folder: bytes) -> None:
    _check_result(libc.mount(b"none", folder, b"tmpfs", 0, None))
    libc.umount2(folder, 0)


def _check_result(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _check_status(wanted: str, *names: str) -> None:
    """Raise PermissionError, as a failed attempt does, when our status is as it must be."""
    lines = Path("/proc/self/status").read_text("utf-8", "replace").splitlines()
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    if all(found.get(name, "").strip() == wanted for name in names):
        raise PermissionError(1, f"{names[-1]} is {wanted}")


def _read_environment(process: int) -> None:
    if not Path(f"/proc/{process}/environ").read_bytes():
        raise PermissionError(1, "it is empty")


if __name__ == "__main__":
    print(json.dumps(run_attempts(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))  # noqa: T201

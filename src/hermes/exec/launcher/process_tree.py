"""Finds processes by their ancestors, and signals them."""

# ruff: noqa: PTH123, PTH208 - pathlib takes 3 ms
import contextlib
import os
import signal
import sys
from collections.abc import Collection, Iterator, Sequence

_MAX_LISTINGS = 5


def list_descendants(*roots: int, skip: Collection[int] = ()) -> list[int]:
    """All living processes below `roots`, without the subtrees in `skip`."""
    below: dict[int, list[int]] = {}
    for pid, parent, _ in list_processes():
        below.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = list(roots)
    while queue:
        for pid in below.get(queue.pop(), ()):
            if pid not in skip:
                found.append(pid)
                queue.append(pid)
    return found


def list_below(root: int) -> list[int]:
    """The processes below one, fast. One whose parent ends meanwhile may be missed, so they are
    listed again until nothing has changed."""
    before: list[int] = []
    for _ in range(_MAX_LISTINGS):
        found = [root]
        for pid in found:
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                        found += map(int, file.read().split())
        if found == before:
            break
        before = found
    return before[1:]


def read_command_line(pid: int) -> list[bytes]:
    """The words of a process; one that has ended has an empty one."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return [b""]


def list_processes() -> Iterator[tuple[int, int, bytes]]:
    """(process, parent, name) of all processes; nothing where there is no /proc."""
    if sys.platform != "linux":
        return
    with os.scandir("/proc") as entries:
        for number in [entry.name for entry in entries if entry.name.isdigit()]:
            try:
                with open(f"/proc/{number}/stat", "rb") as file:
                    stat = file.read()
            except OSError:
                continue
            end = stat.rindex(b")")
            state, parent, _ = stat[end + 2 :].split(b" ", 2)
            if state != b"Z":
                yield int(number), int(parent), stat[stat.index(b"(") + 1 : end]


def send_signals(pids: Sequence[int], *, force: bool) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)

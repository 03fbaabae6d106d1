"""Control groups for one command, in whichever layout this system has; none where we may not."""

# ruff: noqa: PTH102, PTH106, PTH123, PTH208
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache

_PREFIX = "hermes-"
_WANTED = ("memory", "pids")


def join() -> list[str]:
    """New groups with this process in them, without limits yet; [] where we may not.

    Moving a process takes the kernel up to 20 ms, so it is done ahead of need.
    """
    joined: list[str] = []
    wanted = set(_WANTED)
    for controllers, folder in _places():
        group = f"{folder}/{_PREFIX}{os.getpid()}"
        if wanted & controllers and _enter(group):
            joined.append(group)
            wanted -= controllers
    return joined


def possible() -> bool:
    """Whether `join` and `limit` would work, as far as can be told without doing it."""
    wanted = set(_WANTED)
    for controllers, folder in _places():
        group = f"{folder}/{_PREFIX}{os.getpid()}"
        with contextlib.suppress(OSError):
            os.mkdir(group, 0o755)
            os.rmdir(group)
            if os.access(f"{folder}/cgroup.procs", os.W_OK):
                wanted -= controllers
    return not wanted


def limit(groups: list[str], memory: int, processes: int) -> bool:
    """Whether both limits hold for all in these groups."""
    memory_set = _set(groups, ("memory.max", "memory.limit_in_bytes"), memory)
    _set(groups, ("memory.memsw.limit_in_bytes",), memory)
    _set(groups, ("memory.swap.max",), 0)
    return _set(groups, ("pids.max",), processes + 1) and memory_set  # one more: the keeper


def stop_forking(groups: list[str]) -> None:
    _set(groups, ("pids.max",), 0)


def sweep(pid: int = 0) -> None:
    """Remove the groups of this process, which has ended; 0: of all that have."""
    for _, folder in _places():
        if pid:
            names = [f"{_PREFIX}{pid}"]
        else:
            names = [name for name in _names(folder) if not _lives(name.removeprefix(_PREFIX))]
        for name in names:
            with contextlib.suppress(OSError):
                os.rmdir(f"{folder}/{name}")


def _names(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.startswith(_PREFIX)]
    except OSError:
        return []


def _set(groups: list[str], names: tuple[str, ...], value: int) -> bool:
    done = False
    for group in groups:
        for name in names:
            with contextlib.suppress(OSError):
                _write(f"{group}/{name}", value)
                done = True
    return done


def _lives(pid: str) -> bool:
    return os.access(f"/proc/{pid}", os.F_OK)


def _enter(group: str) -> bool:
    try:
        os.mkdir(group, 0o755)
        _write(f"{group}/cgroup.procs", 0)
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(group)
        return False
    return True


def _write(path: str, value: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"%d" % value)
    finally:
        os.close(fd)


@cache
def _places() -> list[tuple[set[str], str]]:
    """(controllers that a new group there would have, folder), of version 1 and 2.

    A version 2 group that has processes cannot have groups with limits below it: then one of its
    ancestors may take a sibling of it.
    """
    found: list[tuple[set[str], str]] = []
    ours = _memberships()
    for line in _lines("/proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        kind, *_, options = right.split()
        root, mounted = left.split()[3:5]
        names = set(options.split(",") if kind == "cgroup" else [""]) & ours.keys()
        if kind not in ("cgroup", "cgroup2") or not names:
            continue
        path = ours[next(iter(names))]
        if root != "/" and not (path + "/").startswith(root + "/"):
            continue
        inside = (path if root == "/" else path[len(root) :]).rstrip("/")
        if kind == "cgroup2":
            found += _second(mounted, inside)
        elif names & set(_WANTED):
            found.append((names, mounted + inside))
    return found


def _second(mounted: str, inside: str) -> Iterator[tuple[set[str], str]]:
    while True:
        enabled = _lines(f"{mounted}{inside}/cgroup.subtree_control")
        if controllers := set(" ".join(enabled).split()) & set(_WANTED):
            yield controllers, mounted + inside
        if not inside:
            return
        inside = inside.rpartition("/")[0]


def _memberships() -> dict[str, str]:
    """Controller -> path of our group; version 2 has the empty name."""
    found: dict[str, str] = {}
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []

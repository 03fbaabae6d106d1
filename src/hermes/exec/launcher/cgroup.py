"""Control groups that limit one command, of either version; where we may create them."""

# ruff: noqa: PTH102, PTH106, PTH123, PTH208
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache

_PREFIX = "hermes-"
_CONTROLLERS = ("memory", "pids")


def join_groups() -> list[str]:
    """Create groups and move this process into them, without limits yet; [] where we may not.

    Moving a process takes the kernel up to 20 ms, so it is done ahead of time.
    """
    joined: list[str] = []
    wanted = set(_CONTROLLERS)
    for controllers, folder in _find_parents():
        group = f"{folder}/{_PREFIX}{os.getpid()}"
        if wanted & controllers and _create_and_enter(group):
            joined.append(group)
            wanted -= controllers
    return joined


def can_limit() -> bool:
    """Whether `join_groups` and `set_limits` would work, as far as can be told beforehand."""
    wanted = set(_CONTROLLERS)
    for controllers, folder in _find_parents():
        group = f"{folder}/{_PREFIX}{os.getpid()}"
        with contextlib.suppress(OSError):
            os.mkdir(group, 0o755)
            os.rmdir(group)
            if os.access(f"{folder}/cgroup.procs", os.W_OK):
                wanted -= controllers
    return not wanted


def set_limits(groups: list[str], memory: int, processes: int) -> bool:
    """Limit all processes in these groups; True when both limits could be set."""
    memory_set = _write_limit(groups, ("memory.max", "memory.limit_in_bytes"), memory)
    _write_limit(groups, ("memory.memsw.limit_in_bytes",), memory)
    _write_limit(groups, ("memory.swap.max",), 0)
    return (
        _write_limit(groups, ("pids.max",), processes + 1) and memory_set
    )  # one more: the supervisor


def stop_forking(groups: list[str]) -> None:
    """Allow no new processes in these groups."""
    _write_limit(groups, ("pids.max",), 0)


def remove_groups(pid: int = 0) -> None:
    """Remove the groups of a process that has ended; 0: of all that have ended."""
    for _, folder in _find_parents():
        if pid:
            names = [f"{_PREFIX}{pid}"]
        else:
            names = [
                name for name in _list_groups(folder) if not _is_alive(name.removeprefix(_PREFIX))
            ]
        for name in names:
            with contextlib.suppress(OSError):
                os.rmdir(f"{folder}/{name}")


def _list_groups(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.startswith(_PREFIX)]
    except OSError:
        return []


def _write_limit(groups: list[str], names: tuple[str, ...], value: int) -> bool:
    done = False
    for group in groups:
        for name in names:
            with contextlib.suppress(OSError):
                _write_number(f"{group}/{name}", value)
                done = True
    return done


def _is_alive(pid: str) -> bool:
    return os.access(f"/proc/{pid}", os.F_OK)


def _create_and_enter(group: str) -> bool:
    try:
        os.mkdir(group, 0o755)
        _write_number(f"{group}/cgroup.procs", 0)
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(group)
        return False
    return True


def _write_number(path: str, value: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"%d" % value)
    finally:
        os.close(fd)


@cache
def _find_parents() -> list[tuple[set[str], str]]:
    """Folders in which groups can be created, each with the controllers that a new group has.

    A version 2 group that contains processes cannot have groups with limits below it, so its
    ancestors are listed too.
    """
    found: list[tuple[set[str], str]] = []
    ours = _read_memberships()
    for line in _read_lines("/proc/self/mountinfo"):
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
            found += _list_v2_parents(mounted, inside)
        elif names & set(_CONTROLLERS):
            found.append((names, mounted + inside))
    return found


def _list_v2_parents(mounted: str, inside: str) -> Iterator[tuple[set[str], str]]:
    while True:
        enabled = _read_lines(f"{mounted}{inside}/cgroup.subtree_control")
        if controllers := set(" ".join(enabled).split()) & set(_CONTROLLERS):
            yield controllers, mounted + inside
        if not inside:
            return
        inside = inside.rpartition("/")[0]


def _read_memberships() -> dict[str, str]:
    """Controller -> path of our group; the name for version 2 is empty."""
    found: dict[str, str] = {}
    for line in _read_lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _read_lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []

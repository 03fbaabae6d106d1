"""Control groups for one command, in whichever layout this system has; none where we may not."""

# ruff: noqa: PTH102, PTH106, PTH123, PTH208
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_PREFIX = "hermes-"


def make(memory: int, processes: int) -> tuple[list[str], bool]:
    """New groups below our own (or beside it), and whether they set both limits."""
    made: list[str] = []
    wanted = {"memory", "pids"}
    for controllers, folders in _hierarchies():
        found = wanted & controllers
        for folder in folders if found else ():
            group = f"{folder}/{_PREFIX}{os.getpid()}"
            if _make_one(group, _settings(found, memory, processes, v2="" in controllers)):
                made.append(group)
                wanted -= found
                break
    return made, not wanted


def join(groups: list[str]) -> bool:
    """Move this process there; whether it is."""
    try:
        for group in groups:
            _write(f"{group}/cgroup.procs", 0)
    except OSError:
        return False
    return bool(groups)


def stop_forking(groups: list[str]) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            _write(f"{group}/pids.max", 0)


def remove(groups: list[str]) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            os.rmdir(group)


def sweep() -> None:
    """Remove what killed keepers have left behind."""
    for _, folders in _hierarchies():
        for folder in folders:
            with contextlib.suppress(OSError):
                names = [n for n in os.listdir(folder) if n.startswith(_PREFIX)]
                gone = [n for n in names if not _lives(n.removeprefix(_PREFIX))]
                remove([f"{folder}/{name}" for name in gone])


def _lives(pid: str) -> bool:
    return os.access(f"/proc/{pid}", os.F_OK)


def _settings(
    controllers: set[str], memory: int, processes: int, *, v2: bool
) -> list[tuple[str, int, bool]]:
    """(file, value, whether it must be there)"""
    found: list[tuple[str, int, bool]] = []
    if "memory" in controllers:
        found.append(("memory.max" if v2 else "memory.limit_in_bytes", memory, True))
        found.append(
            ("memory.swap.max", 0, False) if v2 else ("memory.memsw.limit_in_bytes", memory, False)
        )
    if "pids" in controllers:
        found.append(("pids.max", processes, True))
    return found


def _make_one(group: str, settings: list[tuple[str, int, bool]]) -> bool:
    try:
        os.mkdir(group, 0o755)
    except OSError:
        return False
    for name, value, needed in settings:
        try:
            _write(f"{group}/{name}", value)
        except OSError:
            if needed:
                remove([group])
                return False
    return True


def _write(path: str, value: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"%d" % value)
    finally:
        os.close(fd)


def _hierarchies() -> Iterator[tuple[set[str], list[str]]]:
    """(controllers that a new group there would have, folders to try), of version 1 and 2.

    A version 2 group that has processes cannot have groups with limits below it: then one of its
    ancestors may take a sibling of it.
    """
    ours = _memberships()
    for line in _lines("/proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        kind, *_, options = right.split()
        if kind not in ("cgroup", "cgroup2"):
            continue
        root, mounted = left.split()[3:5]
        names = set(options.split(",")) & ours.keys() if kind == "cgroup" else {""}
        for path in {ours[name] for name in names if name in ours}:
            if root != "/" and not (path + "/").startswith(root + "/"):
                continue
            inside = (path if root == "/" else path[len(root) :]).rstrip("/")
            if kind == "cgroup":
                yield names, [mounted + inside]
            else:
                yield from _second(mounted, inside)


def _second(mounted: str, inside: str) -> Iterator[tuple[set[str], list[str]]]:
    while True:
        with contextlib.suppress(OSError):
            (enabled,) = _lines(f"{mounted}{inside}/cgroup.subtree_control") or [""]
            if controllers := set(enabled.split()):
                yield {*controllers, ""}, [mounted + inside]
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

"""Control groups, of either version, that limit the commands of a session together."""

# ruff: noqa: PTH102, PTH106, PTH120, PTH123
import contextlib
import os
from collections.abc import Iterator
from functools import cache

_PREFIX = "hermes-"
_CONTROLLERS = ("memory", "pids")
_SUPERVISORS = 20
"""Processes of ours that a session may have besides those of its commands."""


def join_groups(session: str) -> list[str]:
    """Create groups and move this process into them, without limits yet; [] where we may not. A
    session has a group with the limits, and each of its commands a group in that one. Moving takes
    the kernel up to 20 ms, so it is done early."""
    joined: list[str] = []
    wanted = set(_CONTROLLERS)
    for controllers, folder in _find_parents():
        group = f"{folder}/{_PREFIX}{os.getppid()}-{session or os.getpid()}/{os.getpid()}"
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
            with contextlib.suppress(OSError):  # another process that tidies up may be faster
                os.rmdir(group)
            if os.access(f"{folder}/cgroup.procs", os.W_OK):
                wanted -= controllers
    return not wanted


def set_limits(groups: list[str], memory: int, processes: int) -> bool:
    """Limit all processes of the session with these groups; True when both limits could be set."""
    sessions = [os.path.dirname(group) for group in groups]
    memory_set = _write_limit(sessions, ("memory.max", "memory.limit_in_bytes"), memory)
    _write_limit(sessions, ("memory.memsw.limit_in_bytes",), memory)
    _write_limit(sessions, ("memory.swap.max",), 0)
    return _write_limit(sessions, ("pids.max",), processes + _SUPERVISORS) and memory_set


def count_hits(groups: list[str]) -> tuple[int, int]:
    """How many processes were killed for want of memory, and how often none could be started."""
    memory = [f"{g}/memory.{n}" for g in groups for n in ("events", "oom_control")]
    # Linux counts in the group of the process, since 6.10 in that of the limit.
    forks = [f"{g}/pids.events" for group in groups for g in (group, os.path.dirname(group))]
    return _sum_counts(memory, "oom_kill "), _sum_counts(forks, "max ")


def _sum_counts(paths: list[str], label: str) -> int:
    lines = (line for path in paths for line in _read_lines(path) if line.startswith(label))
    return sum(int(line.removeprefix(label)) for line in lines)


def stop_forking(groups: list[str]) -> None:
    """Allow no new processes in these groups."""
    _write_limit(groups, ("pids.max",), 0)


def remove_groups(pid: int = 0) -> None:
    """Remove the groups of a process that has ended; 0: of all that have ended."""
    for _, folder in _find_parents():
        for name in _list_names(folder, _PREFIX):
            launcher = name.removeprefix(_PREFIX).partition("-")[0]
            leaves = [str(pid)] if pid and launcher == str(os.getpid()) else []
            if not os.access(f"/proc/{launcher}", os.F_OK):
                leaves = _list_names(f"{folder}/{name}")
            for leaf in (*leaves, "."):
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.normpath(f"{folder}/{name}/{leaf}"))


def _list_names(folder: str, prefix: str = "") -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [e.name for e in entries if e.name.startswith(prefix) and e.is_dir()]
    except OSError:
        return []


def _write_limit(groups: list[str], names: tuple[str, ...], value: int) -> bool:
    done = False
    for group in groups:
        for name in names:
            with contextlib.suppress(OSError):
                _write_value(f"{group}/{name}", value)
                done = True
    return done


def _create_and_enter(group: str) -> bool:
    session = os.path.dirname(group)
    for _ in range(5):
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(session, 0o755)
                _write_limit([session], ("memory.use_hierarchy",), 1)  # before Linux 5.11
            for name in _CONTROLLERS:
                with contextlib.suppress(OSError):
                    _write_value(f"{session}/cgroup.subtree_control", f"+{name}")
            os.mkdir(group, 0o755)
            _write_value(f"{group}/cgroup.procs", 0)
        except FileNotFoundError:  # the session's last command has ended just now
            continue
        except OSError:
            break
        return True
    leave_groups([group])
    return False


def leave_groups(groups: list[str]) -> None:
    """Remove groups that this process has left."""
    for group in groups:
        with contextlib.suppress(OSError):
            os.rmdir(group)
            os.rmdir(os.path.dirname(group))


def _write_value(path: str, value: int | str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)


@cache
def _find_parents() -> list[tuple[set[str], str]]:
    """Folders in which groups can be created, each with the controllers that a new group has. Of
    version 2 also ancestors: a group with processes can have no groups with limits below it."""
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

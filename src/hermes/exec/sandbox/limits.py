"""Translates resource limits into the form in which the launcher applies them."""

# ruff: noqa: PTH116
import os
import resource
from collections.abc import Iterator
from contextlib import suppress

from hermes.exec.launcher.protocol import SetupInstructions
from hermes.exec.sandbox.policy import ResourceLimits

_GB = 1024**3


def limit_instructions(limits: ResourceLimits) -> SetupInstructions:
    """Control groups limit the commands of a session together, where we may create them. Where we
    may not, memory is limited per process, generously, and the number of processes for the user as
    a whole, on top of those that already run; root is not bound by it."""
    memory = _find_memory_limit(limits)
    always = [
        (resource.RLIMIT_FSIZE, limits.file),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, limits.open_files),
    ]
    fallback = [(resource.RLIMIT_DATA, limits.memory or max(memory, 16 * _GB))]
    if os.geteuid():
        fallback.append((resource.RLIMIT_NPROC, limits.processes + _count_tasks(os.geteuid())))
    return {
        "limits": always,
        "fallback_limits": fallback,
        "cgroup_limits": (memory, limits.processes),
    }


def describe_hits(hits: tuple[int, int]) -> Iterator[str]:
    """Notes about the limits that a command hit: of memory, of processes."""
    killed, refused = hits
    limits, together = ResourceLimits(), "together the commands of this session may have"
    if killed:
        memory = _find_memory_limit(limits) / _GB
        yield f"[{killed} process(es) killed for want of memory: {together} {memory:.1f} GB]"
    if refused:
        yield f"[no process could be started {refused} times: {together} {limits.processes}]"


def _find_memory_limit(limits: ResourceLimits) -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return limits.memory or max(total * 3 // 4, _GB // 2)


def _count_tasks(user: int) -> int:
    count = 0
    with suppress(FileNotFoundError), os.scandir("/proc") as entries:
        for name in (entry.name for entry in entries if entry.name.isdigit()):
            with suppress(OSError):
                found = os.stat(f"/proc/{name}/task")
                count += found.st_nlink - 2 if found.st_uid == user else 0
    return count

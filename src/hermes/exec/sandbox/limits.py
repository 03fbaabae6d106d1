"""Limits in the form the launcher applies them."""

# ruff: noqa: PTH116
from __future__ import annotations

import os
import resource

from hermes.exec.launcher.protocol import Box
from hermes.exec.sandbox.policy import Limits

_GB = 1024**3


def box_of(limits: Limits) -> Box:
    """Control groups count a command as a whole, where they can be had; the rest is per process.

    Where they cannot, address space stands for memory, generously: runtimes reserve much more of
    it than they use. The number of processes is then one of all of the user's, plus these; root is
    not bound by it.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = limits.memory or max(total * 3 // 4, _GB // 2)
    always = [
        (resource.RLIMIT_FSIZE, limits.file),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, limits.open_files),
    ]
    otherwise = [(resource.RLIMIT_AS, limits.memory or max(memory, 16 * _GB))]
    if os.geteuid():
        otherwise.append((resource.RLIMIT_NPROC, limits.processes + _tasks_of(os.geteuid())))
    return {"limits": always, "otherwise": otherwise, "cgroup": (memory, limits.processes)}


def _tasks_of(user: int) -> int:
    count = 0
    with os.scandir("/proc") as entries:
        for name in (entry.name for entry in entries if entry.name.isdigit()):
            try:
                found = os.stat(f"/proc/{name}/task")
            except OSError:
                continue
            if found.st_uid == user:
                count += found.st_nlink - 2
    return count

"""Removes saved outputs that are old, or more than there is room for."""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

OUTPUTS_NAME = "outputs"
KEEP_DAYS = 7.0
MAX_BYTES = 500 * 1024 * 1024
CHECK_SECONDS = 3600.0
_next_check: dict[Path, float] = {}
"""When each folder is cleaned up next: a server runs for weeks."""


def is_cleanup_due(folder: Path) -> bool:
    """Whether it is time to clean up; True once per interval."""
    folder = _find_root(folder)
    now = time.monotonic()
    if now < _next_check.get(folder, now):
        return False
    _next_check[folder] = now + CHECK_SECONDS
    return True


def remove_old_outputs(folder: Path, *, days: float = KEEP_DAYS, most: int = MAX_BYTES) -> int:
    """Remove files older than `days`, then the oldest above `most` bytes; returns how many."""
    folder = _find_root(folder)
    found: list[tuple[float, int, str]] = []
    oldest = time.time() - days * 86400
    for above, _, names in os.walk(folder):
        with suppress(OSError):
            if Path(above) != folder and not names and Path(above).stat().st_mtime < oldest:
                Path(above).rmdir()
        for file in (Path(above, name) for name in names):
            with suppress(OSError):
                status = file.lstat()
                if stat.S_ISREG(status.st_mode):
                    found.append((status.st_mtime, status.st_size, str(file)))
    room, removed = most, 0
    for changed, size, path in sorted(found, reverse=True):
        room -= size
        if changed < oldest or room < 0:
            with suppress(OSError):
                Path(path).unlink()
                removed += 1
    return removed


def _find_root(folder: Path) -> Path:
    """The folder of all conversations, given the folder of one."""
    return folder.parent if folder.parent.name == OUTPUTS_NAME else folder

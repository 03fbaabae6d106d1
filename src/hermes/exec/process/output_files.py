"""Removes saved outputs that are old, or more than there is room for."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

KEEP_DAYS = 7.0
MAX_BYTES = 500 * 1024 * 1024
CHECK_SECONDS = 3600.0
_next_check: dict[Path, float] = {}
"""When each folder is cleaned up next: a server runs for weeks."""


def is_cleanup_due(folder: Path) -> bool:
    """Whether it is time to clean up; True once per interval."""
    now = time.monotonic()
    if now < _next_check.get(folder, now):
        return False
    _next_check[folder] = now + CHECK_SECONDS
    return True


def remove_old_outputs(folder: Path, *, days: float = KEEP_DAYS, most: int = MAX_BYTES) -> int:
    """Remove files older than `days`, then the oldest above `most` bytes; returns how many."""
    found: list[tuple[float, int, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime, status.st_size, entry.path))
    oldest = time.time() - days * 86400
    room, removed = most, 0
    for changed, size, path in sorted(found, reverse=True):
        room -= size
        if changed < oldest or room < 0:
            with suppress(OSError):
                Path(path).unlink()
                removed += 1
    return removed

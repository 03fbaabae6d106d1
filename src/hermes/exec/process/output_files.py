"""Files of outputs too long to show: kept for a while, and not more of them than there is room."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

DAYS = 7.0
MOST = 500 * 1024 * 1024
EVERY = 3600.0
_next: dict[Path, float] = {}
"""When each folder is looked at again: a server runs for weeks."""


def due(folder: Path) -> bool:
    """Whether it is time to tidy; asking once is enough."""
    now = time.monotonic()
    if now < _next.get(folder, now):
        return False
    _next[folder] = now + EVERY
    return True


def tidy(folder: Path, *, days: float = DAYS, most: int = MOST) -> int:
    """Remove what is older, and the oldest of what is too much; how many were removed."""
    found: list[tuple[float, int, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    about = entry.stat(follow_symlinks=False)
                    found.append((about.st_mtime, about.st_size, entry.path))
    oldest = time.time() - days * 86400
    room, removed = most, 0
    for changed, size, path in sorted(found, reverse=True):
        room -= size
        if changed < oldest or room < 0:
            with suppress(OSError):
                Path(path).unlink()
                removed += 1
    return removed

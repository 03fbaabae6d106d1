"""What is alive on this machine, and waiting for what another process does."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path


def stat_of(pid: int) -> list[str]:
    """State, parent and the rest; empty: it is gone (also between opening and reading)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []


def parent_of(pid: int) -> int:
    return int(stat_of(pid)[1])


def alive(pid: int) -> bool:
    """Running, and not just waiting to be reaped."""
    if Path("/proc/self").exists():
        return (stat_of(pid) or "Z")[0] not in ("Z", "X")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def living(mark: str) -> list[int]:
    """The processes that are `sleep mark`."""
    return [pid for pid, words in command_lines() if words[:2] == ["sleep", mark] and alive(pid)]


def naming(mark: str) -> list[int]:
    """The processes that have this word in their command line."""
    return [pid for pid, words in command_lines() if mark in words and alive(pid)]


def command_lines() -> Iterator[tuple[int, list[str]]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{name}/cmdline").read_bytes()
                yield int(name), line.decode(errors="replace").split("\0")


async def until(condition: Callable[[], object], seconds: float = 90) -> None:
    """Waits as long as a busy machine may need; what holds at once costs nothing."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def appears(path: Path) -> str:
    """The text of a file that another process writes."""
    await until(lambda: path.exists() and path.read_text().strip())
    return path.read_text().strip()

"""The log file read back: the latest records first found, filtered, followed."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.cli.terminal.text import printable

LEVELS = ("debug", "info", "warning", "error", "critical")
_PAUSE = 0.2

Wanted = Callable[[dict[str, Any]], bool]


def wanted(level: str, session: str) -> Wanted:
    least = LEVELS.index(level)

    def is_wanted(record: dict[str, Any]) -> bool:
        known = str(record.get("level", ""))
        if known in LEVELS and LEVELS.index(known) < least:
            return False
        said = str(record.get("session", ""))
        return not session or said.startswith(session) or session in str(record.get("message", ""))

    return is_wanted


class Place(Struct, frozen=True):
    """How far a file was read."""

    inode: int = 0
    size: int = 0
    rest: bytes = b""
    """The beginning of a line that is not whole yet."""


def latest(file: Path, count: int, test: Wanted) -> list[dict[str, Any]]:
    """Of this file and of the one before it, in order."""
    return tail(file, count, test)[0]


def tail(file: Path, count: int, test: Wanted) -> tuple[list[dict[str, Any]], Place]:
    """The same, and from where to follow: nothing written meanwhile is missed or told twice."""
    found: deque[dict[str, Any]] = deque(maxlen=count)
    place = Place()
    for part in (file.with_suffix(".log.1"), file):
        try:
            with part.open("rb") as opened:
                inode, data = os.fstat(opened.fileno()).st_ino, opened.read()
        except OSError:
            continue
        *lines, rest = data.split(b"\n")
        found.extend(r for line in lines if (r := record(line)) is not None and test(r))
        if part is file:
            place = Place(inode, len(data), rest)
    return list(found), place


def record(line: bytes) -> dict[str, Any] | None:
    """None for a line that is none of ours, such as one a crash cut short."""
    try:
        found = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def follow(
    file: Path, place: Place, test: Wanted, sleep: Callable[[float], None] = time.sleep
) -> Iterator[dict[str, Any]]:
    """What is written from there on, for ever; the file may be begun anew at any time."""
    inode, size, rest = place.inode, place.size, place.rest
    while True:
        now, length = _identity(file)
        if now != inode or length < size:
            inode, size, rest = now, 0, b""
        if length > size:
            with file.open("rb") as opened:
                opened.seek(size)
                data = opened.read(length - size)
            size += len(data)
            *lines, rest = (rest + data).split(b"\n")
            yield from (r for line in lines if (r := record(line)) is not None and test(r))
        sleep(_PAUSE)


def _identity(file: Path) -> tuple[int, int]:
    try:
        about = os.stat(file)  # noqa: PTH116 - polled
    except OSError:
        return 0, 0
    return about.st_ino, about.st_size


def readable(record: dict[str, Any]) -> str:
    """For people, with a trace indented below."""
    when = str(record.get("time", ""))[:19].replace("T", " ")
    level = str(record.get("level", "")).upper()
    session = f" [{record['session']}]" if record.get("session") else ""
    head = f"{when} {level:<8}{session} {record.get('logger', '')}: {record.get('message', '')}"
    text = printable(" ".join(head.split("\n")))
    trace = printable(str(record.get("trace", "")).rstrip())
    return text + "".join(f"\n    {line}" for line in trace.splitlines())

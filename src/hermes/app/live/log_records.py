"""The records of the log file: the last ones, and those that are written from then on."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

LEVELS = ("debug", "info", "warning", "error", "critical")
_POLL_SECONDS = 0.2

LogRecord: TypeAlias = dict[str, Any]
RecordFilter: TypeAlias = Callable[[LogRecord], bool]


class LogPosition(NamedTuple):
    """How far a file was read."""

    inode: int = 0
    size: int = 0
    partial: bytes = b""
    """The beginning of a line that is not complete yet."""


def make_filter(level: str, session: str) -> RecordFilter:
    """Passes records of at least this level that concern the session, if one is given."""
    least = LEVELS.index(level)

    def matches_record(record: LogRecord) -> bool:
        known = str(record.get("level", ""))
        if known in LEVELS and LEVELS.index(known) < least:
            return False
        found = str(record.get("session", ""))
        return not session or found.startswith(session) or session in str(record.get("message", ""))

    return matches_record


def read_tail(path: Path, count: int, matches: RecordFilter) -> tuple[list[LogRecord], LogPosition]:
    """The last records of this file and the one before it, in order, and the position from which
    `follow_log` neither misses nor repeats one."""
    found: deque[LogRecord] = deque(maxlen=count)
    position = LogPosition()
    for file in (path.with_suffix(".log.1"), path):
        try:
            with file.open("rb") as stream:
                inode, data = os.fstat(stream.fileno()).st_ino, stream.read()
        except OSError:
            continue
        *lines, partial = data.split(b"\n")
        found.extend(_parse_records(lines, matches))
        if file is path:
            position = LogPosition(inode, len(data), partial)
    return list(found), position


class LogFollower:
    """Reads the records that are written from a position on; the file may be replaced."""

    def __init__(self, path: Path, position: LogPosition) -> None:
        self._path = path
        self._position = position

    def read_new(self, matches: RecordFilter) -> list[LogRecord]:
        inode, size, partial = self._position
        now, length = _file_identity(self._path)
        if now != inode or length < size:
            inode, size, partial = now, 0, b""
        lines: list[bytes] = []
        if length > size:
            with self._path.open("rb") as stream:
                stream.seek(size)
                data = stream.read(length - size)
            size += len(data)
            *lines, partial = (partial + data).split(b"\n")
        self._position = LogPosition(inode, size, partial)
        return list(_parse_records(lines, matches))


def follow_log(
    path: Path,
    position: LogPosition,
    matches: RecordFilter,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[LogRecord]:
    """Records written from there on, without end."""
    follower = LogFollower(path, position)
    while True:
        yield from follower.read_new(matches)
        sleep(_POLL_SECONDS)


def _parse_records(lines: list[bytes], matches: RecordFilter) -> Iterator[LogRecord]:
    """Skips lines that are not records, such as one that a crash cut short."""
    for line in lines:
        try:
            record = msgspec.json.decode(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and matches(record):
            yield record


def _file_identity(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - polled
    except OSError:
        return 0, 0
    return status.st_ino, status.st_size

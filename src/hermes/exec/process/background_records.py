"""What is on disk about commands in the background: what they are, their logs, their ends."""

# One folder each: `record` by the agent that started it; `out.N`, `end`, `lock` and `socket` by its
# keeper; `seen` (how much of the log was shown) and `input` (what was typed) by whoever did that.

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.instances import alive
from hermes.exec.launcher.protocol import END, LOCK, SEGMENT, Why
from hermes.exec.process.ansi import plain
from hermes.exec.process.output_capture import whole_lines
from hermes.exec.process.signals import signal_name

RECORD, SEEN, INPUT = "record", "seen", "input"
MAX_TYPED = 32 * 1024
"""Bytes of what was typed that are kept, to judge what is typed next."""
_UNFINISHED = re.compile(
    rb"[A-Za-z0-9_.+/=-]{8,4096}\Z"
    rb"|[\xc2-\xdf]\Z|[\xe0-\xef][\x80-\xbf]?\Z|[\xf0-\xf4][\x80-\xbf]{0,2}\Z"
)
"""At the end of an output: a word that may go on, or a part of a character."""
_NAME = re.compile(r"p[1-9]\d{0,8}")


class Record(Struct, frozen=True):
    id: str
    session: str
    scope: str
    """Sessions of one scope share their commands; empty: nobody else sees it."""
    command: str
    cwd: str
    started: float
    token: str
    pty: bool = False
    keep: bool = False
    """Whether it outlives the agent."""
    confined: bool = False
    online: bool = False
    """Whether it was given a way through the walls to the network."""


class End(Struct, frozen=True):
    status: int
    why: Why = ""
    at: float = 0.0
    left: int = 0


class State(Struct, frozen=True):
    """What is known of a command now."""

    record: Record
    folder: Path
    alive: bool
    """Whether the command lives, or something it left behind."""
    end: End | None = None

    @property
    def running(self) -> bool:
        return self.alive and self.end is None

    def words(self, now: float) -> str:
        end = self.end
        if self.running:
            return f"running for {_span(now - self.record.started)}"
        if end is None:
            return (
                "ended, nobody knows how: its keeper was killed or the machine stopped; "
                "exit status unknown"
            )
        text = f"{_how(end)} after {_span(end.at - self.record.started)}"
        if self.alive and end.left:
            text += f"; {end.left} process(es) it started still run"
        return text


def _how(end: End) -> str:
    if end.why == "sandbox":
        return "never ran: the sandbox could not be set up"
    if end.status < 0:
        how = f"killed by {signal_name(-end.status)}"
    else:
        how = f"exited with status {end.status}"
    about = {"killed": "ended on request", "agent": "ended when the agent stopped"}.get(end.why)
    return f"{about} ({how})" if about else how


def _span(seconds: float) -> str:
    seconds = max(seconds, 0.0)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def names(root: Path) -> list[str]:
    """Of all commands there are records of, the oldest first."""
    try:
        found = [name for name in os.listdir(root) if _NAME.fullmatch(name)]  # noqa: PTH208
    except OSError:
        return []
    return sorted(found, key=lambda name: int(name[1:]))


def look(folder: Path) -> State | None:
    """None when there is no (readable) record."""
    try:
        record = msgspec.json.decode((folder / RECORD).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
    held = alive(folder / LOCK)  # before the end: a keeper writes that while it has the lock
    end = None
    with suppress(OSError, msgspec.DecodeError):
        end = msgspec.json.decode((folder / END).read_bytes(), type=End)
    return State(record, folder, held and (end is None or end.left > 0), end)


def write(folder: Path, record: Record) -> None:
    """On disk before the command runs."""
    put(folder / RECORD, msgspec.json.encode(record), sync=True)


def put(path: Path, data: bytes, *, sync: bool = False) -> None:
    fresh = path.with_name(path.name + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    fresh.replace(path)


# -- what it wrote ---------------------------------------------------------------------------


def _segments(folder: Path) -> list[tuple[int, int, Path]]:
    """(position of the first byte, size, file), in order."""
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(SEGMENT):
                with suppress(OSError, ValueError):
                    start = int(entry.name.removeprefix(SEGMENT))
                    found.append((start, entry.stat().st_size, Path(entry.path)))
    return sorted(found)


def written(folder: Path) -> int:
    """Bytes in all, kept or not."""
    segments = _segments(folder)
    return segments[-1][0] + segments[-1][1] if segments else 0


def kept(folder: Path, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """What there is between two positions: pieces, each with its own."""
    for start, size, path in _segments(folder):
        first, last = max(begin, start), min(end, start + size)
        if first < last:
            with suppress(OSError), path.open("rb") as file:  # it may just have been given up
                file.seek(first - start)
                yield first, file.read(last - first)


def news(state: State, limit: int) -> str:
    """What was written since it was last shown, its middle cut out when that is long.

    While it runs, a last word that may be half a secret waits until it is whole, or until nothing
    has followed it.
    """
    folder = state.folder
    total = written(folder)
    seen, waited = _seen(folder)
    end = total
    if state.running and waited != total:
        tail = b"".join(data for _, data in kept(folder, max(seen, total - 4096), total))
        if unfinished := _UNFINISHED.search(tail):
            end = max(total - (len(tail) - unfinished.start()), seen)
    with suppress(OSError):
        put(folder / SEEN, b"%d %d" % (end, total))
    if end - seen <= limit:
        return _joined(list(kept(folder, seen, end)), seen, end)
    head = b"".join(data for _, data in kept(folder, seen, seen + limit // 2))
    tail = b"".join(data for _, data in kept(folder, end - limit // 2, end))
    before, after = whole_lines(head, tail)
    cut = end - seen - len(head) - len(tail)
    return f"{before}\n\n[… {cut} bytes cut; `process log` has what was kept of them …]\n\n{after}"


def _seen(folder: Path) -> tuple[int, int]:
    """How far it was shown, and how far it reached then."""
    try:
        shown, reached = (folder / SEEN).read_bytes().split()
        return int(shown), int(reached)
    except (OSError, ValueError):
        return 0, -1


def whole(folder: Path) -> str:
    """All that is kept."""
    return _joined(list(kept(folder, 0, 1 << 62)), 0, written(folder))


def _joined(pieces: list[tuple[int, bytes]], begin: int, end: int) -> str:
    parts: list[bytes] = []
    for start, data in pieces:
        if start > begin:
            parts.append(b"\n[... %d bytes were not kept ...]\n" % (start - begin))
        parts.append(data)
        begin = start + len(data)
    if end > begin:
        parts.append(b"\n[... %d bytes were not kept ...]\n" % (end - begin))
    return plain(b"".join(parts).decode("utf-8", "replace"))


# -- what was typed --------------------------------------------------------------------------


def typed(folder: Path) -> str | None:
    """All of it; None when it was too much to keep."""
    try:
        data = (folder / INPUT).read_bytes()
    except FileNotFoundError:
        return ""
    except OSError:
        return None
    return None if len(data) > MAX_TYPED else data.decode("utf-8", "replace")


def note_typed(folder: Path, text: str) -> None:
    """Before it is typed."""
    before = typed(folder)
    if before is not None:
        data = (before + text).encode("utf-8", "replace")
        put(folder / INPUT, data[: MAX_TYPED + 1])


# -- what is old -----------------------------------------------------------------------------


def tidy(root: Path, *, days: float = 7.0, most: int = 100) -> None:
    """Forget commands that ended long ago, and all but the latest."""
    known = names(root)
    for position, name in enumerate(reversed(known)):
        folder = root / name
        with suppress(OSError):
            old = time.time() - folder.stat().st_mtime > days * 86400
            if (old or position >= most) and not alive(folder / LOCK):
                remove(folder)


def remove(folder: Path) -> None:
    with suppress(OSError):
        for entry in list(folder.iterdir()):
            entry.unlink()
        folder.rmdir()

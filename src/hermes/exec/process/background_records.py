"""Files about background commands: what they are, what they printed, how they ended."""

# Each command has a folder. The agent that started it writes `record`; its supervisor writes
# `out.N`, `end`, `lock` and `socket`; agents write `seen` (how much of the log was shown) and
# `input` (what was typed).

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.instances import is_locked
from hermes.config.private_files import replace_file, write_durably
from hermes.exec.launcher.protocol import END, LOCK, SEGMENT_PREFIX, EndCause
from hermes.exec.process.ansi import to_plain_text
from hermes.exec.process.output_capture import trim_to_lines
from hermes.exec.process.signals import signal_name

RECORD_FILE, SEEN_FILE, INPUT_FILE = "record", "seen", "input"
MAX_TYPED = 32 * 1024
"""Bytes of typed input that are kept, for the judgement of what is typed next."""
_UNFINISHED_WORD = re.compile(
    rb"[A-Za-z0-9_.+/=-]{8,4096}\Z"
    rb"|[\xc2-\xdf]\Z|[\xe0-\xef][\x80-\xbf]?\Z|[\xf0-\xf4][\x80-\xbf]{0,2}\Z"
)
"""At the end of an output: a word that may continue, or part of a character."""
_PROCESS_ID = re.compile(r"p[1-9]\d{0,8}")


class ProcessRecord(Struct, frozen=True):
    """One background command, as it was started."""

    id: str
    session: str
    scope: str
    """Sessions with the same scope share their commands; empty: not shared."""
    command: str
    cwd: str
    started: float
    token: str
    pty: bool = False
    keep: bool = False
    confined: bool = False
    online: bool = False


class ProcessEnd(Struct, frozen=True):
    """How a command ended, as its supervisor recorded it."""

    status: int
    why: EndCause = ""
    at: float = 0.0
    left: int = 0


class ProcessState(Struct, frozen=True):
    """What is known about a command now."""

    record: ProcessRecord
    folder: Path
    alive: bool
    """Whether the command, or a process it left behind, still runs."""
    end: ProcessEnd | None = None

    @property
    def running(self) -> bool:
        return self.alive and self.end is None

    def describe(self, now: float) -> str:
        end = self.end
        if self.running:
            return f"running for {_format_duration(now - self.record.started)}"
        if end is None:
            return "ended, exit status unknown: its supervisor was killed or the machine stopped"
        text = f"{_describe_end(end)} after {_format_duration(end.at - self.record.started)}"
        if self.alive and end.left:
            text += f"; {end.left} process(es) it started still run"
        return text


def _describe_end(end: ProcessEnd) -> str:
    if end.why == "sandbox":
        return "never ran: the sandbox could not be set up"
    if end.status < 0:
        how = f"killed by {signal_name(-end.status)}"
    else:
        how = f"exited with status {end.status}"
    about = {"killed": "ended on request", "agent": "ended when the agent stopped"}.get(end.why)
    return f"{about} ({how})" if about else how


def _format_duration(seconds: float) -> str:
    seconds = max(seconds, 0.0)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def list_ids(root: Path) -> list[str]:
    """The ids of all recorded commands, oldest first."""
    try:
        found = [name for name in os.listdir(root) if _PROCESS_ID.fullmatch(name)]  # noqa: PTH208
    except OSError:
        return []
    return sorted(found, key=lambda name: int(name[1:]))


def load_state(folder: Path) -> ProcessState | None:
    """The state of a command; None when there is no readable record."""
    try:
        record = msgspec.json.decode((folder / RECORD_FILE).read_bytes(), type=ProcessRecord)
    except (OSError, msgspec.DecodeError):
        return None
    locked = is_locked(folder / LOCK)  # first: a supervisor records the end while it holds it
    end = None
    with suppress(OSError, msgspec.DecodeError):
        end = msgspec.json.decode((folder / END).read_bytes(), type=ProcessEnd)
    return ProcessState(record, folder, locked and (end is None or end.left > 0), end)


def write_record(folder: Path, record: ProcessRecord) -> None:
    """Write the record durably, before the command runs."""
    replace_file(folder / RECORD_FILE, msgspec.json.encode(record))


def _list_segments(folder: Path) -> list[tuple[int, int, Path]]:
    """The log's files in order: (position of the first byte, size, file)."""
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(SEGMENT_PREFIX):
                with suppress(OSError, ValueError):
                    start = int(entry.name.removeprefix(SEGMENT_PREFIX))
                    found.append((start, entry.stat().st_size, Path(entry.path)))
    return sorted(found)


def count_output(folder: Path) -> int:
    """Number of bytes the command has printed, kept or not."""
    segments = _list_segments(folder)
    return segments[-1][0] + segments[-1][1] if segments else 0


def read_output(folder: Path, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The output kept between two positions: pieces, each with its position."""
    for start, size, path in _list_segments(folder):
        first, last = max(begin, start), min(end, start + size)
        if first < last:
            with suppress(OSError), path.open("rb") as file:  # it may just have been removed
                file.seek(first - start)
                yield first, file.read(last - first)


def take_new_output(state: ProcessState, limit: int) -> str:
    """The output since the last call, with the middle cut out when it is long. A last word that
    may be half a secret is held back until it is complete or nothing has followed it."""
    folder = state.folder
    total = count_output(folder)
    seen, waited = _read_seen(folder)
    end = total
    if state.running and waited != total:
        tail = b"".join(data for _, data in read_output(folder, max(seen, total - 4096), total))
        if unfinished := _UNFINISHED_WORD.search(tail):
            end = max(total - (len(tail) - unfinished.start()), seen)
    with suppress(OSError):
        write_durably(folder / SEEN_FILE, b"%d %d" % (end, total))
    if end - seen <= limit:
        return _join_pieces(list(read_output(folder, seen, end)), seen, end)
    head = b"".join(data for _, data in read_output(folder, seen, seen + limit // 2))
    tail = b"".join(data for _, data in read_output(folder, end - limit // 2, end))
    before, after = trim_to_lines(head, tail)
    cut = end - seen - len(head) - len(tail)
    return f"{before}\n\n[… {cut} bytes cut; `process log` has what was kept of them …]\n\n{after}"


def _read_seen(folder: Path) -> tuple[int, int]:
    """The position up to which output was shown, and the total at that time."""
    try:
        shown, reached = (folder / SEEN_FILE).read_bytes().split()
        return int(shown), int(reached)
    except (OSError, ValueError):
        return 0, -1


def read_log(folder: Path) -> str:
    return _join_pieces(list(read_output(folder, 0, 1 << 62)), 0, count_output(folder))


def _join_pieces(pieces: list[tuple[int, bytes]], begin: int, end: int) -> str:
    parts: list[bytes] = []
    for start, data in pieces:
        if start > begin:
            parts.append(b"\n[... %d bytes were not kept ...]\n" % (start - begin))
        parts.append(data)
        begin = start + len(data)
    if end > begin:
        parts.append(b"\n[... %d bytes were not kept ...]\n" % (end - begin))
    return to_plain_text(b"".join(parts).decode("utf-8", "replace"))


def read_typed(folder: Path) -> str | None:
    """All input typed so far; None when it was too much to keep."""
    try:
        data = (folder / INPUT_FILE).read_bytes()
    except FileNotFoundError:
        return ""
    except OSError:
        return None
    return None if len(data) > MAX_TYPED else data.decode("utf-8", "replace")


def record_typed(folder: Path, text: str) -> None:
    """Record input; called before it is typed."""
    before = read_typed(folder)
    if before is not None:
        data = (before + text).encode("utf-8", "replace")
        replace_file(folder / INPUT_FILE, data[: MAX_TYPED + 1])


def remove_old(root: Path, *, days: float = 7.0, most: int = 100) -> None:
    """Remove records of commands that ended long ago, and all but the latest `most`."""
    known = list_ids(root)
    for position, name in enumerate(reversed(known)):
        folder = root / name
        with suppress(OSError):
            old = time.time() - folder.stat().st_mtime > days * 86400
            if (old or position >= most) and not is_locked(folder / LOCK):
                remove_record(folder)


def remove_record(folder: Path) -> None:
    with suppress(OSError):
        for entry in list(folder.iterdir()):
            entry.unlink()
        folder.rmdir()

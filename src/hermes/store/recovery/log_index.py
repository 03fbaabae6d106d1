"""The index of the write-ahead log as a crash left it, which tells what the log must still hold."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.store.connection import database_files

if TYPE_CHECKING:
    from apsw import Connection

_COPY_BYTES = 48
_BACKFILL_AT = 96
_LOG_SALT_AT = 16
_HEADER = struct.Struct("=3I2BH2I8s4s4s8s")
"""Version, unused, changes, initialised, checksum order, page size, frames, pages, a checksum, two
salts and the checksum of the header."""


class LogIndex(Struct, frozen=True):
    frames: int
    """Frames of committed changes that the log must hold, some of which the database lacks."""
    salt: int
    """Marks the frames of this log; the next one has the next number."""
    written: tuple[int, int]
    """The time and the size of the database then."""

    def misses_frames(self, db: Connection, path: Path) -> bool:
        """Whether SQLite took fewer frames from the log than it must have held. What it took is
        copied to the database. False when another process has written into the database since: it
        had the log, and took the frames itself."""
        import apsw

        if _stat_database(path) != self.written:
            return False
        try:
            recovered, _ = db.wal_checkpoint()
        except apsw.Error:
            return False
        return recovered < self.frames and _read_salt(path) != (self.salt + 1) % 2**32


def read_log_index(path: Path) -> LogIndex | None:
    """None if nothing is known. No other connection of this process may use the file: closing its
    index would drop their locks."""
    _, wal, shm, _ = database_files(path)
    written = _stat_database(path)
    if not (wal.exists() and shm.exists()) or _is_connected(path):
        return None
    data = _read_start(shm, _BACKFILL_AT + 4)
    first, second = data[:_COPY_BYTES], data[_COPY_BYTES : 2 * _COPY_BYTES]
    if len(data) < _BACKFILL_AT + 4 or first != second:
        return None  # a crash in the middle of a commit
    _, _, _, is_initialised, _, _, frames, _, _, salt, _, _ = _HEADER.unpack(first)
    (copied,) = struct.unpack_from("=I", data, _BACKFILL_AT)
    if not is_initialised or copied >= frames:
        return None
    return LogIndex(frames, int.from_bytes(salt, "big"), written)


def _stat_database(path: Path) -> tuple[int, int]:
    with suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_size
    return 0, 0


def _read_salt(path: Path) -> int:
    data = _read_start(database_files(path)[1], _LOG_SALT_AT + 4)
    return int.from_bytes(data[_LOG_SALT_AT:], "big")


def _read_start(file: Path, size: int) -> bytes:
    import apsw

    flags = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READONLY
    try:
        opened = apsw.VFSFile("", str(file.absolute()), [flags, 0])
    except apsw.Error:
        return b""
    try:
        return opened.xRead(size, 0) if opened.xFileSize() >= size else b""
    except apsw.Error:
        return b""
    finally:
        opened.xClose()


def _is_connected(path: Path) -> bool:
    """Whether a connection of this process uses the file."""
    import apsw

    try:
        return any(Path(db.filename) == path.absolute() for db in apsw.connections())
    except apsw.Error:  # one that is at work in another thread
        return True

"""Who serves this home: a file per long-running process, held locked for as long as it lives."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.paths import private_folder

_ENDING = ".here"


class Presence(Struct, frozen=True):
    kind: str
    """serve, gateway, ..."""
    pid: int
    started: float
    address: str = ""


@contextmanager
def announced(home: Path, kind: str, address: str = "") -> Iterator[None]:
    """Others see it until the block ends, or the process does. Where it cannot be written,
    nobody sees it; that is no reason not to serve."""
    handle, file = -1, home / "run" / f"{kind}-{os.getpid()}{_ENDING}"
    with suppress(OSError):
        private_folder(file.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(file, flags, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(handle, msgspec.json.encode(Presence(kind, os.getpid(), time.time(), address)))
    try:
        yield
    finally:
        if handle >= 0:
            with suppress(OSError):
                file.unlink()
            os.close(handle)


def present(home: Path) -> list[Presence]:
    """Those that live now, the oldest first."""
    found = [_read(file) for file in (home / "run").glob(f"*{_ENDING}") if alive(file)]
    return sorted((p for p in found if p is not None), key=lambda p: p.started)


def left_over(home: Path) -> list[Path]:
    """Files of processes that are gone."""
    return [file for file in (home / "run").glob(f"*{_ENDING}") if not alive(file)]


def alive(file: Path) -> bool:
    """Whether somebody holds this file's lock."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def _read(file: Path) -> Presence | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Presence)
    except (OSError, ValueError):
        return None

"""Which processes serve this home: each holds a lock on a file of its own while it lives."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.paths import make_private_folder

_INSTANCE_SUFFIX = ".here"
_PROGRESS_SUFFIX = ".work"


class RunningInstance(Struct, frozen=True):
    kind: str
    """serve, gateway, ..."""
    pid: int
    started: float
    address: str = ""


@contextmanager
def announce_instance(home: Path, kind: str, address: str = "") -> Iterator[None]:
    """Make this process visible to others until the block or the process ends. Best effort: where
    the file cannot be written, the process serves unseen."""
    instance = RunningInstance(kind, os.getpid(), time.time(), address)
    with _hold_file(
        home / "run" / f"{kind}-{os.getpid()}{_INSTANCE_SUFFIX}", msgspec.json.encode(instance)
    ):
        yield


@contextmanager
def mark_in_progress(home: Path, token: str) -> Iterator[None]:
    """Let others see that the task with this token is being worked on, until the block or the
    process ends."""
    with _hold_file(_progress_file(home, token), b""):
        yield


def is_in_progress(home: Path, token: str) -> bool:
    return bool(token) and is_locked(_progress_file(home, token))


def _progress_file(home: Path, token: str) -> Path:
    return home / "run" / f"{token}{_PROGRESS_SUFFIX}"


@contextmanager
def _hold_file(file: Path, content: bytes) -> Iterator[None]:
    handle = -1
    with suppress(OSError):
        make_private_folder(file.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(file, flags, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(handle, content)
    try:
        yield
    finally:
        if handle >= 0:
            with suppress(OSError):
                file.unlink()
            os.close(handle)


def list_instances(home: Path) -> list[RunningInstance]:
    """All that are alive, the oldest first."""
    found = [
        _read_instance(file)
        for file in (home / "run").glob(f"*{_INSTANCE_SUFFIX}")
        if is_locked(file)
    ]
    return sorted((p for p in found if p is not None), key=lambda p: p.started)


def list_stale_files(home: Path) -> list[Path]:
    """The files of processes that have ended."""
    suffixes = (_INSTANCE_SUFFIX, _PROGRESS_SUFFIX)
    files = [file for suffix in suffixes for file in (home / "run").glob(f"*{suffix}")]
    return [file for file in files if not is_locked(file)]


def is_locked(file: Path) -> bool:
    """Whether a process holds this file's lock."""
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


def _read_instance(file: Path) -> RunningInstance | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=RunningInstance)
    except (OSError, ValueError):
        return None

"""Which processes serve this home and its sessions: each locks files of its own while it lives."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
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


def announce_instance(home: Path, kind: str, address: str = "") -> AbstractContextManager[None]:
    """Make this process visible to others until the block or the process ends. Best effort: where
    the file cannot be written, the process serves unseen."""
    instance = RunningInstance(kind, os.getpid(), time.time(), address)
    file = home / "run" / f"{kind}-{os.getpid()}{_INSTANCE_SUFFIX}"
    return _hold_file(file, msgspec.json.encode(instance))


def mark_in_progress(home: Path, token: str) -> AbstractContextManager[None]:
    """Let others see that the task with this token is being worked on, until the block or the
    process ends."""
    return _hold_file(_progress_file(home, token), b"")


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
    found = []
    for file in filter(is_locked, (home / "run").glob(f"*{_INSTANCE_SUFFIX}")):
        with suppress(OSError, ValueError):
            found.append(msgspec.json.decode(file.read_bytes(), type=RunningInstance))
    return sorted(found, key=lambda instance: instance.started)


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
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(handle)
    return False


class SessionClaims:
    """The stored sessions that this process has open, so that two terminals never write to one;
    other processes see them until they are released."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._held: dict[str, ExitStack] = {}

    def is_taken(self, session_id: str) -> bool:
        """Whether another process has the session open."""
        return session_id not in self._held and is_in_progress(self._home, _make_token(session_id))

    def claim_session(self, session_id: str) -> None:
        """Does nothing when another process has it open."""
        if session_id in self._held or self.is_taken(session_id):
            return
        held = self._held[session_id] = ExitStack()
        held.enter_context(mark_in_progress(self._home, _make_token(session_id)))

    def release_session(self, session_id: str) -> None:
        if held := self._held.pop(session_id, None):
            held.close()

    def release_all(self) -> None:
        for session_id in tuple(self._held):
            self.release_session(session_id)


def _make_token(session_id: str) -> str:
    return f"session-{session_id}"

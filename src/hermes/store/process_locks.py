"""Which processes are alive: each holds an flock on a file of its own for as long as it lives."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


class Owner:
    """A name nobody else ever has, and that counts as alive until this process ends or lets go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd = -1
        self.name = ""

    def hold(self) -> str:
        """The name; the first call makes it, and clears away what dead processes left."""
        if self._fd < 0:
            make_folder(self._folder)
            while not self._take():
                pass
            _sweep(self._folder, self.name)
        return self.name

    def _take(self) -> bool:
        name = os.urandom(16).hex()
        path = self._folder / f"{name}.lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A sweeper may have come between the two calls and taken the file for a dead one.
            if path.stat().st_ino == os.fstat(fd).st_ino:
                self._fd, self.name = fd, name
                return True
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in _BUSY:
                os.close(fd)
                raise
        os.close(fd)
        return False

    def release(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                (self._folder / f"{self.name}.lock").unlink()
            os.close(self._fd)
            self._fd, self.name = -1, ""

    def alive(self, name: str) -> bool:
        """Whether the process of that name still runs."""
        return bool(name) and (name == self.name or _held(self._folder / f"{name}.lock"))

    def others(self) -> list[str]:
        """The names of the other living ones."""
        return [name for name in _names(self._folder) if name != self.name and self.alive(name)]


def _held(path: Path, *, unlink: bool = False) -> bool:
    """Probing takes the lock shared, so that two probes never mistake each other for an owner."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if unlink:
            with suppress(OSError):
                path.unlink()
        return False
    except OSError as error:
        if error.errno in _BUSY:
            return True
        raise
    finally:
        os.close(fd)


def _names(folder: Path) -> list[str]:
    try:
        files = list(folder.glob("*.lock"))
    except FileNotFoundError:
        return []
    return [f.stem for f in files if len(f.stem) == 32]


def _sweep(folder: Path, mine: str) -> None:
    for name in _names(folder):
        if name != mine:
            _held(folder / f"{name}.lock", unlink=True)


def make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def exclusive(path: Path, patience: float = 5.0) -> Iterator[None]:
    """One process at a time; a TimeoutError when the others take too long."""
    make_folder(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)
        deadline = time.monotonic() + patience
        while not _try(fd):
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process is preparing it")
            time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True

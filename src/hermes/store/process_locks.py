"""Tells which processes are alive: each holds an flock on a file of its own while it lives."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hermes.config.private_files import open_lock, restore_access, wait_for_lock

_BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


class ProcessLock:
    """A name unique to this process; it counts as alive until the process ends or releases it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd = -1
        self._has_swept = False
        self.name = ""

    def acquire(self) -> str:
        """The name; the first call removes the files of dead processes."""
        self.announce()
        if not self._has_swept:
            self._has_swept = True
            for name in _list_names(self._folder):
                if name != self.name:
                    _is_locked(self._folder / f"{name}.lock", remove_stale=True)
        return self.name

    def announce(self) -> None:
        """Let other processes know of this one, of which a name is created."""
        if self._fd < 0:
            make_folder(self._folder)
            while not self._try_acquire():
                pass

    def _try_acquire(self) -> bool:
        name = os.urandom(16).hex()
        path = self._folder / f"{name}.lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between the two calls another process may have removed the file as stale.
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

    def is_alive(self, name: str) -> bool:
        """Whether the process of that name still runs."""
        return bool(name) and (name == self.name or _is_locked(self._folder / f"{name}.lock"))

    def list_others(self) -> list[str]:
        """The names of all other living processes."""
        names = _list_names(self._folder)
        return [name for name in names if name != self.name and self.is_alive(name)]


def _is_locked(path: Path, *, remove_stale: bool = False) -> bool:
    """Probes take a shared lock, so that two of them never mistake each other for a holder."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:
        return not restore_access(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if remove_stale:
            with suppress(OSError):
                path.unlink()
        return False
    except OSError as error:
        if error.errno in _BUSY:
            return True
        raise
    finally:
        os.close(fd)


def _list_names(folder: Path) -> list[str]:
    return [f.stem for f in folder.glob("*.lock") if len(f.stem) == 32]


def make_folder(folder: Path) -> None:
    """Create a private folder, and those above it that are missing."""
    if not folder.parent.is_dir():
        make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def exclusive_lock(path: Path, timeout: float = 5.0) -> Iterator[None]:
    """Admits one process at a time; raises a TimeoutError when the others take too long."""
    make_folder(path.parent)
    fd = open_lock(path)
    try:
        os.fchmod(fd, 0o600)
        if not wait_for_lock(fd, timeout):
            raise TimeoutError(errno.ETIMEDOUT, "another process is preparing it")
        yield
    finally:
        os.close(fd)

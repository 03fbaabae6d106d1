"""Files readable by their owner only: replaced atomically, by one writer at a time."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes.core.errors import ConfigError

_LOCK_TIMEOUT = 10.0


def replace_file(file: Path, data: bytes) -> None:
    """Replace the content durably; never with a part of it, never readable by others. Raises
    OSError when it cannot be written: the old content is then still there."""
    target = file.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        write_durably(temporary, data)
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def write_durably(file: Path, data: bytes) -> None:
    """Write a private file through to the disk; an OSError may leave a part of it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(file, flags, 0o600)
    try:
        os.fchmod(handle, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_lock(lock: Path) -> int:
    """The descriptor of a lock file; closing it, or the end of the process, releases the lock."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(lock, flags, 0o600)
    except PermissionError:
        if not restore_access(lock):
            raise
        return os.open(lock, flags, 0o600)


def restore_access(file: Path) -> bool:
    """Repair the permissions of a file that has no content worth keeping. One that a run as
    another user left behind is removed, unless a process has it locked. Whether it was repaired."""
    try:
        found = file.lstat()
        if found.st_uid == os.geteuid():
            file.chmod(0o600)
        elif _is_locked_by_any(found):
            return False
        else:
            file.unlink()
    except OSError:
        return False
    return True


def _is_locked_by_any(found: os.stat_result) -> bool:
    """Whether the system's table of locks names the file; True where there is no such table."""
    major, minor = os.major(found.st_dev), os.minor(found.st_dev)
    name = f"{major:02x}:{minor:02x}:{found.st_ino}"
    try:
        return name in Path("/proc/locks").read_text(encoding="ascii").split()
    except OSError:
        return True


def try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(handle: int, seconds: float) -> bool:
    """Whether the lock could be had in time."""
    deadline = time.monotonic() + seconds
    while not try_lock(handle):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def hold_lock(lock: Path, what: str) -> Iterator[None]:
    """Admit one writer of `what` at a time. The lock is a file of its own: `what` is replaced."""
    try:
        handle = open_lock(lock)
    except OSError as error:
        raise ConfigError(
            f"{lock.parent} is not writable ({error.strerror}); nothing was changed."
        ) from None
    try:
        if not wait_for_lock(handle, _LOCK_TIMEOUT):
            raise ConfigError(f"Another hermes is writing {what}; nothing was changed.")
        yield
    finally:
        os.close(handle)

"""Occupies protected names that do not exist, so that no command can create them while it runs."""

# ruff: noqa: PTH101, PTH102, PTH106, PTH108, PTH110, PTH115, PTH211
import contextlib
import fcntl
import os
import time

PLACEHOLDER = 0o040501
"""Type and mode of the empty folders that occupy protected names; nobody else uses this mode."""
LINK_TARGET = "/nonexistent/held by hermes while a command runs"
"""Target of the links that occupy protected names: to programs outside the file is missing."""
RENAMED_HEAD = b"HEAD.not-a-repository"
_LOCK_WAIT = 1.0


def is_bare_repository(folder: bytes) -> bool:
    """Whether git would take the folder itself for a repository, and obey its settings."""
    if not os.path.lexists(folder + b"/HEAD"):
        return False
    if os.path.lexists(folder + b"/commondir"):
        return True
    return all(os.path.exists(folder + b"/" + name) for name in (b"objects", b"refs"))


def is_free(path: str | bytes) -> bool:
    """Whether nothing is there but a placeholder."""
    try:
        return os.lstat(path).st_mode == PLACEHOLDER
    except FileNotFoundError:
        return True
    except OSError:
        return False


def hold_name(path: bytes) -> int:
    """Make sure that something exists there: a placeholder, locked for us, or else (-1)."""
    until = time.monotonic() + _LOCK_WAIT
    while True:
        with contextlib.suppress(FileExistsError):
            _create_placeholder(path)
        lock = -1
        try:
            found = os.lstat(path)
            if found.st_mode != PLACEHOLDER:
                return -1
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.path.samestat(os.lstat(path), os.fstat(lock)):
                return lock
        except (FileNotFoundError, BlockingIOError):  # its last user is just removing it
            if time.monotonic() > until:
                raise
        if lock >= 0:
            os.close(lock)
        time.sleep(0.001)


def _create_placeholder(path: bytes) -> None:
    """Create it with its mode at once, or another command could take it for a real folder."""
    mask = os.umask(0)
    try:
        os.mkdir(path, PLACEHOLDER & 0o777)
    finally:
        os.umask(mask)
    os.chmod(path, PLACEHOLDER & 0o777)  # a set-group-ID folder adds that bit


def release_name(path: bytes, lock: int) -> None:
    """Remove the placeholder unless another command relies on it."""
    if lock < 0:
        return
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.lstat(path), os.fstat(lock)):
            os.rmdir(path)
    os.close(lock)


def hold_links(folder: bytes, paths: list[bytes]) -> int:
    """Create dangling links, and return a lock that keeps others from removing them."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    until = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            break
        except BlockingIOError:  # another command's last supervisor is just removing them
            if time.monotonic() > until:
                raise
            time.sleep(0.001)
    for path in paths:
        with contextlib.suppress(FileExistsError):
            os.symlink(LINK_TARGET, path)
    return lock


def release_links(paths: list[bytes], lock: int) -> None:
    """Remove the dangling links unless another command relies on them."""
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in paths:
            with contextlib.suppress(OSError):
                if os.readlink(path) == LINK_TARGET.encode():
                    os.unlink(path)
    os.close(lock)

"""Holds protected names that do not exist, so that no command can create them while it runs."""

# ruff: noqa: PTH101, PTH102, PTH106, PTH108, PTH110, PTH115, PTH211
from __future__ import annotations

import contextlib
import fcntl
import os
import time

PLACEHOLDER = 0o040501
"""Kind and mode of the empty folders that hold the places of protected names: nobody else makes
such folders, so one that was left behind is known."""
ASIDE = b"HEAD.not-a-repository"
NOWHERE = "/nonexistent/held by hermes while a command runs"
"""Target of the links that hold the places of protected names that somebody outside may read
meanwhile: he finds no such file, as before."""
_LOCK_WAIT = 1.0


def would_be_bare(folder: bytes) -> bool:
    """Whether git would take the folder itself for a repository, and follow its settings."""
    if not os.path.lexists(folder + b"/HEAD"):
        return False
    if os.path.lexists(folder + b"/commondir"):
        return True
    return all(os.path.exists(folder + b"/" + name) for name in (b"objects", b"refs"))


def hold(path: bytes) -> int:
    """Make sure that something is at `path`; a shared lock on it if it is a placeholder."""
    until = time.monotonic() + _LOCK_WAIT
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            os.chmod(path, PLACEHOLDER & 0o777)
        lock = -1
        try:
            found = os.lstat(path)
            if found.st_mode != PLACEHOLDER:
                return -1
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.path.samestat(os.lstat(path), os.fstat(lock)):
                return lock
        except (FileNotFoundError, BlockingIOError):  # its last holder is just removing it
            if time.monotonic() > until:
                raise
        if lock >= 0:
            os.close(lock)
        time.sleep(0.001)


def let_go(path: bytes, lock: int) -> None:
    """Remove the placeholder unless another command relies on it."""
    if lock < 0:
        return
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.lstat(path), os.fstat(lock)):
            os.rmdir(path)
    os.close(lock)


def hold_links(folder: bytes, paths: list[bytes]) -> int:
    """A shared lock on the folder, which keeps the links in it from being removed."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    until = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            break
        except BlockingIOError:  # the last of others is just removing them
            if time.monotonic() > until:
                raise
            time.sleep(0.001)
    for path in paths:
        with contextlib.suppress(FileExistsError):
            os.symlink(NOWHERE, path)
    return lock


def let_go_links(paths: list[bytes], lock: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in paths:
            with contextlib.suppress(OSError):
                if os.readlink(path) == NOWHERE.encode():
                    os.unlink(path)
    os.close(lock)

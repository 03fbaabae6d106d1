"""Opens files by paths that must lead through no link, so that what was checked is what is used."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from hermes.core.errors import ToolError

_OPENAT2 = 437
_AT_FDCWD = -100
_BENEATH_WITHOUT_LINKS = 0x08 | 0x04 | 0x02
"""RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_MAGICLINKS."""
_PATH_ONLY: int = getattr(os, "O_PATH", os.O_RDONLY)
_FOLDER = _PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_exact(path: Path, flags: int) -> int:
    """Open an existing file or folder by its real path. A link anywhere on the way, put there since
    the path was resolved, is refused."""
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    root = os.open(path.anchor, _FOLDER)
    try:
        openat2 = _load_openat2()
        names = os.fspath(path)[1:] or "."
        fd = openat2(root, names, flags) if openat2 else _walk(root, names, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV):
            raise ToolError(
                f"{path} was just replaced by a link; nothing was read, nothing was changed."
            ) from None
        raise
    finally:
        os.close(root)
    return fd


def stat_exact(path: Path) -> os.stat_result:
    """The status of what is at a real path. It is not opened for reading: closing a database file
    would drop the locks that this process has on it."""
    if _PATH_ONLY == os.O_RDONLY:
        return path.stat(follow_symlinks=False)
    fd = open_exact(path, _PATH_ONLY)
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)


def list_folder(path: Path) -> list[str]:
    """The names in a folder, by its real path; those of folders end with a slash."""
    fd = open_exact(path, _READ_FOLDER)
    try:
        with os.scandir(fd) as entries:
            return [entry.name + "/" * entry.is_dir() for entry in entries]
    finally:
        os.close(fd)


def make_folders(folder: Path) -> tuple[int, list[Path]]:
    """Create a folder and its parents; returns its descriptor and the created ones, innermost
    first."""
    missing: list[Path] = []
    fd = -1
    while fd < 0:
        try:
            fd = open_exact(folder, _READ_FOLDER)
        except FileNotFoundError:
            missing.append(folder)
            folder = folder.parent
    try:
        for created in reversed(missing):
            with suppress(FileExistsError):  # somebody else has created it meanwhile
                os.mkdir(created.name, dir_fd=fd)
            above, fd = fd, os.open(created.name, _READ_FOLDER, dir_fd=fd)
            os.close(above)
    except OSError:
        os.close(fd)
        remove_folders(missing)
        raise
    return fd, missing


def remove_folders(folders: list[Path]) -> None:
    """Remove these folders, innermost first, as far as they are empty."""
    for folder in folders:
        with suppress(OSError, ToolError):
            parent = open_exact(folder.parent, _READ_FOLDER)
            try:
                os.rmdir(folder.name, dir_fd=parent)
            finally:
                os.close(parent)


def _walk(root: int, names: str, flags: int) -> int:
    """What openat2 does, one name after the other."""
    *folders, last = names.split("/")
    here = os.dup(root)
    try:
        for name in folders:
            above, here = here, os.open(name, _FOLDER, dir_fd=here)
            os.close(above)
        fd = os.open(last, flags, dir_fd=here)
    except NotADirectoryError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
    finally:
        os.close(here)
    if flags & _PATH_ONLY and stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return fd


@lru_cache(maxsize=1)
def _load_openat2() -> Callable[[int, str, int], int] | None:
    """The system call; None where the kernel does not have it."""
    import ctypes
    import sys

    if sys.platform != "linux":
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (
        ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t,
    )  # fmt: skip

    def openat2(folder: int, names: str, flags: int) -> int:
        how = struct.pack("QQQ", flags, 0, _BENEATH_WITHOUT_LINKS)
        while (fd := int(call(_OPENAT2, folder, os.fsencode(names), how, len(how)))) < 0:
            number = ctypes.get_errno()
            if number not in (errno.EINTR, errno.EAGAIN):
                raise OSError(number, os.strerror(number), names)
        return fd

    try:
        os.close(openat2(_AT_FDCWD, ".", _FOLDER))
    except OSError:
        return None
    return openat2

"""Performs file system calls for a command in folders that Landlock cannot open to it."""

# Landlock opens whole trees only. A folder that holds something protected therefore stays closed,
# and the workspace itself nearly always does. So seccomp reports the calls that change folders.
# Where Landlock opens a folder, or where nothing may be changed, the kernel continues the call and
# decides, so that exchanging a path after it was checked gains nothing. In between, the supervisor
# performs the call itself, beneath a folder or on a file that it has opened and found to be inside
# the workspace, and neither protected nor above something protected.

# ruff: noqa: PTH115, PTH120
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import struct
from collections.abc import Iterator
from typing import NamedTuple

from hermes.exec.launcher.libc import AT_FDCWD, make_syscall
from hermes.exec.launcher.syscalls import CALL_GROUPS

_AT_REMOVEDIR, _AT_SYMLINK_FOLLOW = 0x200, 0x400
_TMPFILE = 0o20000000
_RENAME_FLAGS = 3
"""RENAME_NOREPLACE and RENAME_EXCHANGE."""
_NOTIF_ID_VALID, _NOTIF_ADD_FD = 0x40082102, 0x40182103
_PATH_MAX = 4096
_OPEN_FLAGS = os.O_APPEND | os.O_ACCMODE | os.O_SYNC | os.O_DSYNC | os.O_NONBLOCK | os.O_NOCTTY
"""Flags that are passed on when an existing file is opened."""


class LeaveToKernel(Exception):
    """The kernel continues the call, decides, and reports the result."""


class SyscallCaller:
    """The process that made a call, and how to reach it."""

    def __init__(self, listener: int, ident: int, pid: int, machine: int) -> None:
        self.pid = pid
        self.machine = machine
        """0: x86_64, 1: aarch64"""
        self._listener = listener
        self._ident = ident

    def check_alive(self) -> None:
        """Raise OSError when it has ended, after which its number may belong to another process."""
        fcntl.ioctl(self._listener, _NOTIF_ID_VALID, struct.pack("=Q", self._ident))

    def give_descriptor(self, fd: int, flags: int) -> int:
        """Give it a descriptor with these flags, and return the number it has there."""
        given = struct.pack("=QIIII", self._ident, 0, fd, 0, flags)
        return int(fcntl.ioctl(self._listener, _NOTIF_ADD_FD, bytearray(given)))

    def read_text(self, address: int) -> bytes:
        """The string at an address of its memory."""
        found = b""
        while b"\0" not in found:
            page = 4096 - (address + len(found)) % 4096
            found += self.read_memory(address + len(found), page)
            if len(found) > 2 * _PATH_MAX:
                raise OSError(errno.ENAMETOOLONG, "path")
        return found[: found.index(b"\0")]

    def read_memory(self, address: int, size: int) -> bytes:
        try:
            fd = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise PermissionError(errno.EPERM, "its memory cannot be read") from None
        try:
            return os.pread(fd, size, address)
        except OSError:
            raise OSError(errno.EFAULT, "bad address") from None
        finally:
            os.close(fd)

    def open_path(self, base: int, path: bytes, how: int) -> int:
        """Open a path as it would find it, relative to one of its descriptors, or that itself."""
        base &= 0xFFFFFFFF
        if path.startswith(b"/"):
            return os.open(path, how | os.O_CLOEXEC)
        start = "cwd" if base == AT_FDCWD & 0xFFFFFFFF else f"fd/{base}"
        folder = os.open(f"/proc/{self.pid}/{start}", os.O_PATH | os.O_CLOEXEC)
        if not path:
            return folder
        try:
            return os.open(path, how | os.O_CLOEXEC, dir_fd=folder)
        finally:
            os.close(folder)


class WorkspaceArea(NamedTuple):
    """Where the broker works; real paths, as bytes."""

    workspace: bytes
    landlock_writable: list[bytes]
    protected: list[bytes]
    shared_memory: bytes
    """The folder that the command finds at /dev/shm."""

    def landlock_allows(self, folder: bytes) -> bool:
        """Whether Landlock lets the command create, change and remove things there."""
        return any(
            folder == root or folder.startswith(root + b"/") for root in self.landlock_writable
        )

    def forget_path(self, path: bytes) -> None:
        """Called after a path was moved or removed: Landlock does not open what takes its place."""
        self.landlock_writable[:] = [
            r for r in self.landlock_writable if r != path and not r.startswith(path + b"/")
        ]

    def is_broker_path(self, path: bytes) -> bool:
        """Whether the command may change this although the kernel would refuse it."""
        if path.startswith(self.shared_memory + b"/"):
            return True
        if not self.workspace or not path.startswith(self.workspace + b"/"):
            return False
        below = path + b"/"
        return not any(
            path == other or path.startswith(other + b"/") or other.startswith(below)
            for other in self.protected
        )


def perform_call(name: str, args: list[int], caller: SyscallCaller, area: WorkspaceArea) -> int:
    """The result of the call. Raises OSError when it fails, LeaveToKernel when it is not ours."""
    has_folder = "at" in name and name != "creat"
    words = args if has_folder else [AT_FDCWD, *args]
    match name:
        case "open" | "openat":
            return _open_file(caller, area, (words[0], words[1]), words[2], words[3])
        case "creat":
            flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
            return _open_file(caller, area, (words[0], words[1]), flags, words[2])
        case "mkdir" | "mkdirat":
            with (
                _resolve_writable(caller, area, (words[0], words[1])) as entry,
                use_caller_umask(caller.pid),
            ):
                os.mkdir(entry.last, words[2] & 0o1777, dir_fd=entry.folder)
        case "unlink" | "rmdir" | "unlinkat":
            is_folder = name == "rmdir" or bool(has_folder and words[2] & _AT_REMOVEDIR)
            with _resolve_writable(caller, area, (words[0], words[1])) as entry:
                (os.rmdir if is_folder else os.unlink)(entry.last, dir_fd=entry.folder)
                area.forget_path(entry.path)
        case "symlink" | "symlinkat":
            where = (args[1], args[2]) if has_folder else (AT_FDCWD, args[1])
            with _resolve_writable(caller, area, where) as entry:
                os.symlink(caller.read_text(args[0]), entry.last, dir_fd=entry.folder)
        case _:
            _move_or_link(
                name,
                args if has_folder else [AT_FDCWD, args[0], AT_FDCWD, args[1], 0],
                caller,
                area,
            )
    return 0


def _move_or_link(name: str, args: list[int], caller: SyscallCaller, area: WorkspaceArea) -> None:
    """Rename or link, which concern two paths."""
    flags = 0 if name == "renameat" else args[4] & 0xFFFFFFFF
    with (
        _resolve_entry(caller, area, (args[0], args[1])) as source,
        _resolve_entry(caller, area, (args[2], args[3])) as target,
    ):
        if area.landlock_allows(source.parent) and area.landlock_allows(target.parent):
            raise LeaveToKernel
        if not (area.is_broker_path(source.path) and area.is_broker_path(target.path)):
            raise LeaveToKernel
        caller.check_alive()
        if name.startswith("link"):
            found = os.stat(source.last, dir_fd=source.folder, follow_symlinks=False)
            if flags & ~_AT_SYMLINK_FOLLOW or (flags and stat.S_ISLNK(found.st_mode)):
                raise LeaveToKernel
            os.link(
                source.last,
                target.last,
                src_dir_fd=source.folder,
                dst_dir_fd=target.folder,
                follow_symlinks=False,
            )
            return
        if flags & ~_RENAME_FLAGS:
            raise LeaveToKernel
        number = CALL_GROUPS["files"]["renameat2"][caller.machine]
        make_syscall(number, source.folder, source.last, target.folder, target.last, flags)
        area.forget_path(source.path)
        area.forget_path(target.path)


# Opening


def _open_file(
    caller: SyscallCaller, area: WorkspaceArea, where: tuple[int, int], flags: int, mode: int
) -> int:
    if flags & (os.O_PATH | os.O_DIRECTORY | _TMPFILE):
        raise LeaveToKernel
    with _resolve_entry(caller, area, where) as entry:
        if area.landlock_allows(entry.parent):
            raise LeaveToKernel
        fd = _open_existing(caller, area, entry, flags)
        if fd < 0:
            fd = _create_file(caller, area, entry, flags, mode)
    try:
        return caller.give_descriptor(fd, flags & os.O_CLOEXEC)
    finally:
        os.close(fd)


def _open_existing(
    caller: SyscallCaller, area: WorkspaceArea, entry: FolderEntry, flags: int
) -> int:
    """Open exactly the regular file that was checked, following links; -1: it does not exist."""
    how = os.O_PATH | os.O_CLOEXEC | flags & os.O_NOFOLLOW
    try:
        found = os.open(entry.last, how, dir_fd=entry.folder)
    except FileNotFoundError:
        return -1
    except OSError:
        raise LeaveToKernel from None
    try:
        path = os.readlink(b"/proc/self/fd/%d" % found)
        if area.landlock_allows(os.path.dirname(path)) or not area.is_broker_path(path):
            raise LeaveToKernel
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise LeaveToKernel
        caller.check_alive()
        if flags & os.O_CREAT and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "the file exists")
        return os.open(f"/proc/self/fd/{found}", flags & (_OPEN_FLAGS | os.O_TRUNC) | os.O_CLOEXEC)
    finally:
        os.close(found)


def _create_file(
    caller: SyscallCaller, area: WorkspaceArea, entry: FolderEntry, flags: int, mode: int
) -> int:
    if not flags & os.O_CREAT or not area.is_broker_path(entry.path):
        raise LeaveToKernel
    caller.check_alive()
    how = flags & (_OPEN_FLAGS | os.O_EXCL) | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with use_caller_umask(caller.pid):  # never waits: somebody may have put a pipe there meanwhile
        fd = os.open(entry.last, how | os.O_NONBLOCK, mode & 0o1777, dir_fd=entry.folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise LeaveToKernel
    os.set_blocking(fd, not flags & os.O_NONBLOCK)
    return fd


# Paths of the caller


class FolderEntry(NamedTuple):
    """A name in a folder that is open."""

    folder: int
    parent: bytes
    last: bytes
    """The name, with a slash at its end if the caller wrote one."""

    @property
    def path(self) -> bytes:
        return self.parent + b"/" + self.last.rstrip(b"/")


@contextlib.contextmanager
def _resolve_writable(
    caller: SyscallCaller, area: WorkspaceArea, where: tuple[int, int]
) -> Iterator[FolderEntry]:
    """The entry at `where`, if the broker may create or remove something there."""
    with _resolve_entry(caller, area, where) as entry:
        if area.landlock_allows(entry.parent) or not area.is_broker_path(entry.path):
            raise LeaveToKernel
        caller.check_alive()
        yield entry


def _resolve_entry(
    caller: SyscallCaller, area: WorkspaceArea, where: tuple[int, int]
) -> contextlib.AbstractContextManager[FolderEntry]:
    return resolve_path(caller, area, where[0], caller.read_text(where[1]))


@contextlib.contextmanager
def resolve_path(
    caller: SyscallCaller, area: WorkspaceArea, base: int, path: bytes
) -> Iterator[FolderEntry]:
    """The entry that the caller means by a path, relative to one of its descriptors."""
    plain = path.rstrip(b"/")
    folder, _, last = plain.rpartition(b"/")
    if last in (b"", b".", b".."):
        raise LeaveToKernel
    if plain != path:
        last += b"/"
    if folder == b"/dev/shm":
        folder = area.shared_memory
    elif path.startswith(b"/"):
        folder = folder or b"/"
    if folder.startswith(b"/proc/") or re.match(rb"/dev/(?!shm/)", folder):
        raise LeaveToKernel  # to us that is our own process, or no file of a workspace
    try:
        fd = caller.open_path(base, folder or b".", os.O_PATH | os.O_DIRECTORY)
    except OSError:
        raise LeaveToKernel from None  # the caller learns no more than the kernel would tell it
    try:
        yield FolderEntry(fd, os.readlink(b"/proc/self/fd/%d" % fd), last)
    finally:
        os.close(fd)


def read_status(task: int) -> dict[bytes, bytes]:
    """What the kernel tells about a thread."""
    with open(f"/proc/{task}/status", "rb") as file:  # noqa: PTH123
        return dict(line.split(b":", 1) for line in file)


@contextlib.contextmanager
def use_caller_umask(pid: int) -> Iterator[None]:
    """Use the caller's umask meanwhile; a supervisor has one thread."""
    theirs = 0o077
    with contextlib.suppress(OSError, KeyError):
        theirs = int(read_status(pid)[b"Umask"], 8)
    before = os.umask(theirs)
    try:
        yield
    finally:
        os.umask(before)

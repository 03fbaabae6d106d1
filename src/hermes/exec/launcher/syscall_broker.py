"""Does for a command what Landlock confines but cannot keep from it: what is allowed, itself."""

# Landlock lets anyone change mode, owner and times of any file he owns, and connect to a port of
# any machine once he may connect to it on one. So a seccomp filter stops those calls, and a keeper
# makes them in the command's stead: on a file it has opened itself, after looking where that file
# is; to the one address that was granted. The command cannot swap anything between the look and the
# deed.

# ruff: noqa: PTH101, PTH115
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import select
import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from hermes.exec.launcher import file_broker as making
from hermes.exec.launcher.libc import check, libc

_RECEIVE, _SEND, _VALID, _TAKE_TURNS = 0xC0502100, 0xC0182101, 0x40082102, 0x40082104
_QUESTION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_AT_FDCWD = -100
_NOFOLLOW, _EMPTY_PATH = 0x100, 0x1000
_PATH_MAX = 4096
_GET_FD = 438
_CONNECT_MS = 1000
_TIMES = {"utime": 16, "utimes": 32, "futimesat": 32, "utimensat": 32}
"""Bytes behind the pointer to the new times."""
CALLS: dict[str, tuple[int, int, int]] = {
    "chmod": (90, -1, 0),
    "fchmod": (91, 52, 0),
    "fchmodat": (268, 53, 1),
    "fchmodat2": (452, 452, 1),
    "utime": (132, -1, 0),
    "utimes": (235, -1, 0),
    "futimesat": (261, -1, 1),
    "utimensat": (280, 88, 1),
    "chown": (92, -1, 0),
    "fchown": (93, 55, 0),
    "lchown": (94, -1, 0),
    "fchownat": (260, 54, 1),
    "connect": (42, 203, 0),
}
"""Name -> number on x86_64, on aarch64 (-1: none), position of the path among the arguments."""
_FLAGS = {"utimensat": 3, "fchmodat2": 3, "fchownat": 4}
_DESCRIPTOR = re.compile(rb"/(?:proc/(?:self|thread-self)|dev)/fd/(\d{1,7})")
_NAMES = [
    {number[which]: name for name, number in (CALLS | making.CALLS).items() if number[which] >= 0}
    for which in (0, 1)
]
_GO_ON = 1
"""The kernel makes the call, and decides."""
_ARCH = {0xC000003E: 0, 0xC00000B7: 1}


class Reach(NamedTuple):
    """Where files may be changed, except where; and where sockets may be connected to."""

    writable: list[bytes]
    readonly: list[bytes]
    way: tuple[str, int] | None = None
    workspace: bytes = b""
    """Where the keeper makes files itself; empty: nowhere."""


def hurry(listener: int) -> None:
    """Who asks and who answers take turns on one processor, where the kernel knows how (6.6)."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(listener, _TAKE_TURNS, 1)


def answer(listener: int, reach: Reach) -> bool:
    """Take one question and answer it. False when nobody is left who could ask."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    events = poll.poll(0)
    if not events:
        return True
    if not events[0][1] & select.POLLIN:
        return False
    buffer = bytearray(_QUESTION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.EINTR)  # he was killed meanwhile
    ident, pid, _, number, arch, _, *args = _QUESTION.unpack(buffer)
    name = _NAMES[_ARCH.get(arch, 0)].get(number, "")
    value = failure = flags = 0

    def still_there() -> None:
        fcntl.ioctl(listener, _VALID, struct.pack("=Q", ident))

    def give(fd: int, cloexec: bool) -> int:
        given = bytearray(making.gift(ident, fd, cloexec))
        return int(fcntl.ioctl(listener, making.ADD_FD, given))

    try:
        if name in making.CALLS:
            asker = making.Asker(
                pid, _ARCH.get(arch, 0), lambda at: _text(pid, at), still_there, give
            )
            ground = making.Ground(reach.workspace, reach.writable, reach.readonly)
            value = making.answer(name, args, asker, ground)
        elif name == "connect":
            _connect(pid, args, reach.way, still_there)
        else:
            fd = _open(name, pid, args)
            try:
                still_there()
                if not _inside(fd, reach):
                    raise PermissionError(errno.EPERM, "outside")
                _change(name, pid, args, fd)
            finally:
                os.close(fd)
    except making.Elsewhere:
        flags = _GO_ON
    except OSError as error:
        failure = error.errno or errno.EPERM
    with contextlib.suppress(OSError):
        fcntl.ioctl(listener, _SEND, bytearray(_ANSWER.pack(ident, value, -failure, flags)))
    return True


def _open(name: str, pid: int, args: list[int]) -> int:
    """The file meant, as the asking process would have found it."""
    position = CALLS[name][2]
    if name in ("fchmod", "fchown"):
        return os.open(f"/proc/{pid}/fd/{_signed(args[0])}", os.O_PATH | os.O_CLOEXEC)
    base = _signed(args[0]) if position else _AT_FDCWD
    flags = args[_FLAGS[name]] if name in _FLAGS else 0
    if name == "lchown":
        flags = _NOFOLLOW
    path = _text(pid, args[position]) if args[position] else b""
    if not path and not (flags & _EMPTY_PATH or (name == "utimensat" and not args[position])):
        raise FileNotFoundError(errno.ENOENT, "empty path")
    start = f"/proc/{pid}/cwd" if base == _AT_FDCWD else f"/proc/{pid}/fd/{base}"
    if not path:
        return os.open(start, os.O_PATH | os.O_CLOEXEC)
    if found := _DESCRIPTOR.fullmatch(path):  # so libraries change what they hold open
        return os.open(b"/proc/%d/fd/%s" % (pid, found[1]), os.O_PATH | os.O_CLOEXEC)
    for own in (b"/proc/self/", b"/proc/thread-self/", b"/dev/fd/"):
        if path.startswith(own):  # ours would be meant
            raise PermissionError(errno.EPERM, "a view of the asking process")
    how = os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if flags & _NOFOLLOW else 0)
    if path.startswith(b"/"):
        return os.open(path, how)
    folder = os.open(start, os.O_PATH | os.O_CLOEXEC)
    try:
        return os.open(path, how, dir_fd=folder)
    finally:
        os.close(folder)


def _inside(fd: int, reach: Reach) -> bool:
    path = os.readlink(b"/proc/self/fd/%d" % fd) + b"/"
    places = [*reach.writable, reach.workspace] if reach.workspace else reach.writable
    return any(path.startswith(root + b"/") for root in places) and not any(
        path.startswith(root + b"/") for root in reach.readonly
    )


def _connect(
    pid: int, args: list[int], way: tuple[str, int] | None, still_there: Callable[[], None]
) -> None:
    """Whatever the socket is by now, it is connected to the one address, or to nothing."""
    if way is None:
        raise PermissionError(errno.EPERM, "no network was granted")
    granted = struct.pack("=H", socket.AF_INET) + struct.pack("!H", way[1])
    granted += socket.inet_aton(way[0])
    size = args[2] & 0xFFFFFFFF
    if size < 16 or _memory(pid, args[1], len(granted)) != granted:
        raise OSError(errno.ENETUNREACH, "not granted")
    handle = os.pidfd_open(_process(pid))
    try:
        still_there()
        fd = check(libc().syscall(_GET_FD, handle, _signed(args[0]), 0))
    finally:
        os.close(handle)
    with socket.socket(fileno=fd) as theirs:
        waits = os.get_blocking(fd)
        os.set_blocking(fd, False)
        try:
            number = theirs.connect_ex(way)
            if waits and number == errno.EINPROGRESS:
                number = _settled(theirs)
        finally:
            os.set_blocking(fd, waits)
    if number:
        raise OSError(number, os.strerror(number))


def _settled(connecting: Any) -> int:
    """How it ended; soon, for it is on this machine, and the keeper has others to look after."""
    poll = select.poll()
    poll.register(connecting, select.POLLOUT)
    if not poll.poll(_CONNECT_MS):
        return errno.ETIMEDOUT
    return int(connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


def _process(task: int) -> int:
    """The process a thread belongs to."""
    with open(f"/proc/{task}/status", "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(b"Tgid:"):
                return int(line[5:])
    raise ProcessLookupError(errno.ESRCH, "it is gone")


def _change(name: str, pid: int, args: list[int], fd: int) -> None:
    position = CALLS[name][2]
    path = f"/proc/self/fd/{fd}"
    if "chown" in name:
        found = os.fstat(fd)
        for wanted, now in zip(args[position + 1 :], (found.st_uid, found.st_gid), strict=False):
            if wanted & 0xFFFFFFFF not in (now, 0xFFFFFFFF):
                raise PermissionError(errno.EPERM, "its owner stays")
        return
    if "chmod" in name:
        mode = args[position + 1] & 0o7777
        os.chmod(path, mode & ~0o6000)
        return
    pointer = args[position + 1]
    raw = _memory(pid, pointer, _TIMES[name]) if pointer else b""
    library = libc()
    if raw and name != "utimensat":
        fields = struct.unpack("=2q" if name == "utime" else "=4q", raw)
        pairs = (fields[0], 0, fields[1], 0) if name == "utime" else fields
        raw = struct.pack("=4q", pairs[0], pairs[1] * 1000, pairs[2], pairs[3] * 1000)
    check(library.utimensat(_AT_FDCWD, path.encode(), raw or None, 0))


def _text(pid: int, address: int) -> bytes:
    found = b""
    while b"\0" not in found:
        page = 4096 - (address + len(found)) % 4096
        found += _memory(pid, address + len(found), page)
        if len(found) > 2 * _PATH_MAX:
            raise OSError(errno.ENAMETOOLONG, "path")
    return found[: found.index(b"\0")]


def _memory(pid: int, address: int, size: int) -> bytes:
    try:
        fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        raise PermissionError(errno.EPERM, "its memory cannot be read") from None
    try:
        return os.pread(fd, size, address)
    except OSError:
        raise OSError(errno.EFAULT, "bad address") from None
    finally:
        os.close(fd)


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value

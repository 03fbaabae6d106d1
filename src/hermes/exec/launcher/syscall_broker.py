"""Performs a checked system call on behalf of a Landlock-confined command."""

# Landlock does not restrict changes to the mode, owner and times of one's own files. So a seccomp
# filter stops those calls, and the supervisor makes them in the command's place, on a file that it
# has opened itself and whose location it has checked. The command cannot exchange anything between
# the check and the call. Other calls are for the other brokers.

# ruff: noqa: PTH101, PTH115
import contextlib
import errno
import fcntl
import os
import re
import select
import struct
from typing import NamedTuple

from hermes.exec.launcher import file_broker, ipc_broker, libc, socket_broker
from hermes.exec.launcher.syscalls import CALL_GROUPS, CALL_NUMBERS

_NOTIF_RECV, _NOTIF_SEND, _SET_SYNC_WAKEUP = 0xC0502100, 0xC0182101, 0x40082104
_REQUEST = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
_NOFOLLOW, _EMPTY_PATH = 0x100, 0x1000
_TIMES_SIZE = {"utime": 16, "utimes": 32, "futimesat": 32, "utimensat": 32}
"""Size of the structure that holds the new times."""
_FLAGS_POSITION = {"utimensat": 3, "fchmodat2": 3, "fchownat": 4}
_DESCRIPTOR_PATH = re.compile(rb"/(?:proc/(?:self|thread-self)|dev)/fd/(\d{1,7})")
_CALL_NAMES = [{numbers[which]: name for name, numbers in CALL_NUMBERS.items()} for which in (0, 1)]
_CONTINUE = 1
"""Lets the kernel continue the call and decide."""
_ARCHITECTURES = {0xC000003E: 0, 0xC00000B7: 1}


class BrokerGrants(NamedTuple):
    """Where files may be changed, where sockets may lead, and the memory that is shared."""

    area: file_broker.WorkspaceArea
    sockets: socket_broker.SocketGrants
    segments: ipc_broker.SharedSegments


def enable_sync_wakeup(listener: int) -> None:
    """Let caller and supervisor take turns on one processor, where the kernel can (6.6)."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(listener, _SET_SYNC_WAKEUP, 1)


_MALFORMED = (TypeError, ValueError, AttributeError, IndexError, struct.error)
"""What an address raises that is of another family than its socket."""


def answer_request(listener: int, grants: BrokerGrants) -> bool:
    """Receive one request and answer it. False when no process is left that could send one."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    events = poll.poll(0)
    if not events:
        return True
    if not events[0][1] & select.POLLIN:
        return False
    buffer = bytearray(_REQUEST.size)
    try:
        fcntl.ioctl(listener, _NOTIF_RECV, buffer)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.EINTR)  # the caller was killed meanwhile
    ident, pid, _, number, arch, _, *args = _REQUEST.unpack(buffer)
    machine = _ARCHITECTURES.get(arch, 0)
    name = _CALL_NAMES[machine].get(number, "")
    value = failure = flags = 0
    caller = file_broker.SyscallCaller(listener, ident, pid, machine)
    try:
        if name in CALL_GROUPS["files"]:
            value = file_broker.perform_call(name, args, caller, grants.area)
        elif name in CALL_GROUPS["sockets"]:
            socket_broker.perform_call(name, args, caller, grants.area, grants.sockets)
        elif name in CALL_GROUPS["segments"]:
            value = grants.segments.perform_call(name, args)
        else:
            fd = _open_target(name, caller, args)
            try:
                caller.check_alive()
                if not _is_granted(fd, grants.area):
                    raise PermissionError(errno.EPERM, "outside")
                _change_attributes(name, caller, args, fd)
            finally:
                os.close(fd)
    except file_broker.LeaveToKernel:
        flags = _CONTINUE
    except (OSError, *_MALFORMED) as error:
        failure = getattr(error, "errno", None) or errno.EINVAL
    with contextlib.suppress(OSError):
        fcntl.ioctl(listener, _NOTIF_SEND, bytearray(_RESPONSE.pack(ident, value, -failure, flags)))
    return True


def _find_path(name: str) -> int:
    """The position of the path among the arguments."""
    return 1 if "at" in name else 0


def _open_target(name: str, caller: file_broker.SyscallCaller, args: list[int]) -> int:
    """Open the file that the call refers to, as the caller would find it."""
    position = _find_path(name)
    if name in ("fchmod", "fchown"):
        return os.open(f"/proc/{caller.pid}/fd/{args[0] & 0xFFFFFFFF}", os.O_PATH | os.O_CLOEXEC)
    base = args[0] if position else libc.AT_FDCWD
    flags = args[_FLAGS_POSITION[name]] if name in _FLAGS_POSITION else 0
    if name == "lchown":
        flags = _NOFOLLOW
    path = caller.read_text(args[position]) if args[position] else b""
    if not path and not (flags & _EMPTY_PATH or (name == "utimensat" and not args[position])):
        raise FileNotFoundError(errno.ENOENT, "empty path")
    if found := _DESCRIPTOR_PATH.fullmatch(path):  # how libraries change files they have open
        return os.open(b"/proc/%d/fd/%s" % (caller.pid, found[1]), os.O_PATH | os.O_CLOEXEC)
    for prefix in (b"/proc/self/", b"/proc/thread-self/", b"/dev/fd/"):
        if path.startswith(prefix):  # to us that is our own process
            raise PermissionError(errno.EPERM, "a path that depends on the process")
    return caller.open_path(base, path, os.O_PATH | (os.O_NOFOLLOW if flags & _NOFOLLOW else 0))


def _is_granted(fd: int, area: file_broker.WorkspaceArea) -> bool:
    path = os.readlink(b"/proc/self/fd/%d" % fd) + b"/"
    roots = [*area.landlock_writable, *filter(None, (area.workspace, area.shared_memory))]
    return any(path.startswith(root + b"/") for root in roots) and not any(
        path.startswith(root + b"/") for root in area.protected
    )


def _change_attributes(
    name: str, caller: file_broker.SyscallCaller, args: list[int], fd: int
) -> None:
    position = _find_path(name)
    path = f"/proc/self/fd/{fd}"
    if "chown" in name:
        found = os.fstat(fd)
        for wanted, now in zip(args[position + 1 :], (found.st_uid, found.st_gid), strict=False):
            if wanted & 0xFFFFFFFF not in (now, 0xFFFFFFFF):
                raise PermissionError(errno.EPERM, "the owner may not be changed")
        return
    if "chmod" in name:
        mode = args[position + 1] & 0o7777
        os.chmod(path, mode & ~0o6000)
        return
    pointer = args[position + 1]
    raw = caller.read_memory(pointer, _TIMES_SIZE[name]) if pointer else b""
    library = libc.load_libc()
    if raw and name != "utimensat":
        fields = struct.unpack("=2q" if name == "utime" else "=4q", raw)
        pairs = (fields[0], 0, fields[1], 0) if name == "utime" else fields
        raw = struct.pack("=4q", pairs[0], pairs[1] * 1000, pairs[2], pairs[3] * 1000)
    libc.check_result(library.utimensat(libc.AT_FDCWD, path.encode(), raw or None, 0))

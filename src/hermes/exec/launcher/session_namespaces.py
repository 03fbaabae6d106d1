"""The namespaces that the commands of a session share: a network of loopback alone, and a /tmp."""

# ruff: noqa: PTH101, PTH102, PTH115, PTH123, PTH211
import contextlib
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Sequence

from hermes.exec.launcher import libc
from hermes.exec.launcher.protocol import GRANTED_FOLDER, SESSION_FOLDER, TMP_FOLDER

_NEWUSER, _NEWNET, _NEWNS = 0x10000000, 0x40000000, 0x00020000
_KINDS = {"user": _NEWUSER, "net": _NEWNET, "mnt": _NEWNS}
_SET_INTERFACE_FLAGS = 0x8914
_UP_AND_RUNNING = 0x41
_SOCK_DIAG = 4
_NOSUID_NODEV, _MS_REMOUNT, _MS_PRIVATE = 6, 0x20, 0x44000
_NAMES = f"{SESSION_FOLDER}/names"


class GrantReplaced(OSError):
    """A path that a person granted leads elsewhere, or to nothing, by now."""


def open_namespaces() -> list[int]:
    """Descriptors of a new user namespace, and of a network and a mount namespace in it; [] where
    the kernel refuses. They last as long as the descriptors, or processes in them."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if pid := os.fork():
            theirs.close()
            fds = socket.recv_fds(ours, 1, len(_KINDS))[1]
            os.waitpid(pid, 0)
            return fds
        try:
            create_namespaces()
            fds = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in _KINDS]
            socket.send_fds(theirs, [b"n"], fds)
        finally:
            os._exit(0)


def create_namespaces() -> None:
    """Enter new namespaces of users, of the network, and of mounts with a SESSION_FOLDER."""
    uid, gid = os.getuid(), os.getgid()
    libc.check_result(libc.load_libc().unshare(_NEWUSER | _NEWNET | _NEWNS))
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as loopback:
        flags = struct.pack("16sh22x", b"lo", _UP_AND_RUNNING)
        fcntl.ioctl(loopback, _SET_INTERFACE_FLAGS, flags)
    _mount_memory(SESSION_FOLDER, b"mode=0755")
    for folder, mode in ((TMP_FOLDER, 0o1777), (GRANTED_FOLDER, 0o755)):
        os.mkdir(folder)
        os.chmod(folder, mode)


def join_namespaces(fds: list[int]) -> None:
    """Enter the namespaces of `open_namespaces`."""
    for fd, kind in zip(fds, _KINDS.values(), strict=True):
        libc.check_result(libc.load_libc().setns(fd, kind))


def enter_own_mounts() -> None:
    """Enter a copy of the mount namespace: what is mounted from now on is this command's alone."""
    libc.check_result(libc.load_libc().unshare(_NEWNS))
    libc.check_result(libc.load_libc().mount(b"none", b"/", None, _MS_PRIVATE, None))


def limit_tmp(size: int, names: Sequence[bytes]) -> None:
    """Limit the session's /tmp to this many bytes. `names` in it hold what is mounted for the
    command; where the session's first command had others, this one gets a /tmp of its own. So no
    command can put a link there, which would lead the mounts of the next one elsewhere."""
    options = b"size=%d" % size
    with contextlib.suppress(OSError):  # more than that is in use
        _mount_memory(SESSION_FOLDER, options, _MS_REMOUNT)
    wanted = b"names:" + b"/".join(sorted(names))
    try:
        shared = os.readlink(os.fsencode(_NAMES)) == wanted
    except FileNotFoundError:
        for name in names:
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.fsencode(TMP_FOLDER) + b"/" + name)
        with contextlib.suppress(FileExistsError):  # another command was faster
            os.symlink(wanted, _NAMES)
        shared = os.readlink(os.fsencode(_NAMES)) == wanted
    if not shared:
        _mount_memory(TMP_FOLDER, b"mode=1777," + options)


def bind_granted(paths: Sequence[bytes]) -> None:
    """Bind each path to its number in GRANTED_FOLDER: exchanging it afterwards changes nothing."""
    if paths:
        _mount_memory(GRANTED_FOLDER, b"mode=0755")
    for number, path in enumerate(paths):
        point = f"{GRANTED_FOLDER}/{number}".encode()
        fd = open_granted(path)
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            os.mkdir(point)
        else:
            os.close(os.open(point, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        libc.attach_mount(libc.clone_mount(b"", fd), point)
        os.close(fd)


def open_granted(path: bytes) -> int:
    """A descriptor of exactly this path; raises GrantReplaced when it leads elsewhere."""
    try:
        return open_without_links(path)
    except OSError as error:
        raise GrantReplaced(error.errno, error.strerror) from None


def open_without_links(path: bytes) -> int:
    """A descriptor for a path none of whose parts is a link."""
    return libc.open_resolved(libc.AT_FDCWD, path, libc.RESOLVE_NO_LINKS)


def open_diagnosis() -> socket.socket:
    """A socket that lists the sockets of the network namespace this process is in now."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)


def _mount_memory(folder: str, options: bytes, flags: int = 0) -> None:
    mount = libc.load_libc().mount
    flags |= _NOSUID_NODEV
    libc.check_result(mount(b"tmpfs", os.fsencode(folder), b"tmpfs", flags, options))

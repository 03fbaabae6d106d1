"""The network that the commands of a session share in namespaces: loopback and nothing else."""

# ruff: noqa: PTH123
import fcntl
import os
import socket
import struct

from hermes.exec.launcher.libc import check_result, load_libc

_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_SET_INTERFACE_FLAGS = 0x8914
_UP_AND_RUNNING = 0x41
_SOCK_DIAG = 4


def open_network() -> list[int]:
    """Descriptors of a new user namespace and of a network namespace in it; [] where the kernel
    refuses. They last as long as the descriptors, or processes in them."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if pid := os.fork():
            theirs.close()
            fds = socket.recv_fds(ours, 1, 2)[1]
            os.waitpid(pid, 0)
            return fds
        try:
            create_network()
            fds = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in ("user", "net")]
            socket.send_fds(theirs, [b"n"], fds)
        finally:
            os._exit(0)


def create_network() -> None:
    """Enter a new user namespace and a new network namespace."""
    uid, gid = os.getuid(), os.getgid()
    check_result(load_libc().unshare(_NEWUSER | _NEWNET))
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


def join_network(fds: list[int]) -> None:
    """Enter the namespaces of `open_network`."""
    for fd, kind in zip(fds, (_NEWUSER, _NEWNET), strict=True):
        check_result(load_libc().setns(fd, kind))


def open_diagnosis() -> socket.socket:
    """A socket that lists the sockets of the network namespace this process is in now."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)

"""The launcher: a small process that starts the agent's commands, and outlives it to end them."""

# One launcher per agent forks one supervisor per command, ahead of time. The launcher's environment
# is empty, so a command that reads the environment of its parents finds no secret.

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Sequence
from typing import NoReturn

from hermes.exec.launcher import cgroup
from hermes.exec.launcher.protocol import SESSION_SIZE
from hermes.exec.launcher.supervisor import (
    become_reaper,
    list_descendants,
    open_child_wakeup,
    send_signals,
    supervise_command,
)

_SPARE_DELAY = 0.02
"""Seconds after a command has started before the supervisor of the next one is forked."""
_MAX_FDS = 4
"""The supervisor's socket, one or two outputs, an input."""


def main() -> NoReturn:
    """Serve the socket on file descriptor 0: each message carries the descriptors of a command."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    _close_inherited_fds()
    requests = socket.socket(fileno=0)
    wake = open_child_wakeup()
    become_reaper()
    cgroup.remove_groups()
    supervisors: set[int] = set()
    spare: socket.socket | None = None
    session = b" " * SESSION_SIZE
    while True:
        ready, _, _ = select.select([0, wake], [], [], None if spare else _SPARE_DELAY)
        if wake in ready:
            _reap_supervisors(wake, supervisors)
        if 0 in ready:
            session, fds, _, _ = socket.recv_fds(requests, SESSION_SIZE, _MAX_FDS)
            if not session:
                break
            _assign_supervisor(session, fds, spare, supervisors)
            spare = None
        elif not ready:
            with contextlib.suppress(OSError):
                spare = _fork_supervisor(supervisors, session)  # the next is likely of the same
    if spare:
        spare.close()
    while supervisors:
        select.select([wake], [], [])
        _reap_supervisors(wake, supervisors)
    os._exit(0)


def _assign_supervisor(
    session: bytes, fds: Sequence[int], spare: socket.socket | None, supervisors: set[int]
) -> None:
    """Give the descriptors of a command to the waiting supervisor, or to a new one."""
    for fd in fds:
        os.set_inheritable(fd, False)
    try:
        if spare:
            with spare, contextlib.suppress(ConnectionError):  # somebody killed it
                socket.send_fds(spare, [session], fds)
                return
        with contextlib.suppress(OSError):  # no process can be forked: the agent sees a hang-up
            _fork_supervisor(supervisors, session, fds).close()
    finally:
        for fd in fds:
            os.close(fd)


def _close_inherited_fds() -> None:
    """Close descriptors that whatever started the agent left open: no command may inherit them."""
    with os.scandir("/dev/fd") as entries:
        numbers = [int(entry.name) for entry in entries]
    for fd in numbers:
        if fd > 2:
            with contextlib.suppress(OSError):
                os.close(fd)


def _fork_supervisor(
    supervisors: set[int], session: bytes, fds: Sequence[int] = ()
) -> socket.socket:
    """Fork a process that prepares what it can for a command of this session and waits for the
    descriptors of a command, unless they are given. Returns the socket to send them over."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        supervisors.add(pid)
        return ours
    status = 1
    try:
        ours.close()
        os.setsid()  # killing the launcher's process group must not kill supervisors
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        groups = cgroup.join_groups(session.decode().strip())
        if not fds:
            wanted, fds, _, _ = socket.recv_fds(theirs, SESSION_SIZE, _MAX_FDS)
            if fds and wanted != session:
                left, groups = groups, cgroup.join_groups(wanted.decode().strip())
                cgroup.leave_groups(left)
        theirs.close()
        for fd in fds:
            os.set_inheritable(fd, False)
        if fds:
            supervise_command(socket.socket(fileno=fds[0]), fds[1:], groups)
        status = 0
    finally:
        os._exit(status)


def _reap_supervisors(wake: int, supervisors: set[int]) -> None:
    os.read(wake, 512)
    strays = False
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            strays |= status != 0 or pid not in supervisors
            supervisors.discard(pid)
            cgroup.remove_groups(pid)
    if strays:  # somebody killed a supervisor, and its processes became ours
        send_signals(list_descendants(os.getpid(), skip=supervisors), force=True)

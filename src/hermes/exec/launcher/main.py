"""The launcher: a small process that starts the agent's commands, and outlives it to end them."""

# One launcher per agent forks one supervisor per command, ahead of time. The launcher's environment
# is empty, so a command that reads the environment of its parents finds no secret.

import contextlib
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

from hermes.exec.launcher import cgroup
from hermes.exec.launcher.process_tree import list_descendants, send_signals
from hermes.exec.launcher.protocol import SESSION_SIZE
from hermes.exec.launcher.session_namespaces import open_namespaces
from hermes.exec.launcher.supervisor import (
    become_reaper,
    name_process,
    open_child_wakeup,
    supervise_command,
)

_SPARE_DELAY = 0.02
"""Seconds after a command has started before the supervisor of the next one is forked."""
_MAX_FDS = 7
"""The supervisor's socket, one or two outputs, an input; the three namespaces of a session."""
_MAX_IDLE = 8
"""Sessions without a command whose namespaces, and files in /tmp, are kept."""


def main() -> NoReturn:
    """Serve the socket on file descriptor 0: each message carries the descriptors of a command."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    os.chdir("/")
    _close_inherited_fds()
    requests = socket.socket(fileno=0)
    wake = open_child_wakeup()
    become_reaper()
    cgroup.remove_groups()
    supervisors = _Supervisors()
    session = b" " * SESSION_SIZE
    while True:
        timeout = None if supervisors.spare else _SPARE_DELAY
        ready, _, _ = select.select([0, wake], [], [], timeout)
        if wake in ready:
            supervisors.reap(wake)
        if 0 in ready:
            session, fds, _, _ = socket.recv_fds(requests, SESSION_SIZE, _MAX_FDS)
            if not session:
                break
            supervisors.assign(session, fds)
        elif not ready:
            with contextlib.suppress(OSError):
                supervisors.spare = supervisors.fork(session)  # the next is likely of the same
    if supervisors.spare:
        supervisors.spare[1].close()
    while supervisors.sessions:
        select.select([wake], [], [])
        supervisors.reap(wake)
    os._exit(0)


class _Supervisors:
    """A session keeps its namespaces until it is idle and enough other sessions are."""

    def __init__(self) -> None:
        self.sessions: dict[int, bytes] = {}
        self.spare: tuple[int, socket.socket] | None = None
        """The process that waits for the next command, and the socket to send it over."""
        self._namespaces: dict[bytes, list[int]] = {}
        """Session -> its namespaces; the one that was used last comes last."""

    def assign(self, session: bytes, fds: Sequence[int]) -> None:
        """Give the descriptors of a command to the waiting supervisor, or to a new one."""
        spare, self.spare = self.spare, None
        for fd in fds:
            os.set_inheritable(fd, False)
        try:
            if spare:
                with contextlib.suppress(ConnectionError):  # somebody killed it
                    self._send_command(spare, session, fds)
                    return
            with contextlib.suppress(OSError):  # no process can be forked: the agent sees a hang-up
                self._send_command(self.fork(session), session, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def fork(self, session: bytes) -> tuple[int, socket.socket]:
        """Fork a process that prepares for a command of this session and waits for it."""
        self._provide_namespaces(session)
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid:
            theirs.close()
            self.sessions[pid] = session
            return pid, ours
        status = 1
        try:
            for fd in [ours.detach(), *(fd for fds in self._namespaces.values() for fd in fds)]:
                os.close(fd)
            _await_command(theirs, session)
            status = 0
        finally:
            os._exit(status)

    def reap(self, wake: int) -> None:
        """Forget supervisors that have ended, and namespaces that nobody has used for long."""
        os.read(wake, 512)
        strays = False
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                strays |= status != 0 or pid not in self.sessions
                self.sessions.pop(pid, None)
                cgroup.remove_groups(pid)
        busy = set(self.sessions.values())
        for session in [name for name in self._namespaces if name not in busy][:-_MAX_IDLE]:
            for fd in self._namespaces.pop(session):
                os.close(fd)
        if strays:  # somebody killed a supervisor, and its processes became ours
            send_signals(list_descendants(os.getpid(), skip=self.sessions), force=True)

    def _send_command(
        self, supervisor: tuple[int, socket.socket], session: bytes, fds: Sequence[int]
    ) -> None:
        pid, waiting = supervisor
        namespaces = self._provide_namespaces(session)
        with waiting:
            socket.send_fds(waiting, [session + bytes([len(fds)])], [*fds, *namespaces])
        if pid in self.sessions:
            self.sessions[pid] = session

    def _provide_namespaces(self, session: bytes) -> list[int]:
        """The namespaces of the session; none without a session, or where the kernel refuses."""
        if session.isspace() or sys.platform != "linux":
            return []
        namespaces = self._namespaces.pop(session, None)
        if namespaces is None:
            namespaces = []
            with contextlib.suppress(OSError):
                namespaces = open_namespaces()
        self._namespaces[session] = namespaces
        return namespaces


def _await_command(waiting: socket.socket, session: bytes) -> None:
    """Prepare for a command of this session, wait for one, and supervise it."""
    os.setsid()  # killing the launcher's process group must not kill supervisors
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    groups = cgroup.join_groups(session.decode().strip())
    message, fds, _, _ = socket.recv_fds(waiting, SESSION_SIZE + 1, _MAX_FDS)
    waiting.close()
    if not fds:
        return
    wanted, count = message[:SESSION_SIZE], message[SESSION_SIZE]
    if wanted != session:
        left, groups = groups, cgroup.join_groups(wanted.decode().strip())
        cgroup.leave_groups(left)
    for fd in fds:
        os.set_inheritable(fd, False)
    name_process(wanted.strip() or b"%d" % os.getpid())  # by which other supervisors find it
    supervise_command(socket.socket(fileno=fds[0]), fds[1:count], groups, fds[count:])


def _close_inherited_fds() -> None:
    """Close descriptors that whatever started the agent left open: no command may inherit them."""
    with os.scandir("/dev/fd") as entries:
        numbers = [int(entry.name) for entry in entries]
    for fd in numbers:
        if fd > 2:
            with contextlib.suppress(OSError):
                os.close(fd)

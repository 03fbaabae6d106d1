"""The program of the small process that starts the agent's commands and outlives it to end them."""

# One launcher per agent forks one keeper per command, ahead of time. The launcher's own environment
# is empty: a command that reads its parents' finds no secret.

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Sequence
from typing import NoReturn

from hermes.exec.launcher import cgroup
from hermes.exec.launcher.supervisor import (
    become_reaper,
    descendants,
    keep,
    send_signal,
    wake_on_child,
)

_BREATH = 0.02
"""Seconds left to a command that starts, before the keeper of the next one is made."""
_MOST_FDS = 4
"""The keeper's socket, one or two outputs, an input."""


def main() -> NoReturn:
    """Serve the socket on file descriptor 0: each byte carries the descriptors of one command."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    _close_inherited()
    requests = socket.socket(fileno=0)
    wake = wake_on_child()
    become_reaper()
    cgroup.sweep()
    keepers: set[int] = set()
    spare: socket.socket | None = None
    while True:
        ready, _, _ = select.select([0, wake], [], [], None if spare else _BREATH)
        if wake in ready:
            _reap_keepers(wake, keepers)
        if 0 in ready:
            byte, fds, _, _ = socket.recv_fds(requests, 1, _MOST_FDS)
            if not byte:
                break
            _hand_over(fds, spare, keepers)
            spare = None
        elif not ready:
            with contextlib.suppress(OSError):
                spare = _fork_keeper(keepers)
    if spare:
        spare.close()
    while keepers:
        select.select([wake], [], [])
        _reap_keepers(wake, keepers)
    os._exit(0)


def _hand_over(fds: Sequence[int], spare: socket.socket | None, keepers: set[int]) -> None:
    """The descriptors of a command to the keeper that waits for one, or to a new one."""
    for fd in fds:
        os.set_inheritable(fd, False)
    try:
        if spare:
            with spare, contextlib.suppress(ConnectionError):  # somebody killed it
                socket.send_fds(spare, [b"c"], fds)
                return
        with contextlib.suppress(OSError):  # no process to be had: the agent sees a hang-up
            _fork_keeper(keepers, fds).close()
    finally:
        for fd in fds:
            os.close(fd)


def _close_inherited() -> None:
    """Whatever started the agent may have left descriptors open; no command gets them."""
    with os.scandir("/dev/fd") as entries:
        numbers = [int(entry.name) for entry in entries]
    for fd in numbers:
        if fd > 2:
            with contextlib.suppress(OSError):
                os.close(fd)


def _fork_keeper(keepers: set[int], fds: Sequence[int] = ()) -> socket.socket:
    """A process that prepares what can be prepared, and waits for the descriptors of a command
    unless it has them."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        keepers.add(pid)
        return ours
    status = 1
    try:
        ours.close()
        os.setsid()  # who kills the launcher's process group must not kill the keepers
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        groups = cgroup.join()
        fds = fds or socket.recv_fds(theirs, 1, _MOST_FDS)[1]
        theirs.close()
        for fd in fds:
            os.set_inheritable(fd, False)
        if fds:
            keep(socket.socket(fileno=fds[0]), fds[1:], groups)
        status = 0
    finally:
        os._exit(status)


def _reap_keepers(wake: int, keepers: set[int]) -> None:
    os.read(wake, 512)
    strays = False
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            strays |= status != 0 or pid not in keepers
            keepers.discard(pid)
            cgroup.sweep(pid)
    if strays:  # somebody killed a keeper, and its processes became ours
        send_signal(descendants(os.getpid(), skip=keepers), force=True)

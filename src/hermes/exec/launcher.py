"""The program of the small process that starts the agent's commands and outlives it to end them.

One launcher per agent forks one keeper per command, ahead of time. A keeper is the reaper of
everything its command ever starts, so nothing escapes it by forking twice or by leaving the process
group. It ends them all when the agent hangs up, and an agent that dies hangs up. The launcher's own
environment is empty: a command that reads its parents' finds no secret.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NoReturn

from hermes.exec import cgroup, confine

FRAME = struct.Struct("!cii")
"""From keeper to agent: one of the kinds below and two numbers."""
STARTED = b"S"
"""(pid, 0)"""
FAILED = b"F"
"""(errno, what was at fault: 0 the program, 1 the folder, 2 the sandbox)"""
ENDED = b"E"
"""(exit status or minus the signal, number of processes left behind). After the last of those
the keeper hangs up."""
HEADER = struct.Struct("!I")
"""From agent to keeper: the length of a marshalled (argv, cwd, env, confine.Box), and then it."""

GRACE = 1.5
"""Seconds between TERM and KILL."""
_GIVE_UP = 12.0
"""Seconds after which processes that not even KILL ends (stuck in the kernel) are let go."""
_BREATH = 0.02
"""Seconds left to a command that starts, before the keeper of the next one is made."""
_LOOK_AGAIN = 0.03
"""Seconds between looks for processes born while the others were being ended."""
_PROGRAM, _FOLDER, _SANDBOX = 0, 1, 2
_MOST_FDS = 4
"""The keeper's socket, one or two outputs, an input."""
_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main() -> NoReturn:
    """Serve the socket on file descriptor 0: each byte carries the descriptors of one command."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    _close_inherited()
    requests = socket.socket(fileno=0)
    wake = _wake_on_child()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
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
            _keep(socket.socket(fileno=fds[0]), fds[1:], groups)
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
        _signal(descendants(os.getpid(), skip=keepers), force=True)


def _keep(control: socket.socket, output: Sequence[int], groups: list[str]) -> None:
    wake = _wake_on_child()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    header = _receive(control, HEADER.size)
    if not header:
        return
    *request, box = marshal.loads(_receive(control, *HEADER.unpack(header)))
    held = confine.Held(box, groups)
    *outputs, last = output
    streams = (last, outputs[0], outputs[-1]) if box.get("stdin") else (0, output[0], last)
    try:
        held.prepare()
        pid = _start(request, streams, control, held)
        for fd in output:
            os.close(fd)
        if pid:
            _supervise(pid, control, wake, held)
    except OSError as error:
        _send(control, FRAME.pack(FAILED, error.errno or 0, _SANDBOX))
    finally:
        held.release()


def _start(request: Any, streams: Sequence[int], control: socket.socket, held: confine.Held) -> int:
    """The command's process, or 0 after reporting why there is none."""
    keeper = os.getpid()
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        _become(request, streams, held, keeper=keeper, report=theirs)
    os.close(theirs)
    failure = os.read(ours, FRAME.size)
    os.close(ours)
    held.entered()
    _send(control, failure or FRAME.pack(STARTED, pid, 0))
    return 0 if failure else pid


def _become(
    request: Any, streams: Sequence[int], held: confine.Held, *, keeper: int, report: int
) -> NoReturn:
    argv, cwd, env = request
    at_fault = _FOLDER
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
        for number in ("SIGTERM", "SIGINT", "SIGHUP", "SIGPIPE", "SIGXFSZ"):
            signal.signal(getattr(signal, number), signal.SIG_DFL)
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        os.chdir(cwd)
        at_fault = _SANDBOX
        held.enter()
        at_fault = _PROGRAM
        os.execve(argv[0], argv, env)
    except OSError as error:
        os.write(report, FRAME.pack(FAILED, error.errno or 0, at_fault))
    finally:
        os._exit(127)


def _supervise(main: int, control: socket.socket, wake: int, held: confine.Held) -> None:
    """Report the command's end; when the agent hangs up, end everything. Until nothing is left."""
    hung_up_at = 0.0
    told: set[int] = set()
    while True:
        status, alone = _reap(main)
        if status is not None and held.never_ran(status):
            _send(control, FRAME.pack(FAILED, 0, _SANDBOX))
        elif status is not None:
            left = 0 if alone or held.wrapped else len(descendants(os.getpid()))
            _send(control, FRAME.pack(ENDED, status, left))
        since = time.monotonic() - hung_up_at if hung_up_at else 0.0
        if alone or since > _GIVE_UP:
            return
        if hung_up_at:
            if since >= GRACE:
                held.stop_forking()
            _end_all(main, told, force=since >= GRACE)
        watched = [wake] if hung_up_at else [wake, control.fileno()]
        watched += [held.listener] if held.listener >= 0 else []
        ready, _, _ = select.select(watched, [], [], _LOOK_AGAIN if hung_up_at else None)
        if wake in ready:
            os.read(wake, 512)
        if held.listener in ready:
            held.serve()
        if control.fileno() in ready and not _receive(control, 1):
            hung_up_at = time.monotonic()
            if held.wrapped:  # its end would be KILL for the command; the command's end is its own
                told.add(main)


def _end_all(main: int, told: set[int], *, force: bool) -> None:
    """TERM to each process once, also to one that was just being born; or KILL."""
    pids = descendants(os.getpid())
    _signal(pids if force else [pid for pid in pids if pid not in told], force=force)
    if not _LINUX and (force or main not in told):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(main, signal.SIGKILL if force else signal.SIGTERM)
    told.update(pids, (main,))


def _reap(main: int) -> tuple[int | None, bool]:
    """(exit status of the command if it has just ended, whether no child is left)."""
    status = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == main:
                status = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        return status, True
    return status, False


def descendants(root: int, *, skip: Collection[int] = ()) -> list[int]:
    """All living processes below `root`, without the subtrees in `skip`."""
    below: dict[int, list[int]] = {}
    for pid, parent in _living():
        below.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = [root]
    while queue:
        for pid in below.get(queue.pop(), ()):
            if pid not in skip:
                found.append(pid)
                queue.append(pid)
    return found


def _living() -> Iterator[tuple[int, int]]:
    """(process, parent) of all; where there is no /proc, none."""
    if not _LINUX:
        return
    with os.scandir("/proc") as entries:
        for name in [entry.name for entry in entries if entry.name.isdigit()]:
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - pathlib takes 3 ms
                    stat = file.read()
            except OSError:
                continue
            state, parent, _ = stat[stat.rindex(b")") + 2 :].split(b" ", 2)
            if state != b"Z":
                yield int(name), int(parent)


def _signal(pids: Sequence[int], *, force: bool) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)


def _wake_on_child() -> int:
    """A descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _receive(control: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes, or fewer when the agent has hung up."""
    parts: list[bytes] = []
    with contextlib.suppress(ConnectionError):
        while size and (part := control.recv(size)):
            parts.append(part)
            size -= len(part)
    return b"".join(parts)


def _send(control: socket.socket, frame: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        control.sendall(frame)

"""The process beside one command: it starts it, reports its end, and ends all it ever started."""

# A keeper is the reaper of everything its command starts, so nothing escapes it by forking twice or
# by leaving the process group. It ends them all when the agent hangs up, and an agent that dies
# hangs up. A command in the background has a desk too: see `background_supervisor`.

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
import select
import signal
import socket
import sys
import termios
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NoReturn

from hermes.exec.launcher import child_setup as confine
from hermes.exec.launcher.background_supervisor import Desk
from hermes.exec.launcher.libc import libc
from hermes.exec.launcher.protocol import ENDED, FAILED, FRAME, GRACE, HEADER, STARTED, Box

_GIVE_UP = 12.0
"""Seconds after which processes that not even KILL ends (stuck in the kernel) are let go."""
_LOOK_AGAIN = 0.03
"""Seconds between looks for processes born while the others were being ended."""
_PROGRAM, _FOLDER, _SANDBOX, _RECORD = 0, 1, 2, 3
_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def keep(control: socket.socket, output: Sequence[int], groups: list[str]) -> None:
    """Read the request, and see its command through."""
    wake = wake_on_child()
    become_reaper()
    header = _receive(control, HEADER.size)
    if not header:
        return
    *request, box = marshal.loads(_receive(control, *HEADER.unpack(header)))
    held = confine.Held(box, groups)
    desk = _open_desk(box, control)
    if desk is None and "desk" in box:
        return
    try:
        held.prepare()
        if select.select([control], [], [], 0)[0]:  # nothing but a hang-up or KILL can be there yet
            return
        pid = _start(request, _streams(box, output, desk), control, held)
        for fd in output:
            os.close(fd)
        if desk:
            desk.entered()
        if pid:
            _supervise(pid, control, wake, held, desk)
    except OSError as error:
        send(control, FRAME.pack(FAILED, error.errno or 0, _SANDBOX))
    finally:
        held.release()
        if desk:
            desk.close()


def _open_desk(box: Box, control: socket.socket) -> Desk | None:
    if "desk" not in box:
        return None
    try:
        return Desk(box["desk"], control, pty=bool(box.get("pty")))
    except OSError as error:
        send(control, FRAME.pack(FAILED, error.errno or 0, _RECORD))
        return None


def _streams(box: Box, given: Sequence[int], desk: Desk | None) -> tuple[int, int, int]:
    """Standard input, output and error of the command. 0 is /dev/null here."""
    if desk:
        return (given[0] if box.get("stdin") else desk.input, desk.output, desk.output)
    *outputs, last = given
    if box.get("pty"):
        return (last, last, last)
    return (last, outputs[0], outputs[-1]) if box.get("stdin") else (0, given[0], last)


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
    send(control, failure or FRAME.pack(STARTED, pid, 0))
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
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        if held.terminal:
            _control_terminal()
        os.chdir(cwd)
        at_fault = _SANDBOX
        held.enter()
        at_fault = _PROGRAM
        os.execve(argv[0], argv, env)
    except OSError as error:
        os.write(report, FRAME.pack(FAILED, error.errno or 0, at_fault))
    finally:
        os._exit(127)


def _control_terminal() -> None:
    """Keys like Ctrl-C on the terminal at standard input are signals to us."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _supervise(
    main: int, control: socket.socket, wake: int, held: confine.Held, desk: Desk | None
) -> None:
    """Report the command's end; when the agent hangs up, end everything. Until nothing is left."""
    hung_up_at = 0.0
    told: set[int] = set()
    while True:
        status, alone = _reap(main)
        if status is not None:
            _report(status, alone, control, held, desk)
        since = time.monotonic() - hung_up_at if hung_up_at else 0.0
        if alone or since > _GIVE_UP:
            return
        if hung_up_at:
            if since >= GRACE:
                held.stop_forking()
            _end_all(main, told, force=since >= GRACE)
        watched = [wake] if hung_up_at or desk else [wake, control.fileno()]
        watched += [held.listener] if held.listener >= 0 else []
        readers, writers = desk.watched() if desk else ([], [])
        patience = _LOOK_AGAIN if hung_up_at else None
        ready, writable, _ = select.select([*watched, *readers], writers, [], patience)
        if wake in ready:
            os.read(wake, 512)
        if held.listener in ready:
            held.serve()
        if desk:
            stop = desk.serve(ready, writable)
        else:
            stop = control.fileno() in ready and not _receive(control, 1)
        if stop and not hung_up_at:
            hung_up_at = time.monotonic()
            if held.wrapped:  # its end would be KILL for the command; the command's end is its own
                told.add(main)


def _report(
    status: int, alone: bool, control: socket.socket, held: confine.Held, desk: Desk | None
) -> None:
    if held.never_ran(status):
        if desk:
            desk.record(status, why="sandbox")
        send(control, FRAME.pack(FAILED, 0, _SANDBOX))
        return
    left = 0 if alone or held.wrapped else len(descendants(os.getpid()))
    if desk:
        desk.ended(status, left)
    else:
        send(control, FRAME.pack(ENDED, status, left))


def _end_all(main: int, told: set[int], *, force: bool) -> None:
    """TERM to each process once, also to one that was just being born; or KILL."""
    pids = descendants(os.getpid())
    send_signal(pids if force else [pid for pid in pids if pid not in told], force=force)
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


def send_signal(pids: Sequence[int], *, force: bool) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)


def wake_on_child() -> int:
    """A descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def become_reaper() -> None:
    """Orphans below us become our children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        libc().prctl(option, value, 0, 0, 0)


def _receive(control: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes, or fewer when the agent has hung up."""
    parts: list[bytes] = []
    with contextlib.suppress(ConnectionError):
        while size and (part := control.recv(size)):
            parts.append(part)
            size -= len(part)
    return b"".join(parts)


def send(control: socket.socket, frame: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        control.sendall(frame)

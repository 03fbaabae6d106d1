"""The process that supervises one command: starts it, reports its end, ends all it ever started."""

# A supervisor is the subreaper of everything its command starts, so nothing escapes it by forking
# twice or by leaving the process group. It ends them all when the agent closes the connection,
# which also happens when the agent dies. See `background_supervisor` for background commands.

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
from collections.abc import Sequence
from typing import Any, NoReturn

from hermes.exec.launcher import protocol
from hermes.exec.launcher.background_supervisor import BackgroundSupervisor
from hermes.exec.launcher.child_setup import ChildSetup
from hermes.exec.launcher.libc import load_libc
from hermes.exec.launcher.process_tree import list_descendants, send_signals
from hermes.exec.launcher.session_namespaces import GrantReplaced

_GIVE_UP_SECONDS = 12.0
"""Seconds after which processes that do not even end on KILL (stuck in the kernel) are given up."""
_POLL_SECONDS = 0.03
"""Seconds between searches for processes started while others were being ended."""
_PROGRAM, _FOLDER, _SANDBOX, _RECORD = 0, 1, 2, 3
_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


def supervise_command(
    control: socket.socket, output: Sequence[int], groups: list[str], namespaces: list[int]
) -> None:
    """Read the request, run its command, and return when nothing of it is left."""
    wake = open_child_wakeup()
    become_reaper()
    header = _receive_bytes(control, protocol.HEADER.size)
    if not header:
        return
    *request, instructions = marshal.loads(_receive_bytes(control, *protocol.HEADER.unpack(header)))
    setup = ChildSetup(instructions, groups, namespaces)
    background, at_fault = None, _RECORD
    try:
        if plan := instructions.get("background"):
            background = BackgroundSupervisor(plan, control, pty=bool(instructions.get("pty")))
        at_fault = _SANDBOX
        setup.prepare()
        if select.select([control], [], [], 0)[0]:  # it can only be a hang-up or KILL yet
            return
        streams = _select_streams(instructions, output, background)
        pid = _start_command(request, streams, control, setup)
        for fd in output:
            os.close(fd)
        if background:
            background.close_command_ends()
        if pid:
            _watch_command(pid, control, wake, setup, background)
    except OSError as error:
        send_frame(control, protocol.FRAME.pack(protocol.FAILED, error.errno or 0, at_fault))
    finally:
        setup.release()
        if background:
            background.close()


def _select_streams(
    instructions: protocol.SetupInstructions,
    given: Sequence[int],
    background: BackgroundSupervisor | None,
) -> tuple[int, int, int]:
    """Standard input, output and error of the command. Descriptor 0 is /dev/null here."""
    if background:
        stdin = given[0] if instructions.get("stdin") else background.input
        return (stdin, background.output, background.output)
    *outputs, last = given
    if instructions.get("pty"):
        return (last, last, last)
    return (last, outputs[0], outputs[-1]) if instructions.get("stdin") else (0, given[0], last)


def _start_command(
    request: Any, streams: Sequence[int], control: socket.socket, setup: ChildSetup
) -> int:
    """The process of the command, or 0 after reporting why it could not be started."""
    supervisor = os.getpid()
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        _exec_command(request, streams, setup, supervisor=supervisor, report=theirs)
    os.close(theirs)
    failure = os.read(ours, protocol.FRAME.size)
    os.close(ours)
    setup.finish_start()
    send_frame(control, failure or protocol.FRAME.pack(protocol.STARTED, pid, 0))
    return 0 if failure else pid


def _exec_command(
    request: Any, streams: Sequence[int], setup: ChildSetup, *, supervisor: int, report: int
) -> NoReturn:
    argv, cwd, env = request
    at_fault = _FOLDER
    try:
        os.setsid()
        _set_process_option(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        for number in ("SIGTERM", "SIGINT", "SIGHUP", "SIGPIPE", "SIGXFSZ"):
            signal.signal(getattr(signal, number), signal.SIG_DFL)
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        if setup.controls_terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # keys like Ctrl-C send us signals
        os.chdir(cwd)
        at_fault = _SANDBOX
        setup.confine_child()
        at_fault = _PROGRAM
        os.execve(argv[0], argv, env)
    except OSError as error:
        at_fault = protocol.GRANT_REPLACED if isinstance(error, GrantReplaced) else at_fault
        os.write(report, protocol.FRAME.pack(protocol.FAILED, error.errno or 0, at_fault))
    finally:
        os._exit(127)


def _watch_command(
    main: int,
    control: socket.socket,
    wake: int,
    setup: ChildSetup,
    background: BackgroundSupervisor | None,
) -> None:
    """Report the end, end everything when the agent hangs up, return when no process is left."""
    hung_up_at = 0.0
    signalled: set[int] = set()
    while True:
        status, none_left = _reap_children(main, setup)
        if status is not None:
            _report_end(status, none_left, control, setup, background)
        since = time.monotonic() - hung_up_at if hung_up_at else 0.0
        if none_left or since > _GIVE_UP_SECONDS:
            return
        if hung_up_at:
            if since >= setup.grace:
                setup.stop_forking()
            _signal_descendants(main, signalled, force=since >= setup.grace)
        watched = [wake] if hung_up_at or background else [wake, control.fileno()]
        watched += [fd for fd in (setup.listener, setup.status_reader) if fd >= 0]
        readers, writers = background.list_descriptors() if background else ([], [])
        timeout = _POLL_SECONDS if hung_up_at else None
        ready, writable, _ = select.select([*watched, *readers], writers, [], timeout)
        if wake in ready:
            os.read(wake, 512)
        if setup.listener in ready:
            setup.answer_syscall()
        if setup.status_reader in ready:
            setup.follow_status(main)
        if background:
            stop = background.serve_ready(ready, writable)
        else:
            stop = control.fileno() in ready and not _receive_bytes(control, 1)
        if stop and not hung_up_at:
            hung_up_at = time.monotonic()
            if setup.is_wrapped:  # if bubblewrap ended first, the command in it would be killed
                signalled.add(main)


def _report_end(
    status: int,
    none_left: bool,
    control: socket.socket,
    setup: ChildSetup,
    background: BackgroundSupervisor | None,
) -> None:
    if setup.failed_to_start(status):
        if background:
            background.record_end(status, why="sandbox")
        send_frame(control, protocol.FRAME.pack(protocol.FAILED, 0, _SANDBOX))
        return
    left = 0 if none_left or setup.is_wrapped else len(list_descendants(os.getpid()))
    if background:
        background.report_end(status, left)
    else:
        details = setup.describe_end()
        send_frame(control, protocol.FRAME.pack(protocol.DETAILS, len(details), 0) + details)
        send_frame(control, protocol.FRAME.pack(protocol.ENDED, status, left))


def _signal_descendants(main: int, signalled: set[int], *, force: bool) -> None:
    """Send each process TERM once, including those just started; or KILL all."""
    pids = list_descendants(os.getpid())
    send_signals(pids if force else [pid for pid in pids if pid not in signalled], force=force)
    if not _LINUX and (force or main not in signalled):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(main, signal.SIGKILL if force else signal.SIGTERM)
    signalled.update(pids, (main,))


def _reap_children(main: int, setup: ChildSetup) -> tuple[int | None, bool]:
    """The exit status of the command if it has just ended, and whether no child is left."""
    status = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG | os.WUNTRACED))[0]:
            if ended[0] == main and not os.WIFSTOPPED(ended[1]):
                status = os.waitstatus_to_exitcode(ended[1])
            elif ended[0] == main and setup.is_wrapped:
                setup.count_leftovers()
                os.kill(main, signal.SIGCONT)
    except ChildProcessError:
        return status, True
    return status, False


def open_child_wakeup() -> int:
    """A descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def become_reaper() -> None:
    _set_process_option(_PR_SET_CHILD_SUBREAPER, 1)


def name_process(name: bytes) -> None:
    """Name this process by the first 15 bytes."""
    _set_process_option(_PR_SET_NAME, name)


def _set_process_option(option: int, value: int | bytes) -> None:
    if _LINUX:
        load_libc().prctl(option, value, 0, 0, 0)


def _receive_bytes(control: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes, or fewer when the agent has closed the connection."""
    parts: list[bytes] = []
    with contextlib.suppress(ConnectionError):
        while size and (part := control.recv(size)):
            parts.append(part)
            size -= len(part)
    return b"".join(parts)


def send_frame(control: socket.socket, frame: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        control.sendall(frame)

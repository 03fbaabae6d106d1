"""Runs shell commands on this machine, with limits, and ends them with everything they started."""

import asyncio
import contextlib
import hashlib
import marshal
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Unpack

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.exec.launcher import protocol
from hermes.exec.launcher.pty import END_OF_INPUT, open_terminal
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.process.supervisor_client import (
    CommandNotStarted,
    CommandResult,
    SupervisorConnection,
)
from hermes.exec.sandbox import SandboxPolicy, SandboxTier, confine_command

MAX_COMMAND = 128 * 1024 - 1
"""Most bytes in one argument of a program: a limit of the Linux kernel."""
_LAST_OUTPUT_SECONDS = 0.25
"""Seconds in which processes that a command left behind may finish writing after it has ended."""
_CHUNK = 64 * 1024
_SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh")
_PIPE_SIZE = 1024 * 1024
_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from hermes.exec.launcher.main import main; main()"
)


class CommandSpec(Struct, frozen=True):
    """What to run, where, with which complete environment, and for how many seconds."""

    text: str | tuple[str, ...]
    """A command line for the shell; or a program, by its full path, and its arguments."""
    cwd: Path
    env: Mapping[str, str]
    timeout: float
    policy: SandboxPolicy | None = None
    """What it may see and change; None: it is not confined."""
    tier: SandboxTier | None = None
    """How strongly the policy is enforced; required unless it allows everything."""
    stdin: int = -1
    """Descriptor of its standard input, still owned by the caller; -1: empty."""
    pty: bool = False
    """Whether it gets a terminal of its own; `stdin` is then ignored."""
    placeholders: tuple[str, ...] = ()
    """Names that cannot be created while it runs: occupied by empty folders, removed after it."""
    session: str = ""
    """Whose commands share its limits of memory and processes; empty: it has its own."""


async def run_command(
    command: CommandSpec, out: OutputCapture, err: OutputCapture | None = None
) -> CommandResult:
    """Run a command to its end; without `err` both of its streams go to `out`. Raises ToolError
    when nothing could be started. When it is cancelled or times out, every process of the command
    has ended when this returns: TERM first, KILL after 1.5 s."""
    request = build_request(command)
    child = _RunningCommand([out] if err is None or command.pty else [out, err])
    try:
        async with asyncio.timeout(command.timeout):
            await child.start(request, command)
            result = await asyncio.shield(child.connection.ended)
        await child.await_last_output()
        return result
    except TimeoutError:
        return CommandResult(None)
    except OSError as error:
        raise ToolError(f"No process could be started: {error.strerror}.") from error
    except CommandNotStarted as failure:
        await child.await_last_output()
        words = (err or out).text().strip()[:500]
        raise ToolError(f"{failure} Nothing was run. {words}".strip()) from None
    finally:
        try:
            await child.end()
        finally:
            child.release()


async def stop_left_running() -> None:
    """End the processes that earlier commands left running."""
    loop = asyncio.get_running_loop()
    for child in [c for c in _left_running if c.connection.closed.get_loop() is loop]:
        await child.end(include_left=True)


def build_request(command: CommandSpec, **more: Unpack[protocol.SetupInstructions]) -> bytes:
    """The request to a supervisor; `more` are additional instructions."""
    argv: Sequence[str] = _build_argv(command.text)
    env = dict(command.env)
    setup: protocol.SetupInstructions | None = None
    if command.pty:
        env = {"TERM": "xterm", **env}
    if command.policy and command.policy.mode != "full-access":
        if command.tier is None:
            raise ValueError("a confined command needs a tier")
        if command.pty and command.tier.level == 1:
            setsid = _find_program("/usr/bin/setsid", "/bin/setsid")
            argv = (setsid, "-c", *argv) if setsid else argv  # or keys would not reach it
        launch = confine_command(argv, command.policy, command.tier, env=env, cwd=command.cwd)
        argv, env, setup = launch.argv, launch.env, launch.setup
    names = {os.fsencode(k): os.fsencode(v) for k, v in env.items()}
    parts = [os.fsencode(part) for part in argv]
    stdin = command.stdin >= 0 and not command.pty
    instructions = {**(setup or {}), **more, "stdin": stdin, "pty": command.pty}
    if command.placeholders:
        instructions["placeholders"] = [os.fsencode(name) for name in command.placeholders]
    # Bubblewrap changes to the folder inside, where it may be one that we cannot see.
    cwd = "/" if setup and setup.get("wrapped") else command.cwd
    body = marshal.dumps((parts, os.fsencode(cwd), names, instructions))
    return protocol.HEADER.pack(len(body)) + body


@cache
def _find_program(*paths: str) -> str:
    return next((path for path in paths if os.access(path, os.X_OK)), "")


def _build_argv(text: str | tuple[str, ...]) -> Sequence[str]:
    if isinstance(text, tuple):
        return text
    return (_find_program(*_SHELLS) or "/bin/sh", "-c", os.fsdecode(encode_command(text)))


def encode_command(text: str) -> bytes:
    """The bytes of a command line; raises ToolError when no shell could be given them."""
    raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > MAX_COMMAND:
        raise ToolError("The command is too long (128 KB): write it to a file and run that.")
    if b"\0" in raw:
        raise ToolError("The command contains a NUL character; nothing was run.")
    return raw


class _RunningCommand:
    """One command, as seen from the agent: its supervisor's connection and its output."""

    connection: SupervisorConnection

    def __init__(self, captures: list[OutputCapture]) -> None:
        self._loop = asyncio.get_running_loop()
        self._output_ended: asyncio.Future[None] = self._loop.create_future()
        self._started = False
        self._captures = captures
        self._readers: dict[int, OutputCapture | None] = {}

    async def start(self, request: bytes, command: CommandSpec) -> None:
        lent: list[int] = []
        try:
            for capture in self._captures:
                reader, writer = open_terminal() if command.pty else os.pipe()
                os.set_blocking(reader, False)
                self._readers[reader] = capture
                lent.append(writer)
                if command.pty and isinstance(command.text, str):
                    os.write(reader, END_OF_INPUT)  # nobody types anything
            self.connection = connect_supervisor(command, lent)
        finally:
            for writer in lent:
                os.close(writer)
        self._started = True
        for reader in self._readers:
            self._loop.add_reader(reader, self._on_output, reader)
        await self.connection.send(request)

    async def await_last_output(self) -> None:
        """Read what is still in the pipes, waiting only briefly for processes left behind."""
        await asyncio.wait([self._output_ended], timeout=_LAST_OUTPUT_SECONDS)

    async def end(self, *, include_left: bool = False) -> None:
        """End the command, unless it has ended by itself, and wait until nothing of it is left."""
        if (
            not self._started
            or self.connection.closed.done()
            or (self._left_count and not include_left)
        ):
            return
        self.connection.hang_up()
        await asyncio.wait([self.connection.closed], timeout=protocol.GRACE_SECONDS + 1)

    @property
    def _left_count(self) -> int:
        ended = self.connection.ended
        return ended.result().left if ended.done() and not ended.exception() else 0

    def release(self) -> None:
        """Close everything, except for processes left running: their output is still read, so that
        they do not block, and they end with the agent."""
        for reader in list(self._readers):
            self._drain_output(reader)
        if self._started and self._left_count and not self.connection.closed.done():
            self._readers = dict.fromkeys(self._readers)
            _left_running.add(self)
            self.connection.closed.add_done_callback(self._close)
        else:
            self._close()

    def _close(self, _: object = None) -> None:
        _left_running.discard(self)
        for reader in list(self._readers):
            self._close_reader(reader)
        if self._started:
            self.connection.close()

    def _on_output(self, reader: int) -> bool:
        """Read one chunk; True when there may be more."""
        try:
            data = os.read(reader, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # how a terminal signals end of file
            data = b""
        if not data:
            self._close_reader(reader)
        elif capture := self._readers[reader]:
            capture.feed(data)
        return bool(data)

    def _drain_output(self, reader: int) -> None:
        """Read what is in the pipe now, but not what is still being written."""
        for _ in range(_PIPE_SIZE // _CHUNK):
            if not self._on_output(reader):
                return

    def _close_reader(self, reader: int) -> None:
        self._loop.remove_reader(reader)
        os.close(reader)
        del self._readers[reader]
        if not self._readers and not self._output_ended.done():
            self._output_ended.set_result(None)


def connect_supervisor(command: CommandSpec, lent: Sequence[int] = ()) -> SupervisorConnection:
    """A connection to a new supervisor, which is given these outputs and the command's input."""
    given = [command.stdin] if command.stdin >= 0 and not command.pty else []
    ours, theirs = socket.socketpair()
    try:
        _launcher.send_descriptors([theirs.fileno(), *lent, *given], command.session)
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return SupervisorConnection(ours)


_left_running: set[_RunningCommand] = set()


class _LauncherProcess:
    """The launcher of this process, started with the first command. Starting commands from here
    would be no cheaper (a larger process forks more slowly), and nobody would end the orphans of a
    killed agent."""

    def __init__(self) -> None:
        self._requests = -1
        """Our end of its socket: a plain descriptor, which nothing closes before we end."""
        self._pid = 0
        self._owner = 0

    def send_descriptors(self, fds: list[int], session: str) -> None:
        """Send what belongs to one command: the supervisor's end of its socket, and streams."""
        session = _first_sessions.get(session, session)
        name = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest() if session else ""
        frame = name[: protocol.SESSION_SIZE].ljust(protocol.SESSION_SIZE).encode()
        try:
            self._try_send(fds, frame)
        except ConnectionError:  # somebody killed it
            self._forget_process()
            self._try_send(fds, frame)

    def _try_send(self, fds: list[int], frame: bytes) -> None:
        if self._owner != os.getpid():
            self._forget_process()
        if self._requests < 0:
            self._start_process()
        with socket.socket(fileno=os.dup(self._requests)) as requests:
            socket.send_fds(requests, [frame], fds)

    def _start_process(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._pid = _spawn_launcher(theirs.fileno())
            self._owner = os.getpid()
            self._requests = ours.detach()

    def _forget_process(self) -> None:
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, os.WNOHANG)


def _spawn_launcher(requests: int) -> int:
    root = Path(__file__).parents[3]
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", _BOOT, str(root)],
        {},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, requests, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
        setsigmask=(),
    )


_first_sessions: dict[str, str] = {}


def continue_session(session: str, child: str) -> None:
    """Let the commands of a child session share what those of the continued session share."""
    _first_sessions[child] = _first_sessions.get(session, session)


_launcher = _LauncherProcess()

"""Runs shell commands on this machine: bounded in time and memory, ended with all they started."""

from __future__ import annotations

import asyncio
import contextlib
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
from hermes.exec.launcher.protocol import GRACE, HEADER, Box
from hermes.exec.launcher.pty import END_OF_INPUT, open_terminal
from hermes.exec.process.output_capture import Capture
from hermes.exec.process.supervisor_client import Line, NotStarted
from hermes.exec.sandbox import Policy, Tier, wrap

MAX_COMMAND = 128 * 1024 - 1
"""Bytes in one argument of a program; the limit of the Linux kernel."""
_LAST_WORDS = 0.25
"""Seconds left to a command's background processes to finish writing once it has ended."""
_CHUNK = 64 * 1024
_PIPE = 1024 * 1024
"""The most a pipe can hold."""
_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from hermes.exec.launcher.main import main; main()"
)


class Outcome(Struct, frozen=True):
    """How a command ended. `status` is None when it was killed for taking too long."""

    status: int | None
    """Exit status, or minus the number of the signal that ended it."""
    left: int = 0
    """Processes it left running in the background; they end with the agent."""


class Command(Struct, frozen=True):
    """What to run, where, with which environment (the whole of it), for how many seconds."""

    text: str | tuple[str, ...]
    """For the shell; or a program, by its full path, and its arguments."""
    cwd: Path
    env: Mapping[str, str]
    timeout: float
    policy: Policy | None = None
    """What it may see and change; None: all that we may."""
    tier: Tier | None = None
    """How the policy is enforced; needed where there is one."""
    stdin: int = -1
    """Descriptor of its standard input, which stays the caller's; -1: there is nothing to read."""
    pty: bool = False
    """Whether its streams are a terminal of its own; then `stdin` does not count."""
    placeholders: tuple[str, ...] = ()
    """Names kept from being made while it runs, by empty folders that are removed after it."""


async def run(command: Command, out: Capture, err: Capture | None = None) -> Outcome:
    """Run to the end, feeding `out` (and `err`; without it both streams are one).

    Raises ToolError when nothing could be started. When it is cancelled or out of time it returns
    with every process of the command dead: TERM first, KILL after 1.5 s.
    """
    request = await request_of(command)
    child = _Child([out] if err is None or command.pty else [out, err])
    try:
        async with asyncio.timeout(command.timeout):
            await child.begin(request, command)
            status, left = await asyncio.shield(child.line.ended)
        await child.last_words()
        return Outcome(status, left)
    except TimeoutError:
        return Outcome(None)
    except OSError as error:
        raise ToolError(f"No process could be started: {error.strerror}.") from error
    except NotStarted as failure:
        await child.last_words()
        words = (err or out).text().strip()[:500]
        raise ToolError(f"{failure} Nothing was run. {words}".strip()) from None
    finally:
        try:
            await child.end()
        finally:
            child.release()


async def stop_all() -> None:
    """End what earlier commands left running in the background."""
    loop = asyncio.get_running_loop()
    for child in [c for c in _left_running if c.line.gone.get_loop() is loop]:
        await child.end(all_of_it=True)


async def request_of(command: Command, **more: Unpack[Box]) -> bytes:
    """What a keeper is sent; `more` is what it is to do besides starting the command."""
    argv: Sequence[str] = _argv(command.text)
    env, box = dict(command.env), None
    if command.pty:
        env = {"TERM": "xterm", **env}
    if command.policy:
        if command.tier is None:
            raise ValueError("a command with a policy needs a tier")
        if command.pty and command.tier.level == 1:
            argv = (*_own_session(), *argv)
        launch = wrap(argv, command.policy, command.tier, env=env, cwd=command.cwd)
        argv, env, box = launch.argv, launch.env, launch.box
    names = {os.fsencode(k): os.fsencode(v) for k, v in env.items()}
    parts = [os.fsencode(part) for part in argv]
    stdin = command.stdin >= 0 and not command.pty
    instructions = {**(box or {}), **more, "stdin": stdin, "pty": command.pty}
    if command.placeholders:
        instructions["placeholders"] = [os.fsencode(name) for name in command.placeholders]
    body = marshal.dumps((parts, os.fsencode(command.cwd), names, instructions))
    return HEADER.pack(len(body)) + body


@cache
def _own_session() -> tuple[str, ...]:
    """Inside of bubblewrap a command cannot be the first of its session, to whom the keys of a
    terminal belong. Without the program everything but the keys works."""
    found = next((p for p in ("/usr/bin/setsid", "/bin/setsid") if os.access(p, os.X_OK)), "")
    return (found, "-c") if found else ()


def _argv(text: str | tuple[str, ...]) -> Sequence[str]:
    if isinstance(text, tuple):
        return text
    raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > MAX_COMMAND:
        raise ToolError("The command is too long (128 KB): write it to a file and run that.")
    if b"\0" in raw:
        raise ToolError("The command contains a NUL character; nothing was run.")
    return (_shell(), "-c", os.fsdecode(raw))


@cache
def _shell() -> str:
    shells = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh")
    return next((shell for shell in shells if os.access(shell, os.X_OK)), "/bin/sh")


class _Child:
    """One command under its keeper, from this side of their socket."""

    line: Line

    def __init__(self, captures: list[Capture]) -> None:
        self._loop = asyncio.get_running_loop()
        self._silent: asyncio.Future[None] = self._loop.create_future()
        self._begun = False
        self._captures = captures
        self._readers: dict[int, Capture | None] = {}

    async def begin(self, request: bytes, command: Command) -> None:
        ours, theirs = socket.socketpair()
        lent: list[int] = []
        try:
            for capture in self._captures:
                reader, writer = open_terminal() if command.pty else os.pipe()
                os.set_blocking(reader, False)
                self._readers[reader] = capture
                lent.append(writer)
                if command.pty and isinstance(command.text, str):
                    os.write(reader, END_OF_INPUT)  # there is nobody to type
            given = [command.stdin] if command.stdin >= 0 and not command.pty else []
            hand_over([theirs.fileno(), *lent, *given])
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            for writer in lent:
                os.close(writer)
        self.line = Line(ours)
        self._begun = True
        for reader in self._readers:
            self._loop.add_reader(reader, self._on_output, reader)
        await self.line.send(request)

    async def last_words(self) -> None:
        """What was written before the end is in the pipes; what background processes still write
        is waited for only a moment."""
        await asyncio.wait([self._silent], timeout=_LAST_WORDS)

    async def end(self, *, all_of_it: bool = False) -> None:
        """Unless the command has ended by itself, end it and wait until nothing of it is left."""
        if not self._begun or self.line.gone.done() or (self._left and not all_of_it):
            return
        self.line.hang_up()
        await asyncio.wait([self.line.gone], timeout=GRACE + 1)

    @property
    def _left(self) -> int:
        """Processes that live on after the command's end."""
        ended = self.line.ended
        return ended.result()[1] if ended.done() and not ended.exception() else 0

    def release(self) -> None:
        """Let go of everything, except of what the command left running: that is kept from
        blocking on its output, and ends when we do."""
        for reader in list(self._readers):
            self._drain(reader)
        if self._begun and self._left and not self.line.gone.done():
            self._readers = dict.fromkeys(self._readers)
            _left_running.add(self)
            self.line.gone.add_done_callback(self._close)
        else:
            self._close()

    def _close(self, _: object = None) -> None:
        _left_running.discard(self)
        for reader in list(self._readers):
            self._hush(reader)
        if self._begun:
            self.line.close()

    def _on_output(self, reader: int) -> bool:
        """Take one chunk; whether there may be more."""
        try:
            data = os.read(reader, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # how a terminal says that nobody is left
            data = b""
        if not data:
            self._hush(reader)
        elif capture := self._readers[reader]:
            capture.feed(data)
        return bool(data)

    def _drain(self, reader: int) -> None:
        """What is in the pipe now; not what a background process goes on writing."""
        for _ in range(_PIPE // _CHUNK):
            if not self._on_output(reader):
                return

    def _hush(self, reader: int) -> None:
        self._loop.remove_reader(reader)
        os.close(reader)
        del self._readers[reader]
        if not self._readers and not self._silent.done():
            self._silent.set_result(None)


_left_running: set[_Child] = set()


class _Launcher:
    """The one launcher process of this process, started with the first command.

    It costs some 20 ms and 10 MB, once; a command through it some 3 ms, of which our process
    spends 0.4. Starting from here would be no cheaper (a larger process forks slower) and could
    not end the orphans of a killed agent: a death signal reaches only a direct child.
    """

    def __init__(self) -> None:
        self._requests = -1
        """Our end of its socket: a bare descriptor, because it is closed by our end alone."""
        self._pid = 0
        self._owner = 0

    def hand_over(self, fds: list[int]) -> None:
        """A keeper's end of its socket, and the write ends of one or two pipes."""
        try:
            self._send(fds)
        except ConnectionError:  # somebody killed it
            self._forget()
            self._send(fds)

    def _send(self, fds: list[int]) -> None:
        if self._owner != os.getpid():
            self._forget()
        if self._requests < 0:
            self._start()
        with socket.socket(fileno=os.dup(self._requests)) as requests:
            socket.send_fds(requests, [b"c"], fds)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._pid = _spawn(theirs.fileno())
            self._owner = os.getpid()
            self._requests = ours.detach()

    def _forget(self) -> None:
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, os.WNOHANG)


def _spawn(requests: int) -> int:
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


_launcher = _Launcher()


def hand_over(fds: list[int]) -> None:
    """A keeper's end of its socket, and what else belongs to its command."""
    _launcher.hand_over(fds)

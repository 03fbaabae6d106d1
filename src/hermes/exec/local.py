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
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.exec.capture import Capture
from hermes.exec.launcher import ENDED, FAILED, FRAME, GRACE, HEADER

if TYPE_CHECKING:
    from hermes.exec.sandbox import Policy, Tier

MAX_COMMAND = 128 * 1024 - 1
"""Bytes in one argument of a program; the limit of the Linux kernel."""
_LAST_WORDS = 0.25
"""Seconds left to a command's background processes to finish writing once it has ended."""
_CHUNK = 64 * 1024
_PIPE = 1024 * 1024
"""The most a pipe can hold."""
_LOST = "Contact with the command was lost: it was killed, or never ran. Check before repeating it."
_BOOT = "import sys; sys.path.append(sys.argv[1]); from hermes.exec.launcher import main; main()"


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
    """How that is enforced; None: as strongly as this machine can."""
    stdin: int = -1
    """Descriptor of its standard input, which stays the caller's; -1: there is nothing to read."""


async def run(command: Command, out: Capture, err: Capture | None = None) -> Outcome:
    """Run to the end, feeding `out` (and `err`; without it both streams are one).

    Raises ToolError when nothing could be started. When it is cancelled or out of time it returns
    with every process of the command dead: TERM first, KILL after 1.5 s.
    """
    request = await _request(command)
    child = _Child([out] if err is None else [out, err])
    try:
        async with asyncio.timeout(command.timeout):
            await child.begin(request, command.stdin)
            status, left = await asyncio.shield(child.ended)
        await child.last_words()
        return Outcome(status, left)
    except TimeoutError:
        return Outcome(None)
    except OSError as error:
        raise ToolError(f"No process could be started: {error.strerror}.") from error
    except _NotStarted as failure:
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
    for child in [c for c in _left_running if c.gone.get_loop() is loop]:
        child.hang_up()
        await child.end()


async def _request(command: Command) -> bytes:
    argv: Sequence[str] = _argv(command.text)
    env, box = command.env, None
    if command.policy:
        from hermes.exec.sandbox import probe, wrap

        tier = command.tier or await probe()
        launch = wrap(argv, command.policy, tier, env=env, cwd=command.cwd)
        argv, env, box = launch.argv, launch.env, launch.box
    names = {os.fsencode(k): os.fsencode(v) for k, v in env.items()}
    parts = [os.fsencode(part) for part in argv]
    instructions = {**(box or {}), "stdin": command.stdin >= 0}
    body = marshal.dumps((parts, os.fsencode(command.cwd), names, instructions))
    return HEADER.pack(len(body)) + body


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


class _NotStarted(ToolError):
    """What the program itself said about it may still be in the pipes."""


class _Child:
    """One command under its keeper, from this side of their socket."""

    def __init__(self, captures: list[Capture]) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[tuple[int, int]] = self._loop.create_future()
        """Its status, and how many processes it left."""
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when none of its processes lives."""
        self._silent: asyncio.Future[None] = self._loop.create_future()
        self._frames = b""
        self._left = 0
        self._captures = captures
        self._readers: dict[int, Capture | None] = {}
        self._control: socket.socket | None = None

    async def begin(self, request: bytes, stdin: int = -1) -> None:
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        writers: list[int] = []
        try:
            for capture in self._captures:
                reader, writer = os.pipe()
                os.set_blocking(reader, False)
                self._readers[reader] = capture
                writers.append(writer)
            given = [stdin] if stdin >= 0 else []
            _launcher.hand_over([theirs.fileno(), *writers, *given])
        finally:
            theirs.close()
            for writer in writers:
                os.close(writer)
        self._loop.add_reader(self._control, self._on_frame)
        for reader in self._readers:
            self._loop.add_reader(reader, self._on_output, reader)
        with contextlib.suppress(ConnectionError):  # then the other end says what happened
            await self._loop.sock_sendall(self._control, request)

    async def last_words(self) -> None:
        """What was written before the end is in the pipes; what background processes still write
        is waited for only a moment."""
        await asyncio.wait([self._silent], timeout=_LAST_WORDS)

    def hang_up(self) -> None:
        """Tell the keeper to end everything."""
        self._left = 0
        if self._control:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)

    async def end(self) -> None:
        """Unless the command has ended by itself, end it and wait until nothing of it is left."""
        if self._control is None or self.gone.done() or (self.ended.done() and self._left):
            return
        self.hang_up()
        await asyncio.wait([self.gone], timeout=GRACE + 1)

    def release(self) -> None:
        """Let go of everything, except of what the command left running: that is kept from
        blocking on its output, and ends when we do."""
        for reader in list(self._readers):
            self._drain(reader)
        if self._left and not self.gone.done():
            self._readers = dict.fromkeys(self._readers)
            _left_running.add(self)
        else:
            self._close()

    def _close(self) -> None:
        _left_running.discard(self)
        for reader in list(self._readers):
            self._hush(reader)
        if self._control:
            self._loop.remove_reader(self._control)
            self._control.close()
            self._control = None

    def _on_frame(self) -> None:
        assert self._control
        try:
            data = self._control.recv(256)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        self._frames += data
        while len(self._frames) >= FRAME.size:
            kind, first, second = FRAME.unpack(self._frames[: FRAME.size])
            self._frames = self._frames[FRAME.size :]
            if kind == ENDED:
                self._left = second
                self.ended.set_result((first, second))
            elif kind == FAILED:
                self.ended.set_exception(_NotStarted(_why(first, second)))
        if not data:
            self._on_hang_up()

    def _on_hang_up(self) -> None:
        if not self.ended.done():
            self.ended.set_exception(ToolError(_LOST))
        self.ended.exception()
        self.gone.set_result(None)
        if self in _left_running:
            self._close()
        elif self._control:
            self._loop.remove_reader(self._control)

    def _on_output(self, reader: int) -> bool:
        """Take one chunk; whether there may be more."""
        try:
            data = os.read(reader, _CHUNK)
        except BlockingIOError:
            return False
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


def _why(number: int, at_fault: int) -> str:
    what = ("shell", "working directory", "sandbox")[at_fault]
    return f"The {what} cannot be used{f': {os.strerror(number)}' if number else ''}."


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
    root = Path(__file__).parents[2]
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

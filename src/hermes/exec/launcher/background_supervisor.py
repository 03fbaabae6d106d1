"""The keeper's side of a command in the background: its log, its input, who may ask for what."""

# Only the standard library: the launcher runs without anything else. The lock on the folder is held
# as long as the keeper lives, so whoever wants to know that asks the kernel and no process number.

# ruff: noqa: PTH104, PTH108
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time

from hermes.exec.launcher.protocol import (
    ANSWER,
    CLOSE,
    END,
    ENDED,
    FRAME,
    INPUT_LIMIT,
    KILL,
    LOCK,
    MAX_OPERATION,
    OPERATION,
    SEGMENT,
    SEGMENT_SIZE,
    SOCKET,
    TOKEN,
    WRITE,
    DeskPlan,
    Why,
)
from hermes.exec.launcher.pty import END_OF_INPUT, open_terminal

_LAST_SEGMENTS = 2
_VISITORS = 16
_CHUNK = 64 * 1024
_DRAIN = 1024 * 1024


class Log:
    """The first and the last segments of an output: whatever is fed, the disk holds three."""

    def __init__(self) -> None:
        self._at = 0
        self._fd = -1
        self._room = 0
        self._kept: list[str] = []

    def feed(self, data: bytes) -> None:
        """What cannot be written is a gap: the positions of the rest stay right."""
        view = memoryview(data)
        while view:
            try:
                if not self._room:
                    self._next()
                size = os.write(self._fd, view[: self._room])
            except OSError:
                self._at += len(view)
                self._room = 0
                return
            self._at += size
            self._room -= size
            view = view[size:]

    def _next(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        name = f"{SEGMENT}{self._at}"
        self._fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._room = SEGMENT_SIZE
        self._kept.append(name)
        while len(self._kept) > 1 + _LAST_SEGMENTS:
            os.unlink(self._kept.pop(1))


class _Visitor:
    """A connection, and what came over it so far."""

    def __init__(self, line: socket.socket, *, known: bool) -> None:
        self.line = line
        self.known = known
        self.received = b""
        line.setblocking(False)


class Desk:
    """Works in the folder of its command, so that paths are short enough for a socket."""

    def __init__(self, plan: DeskPlan, control: socket.socket, *, pty: bool) -> None:
        os.chdir(plan["folder"])
        self._lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # who looks whether we live has it for a moment
        self._plan = plan
        self._agent = _Visitor(control, known=True)
        self._visitors = [self._agent]
        self._listener = _listen() if plan["keep"] else None
        self._log = Log()
        self._why: Why = ""
        self._end: tuple[int, Why] | None = None
        self._stop = False
        self._pty = pty
        self._pending = bytearray()
        self._closing = False
        self.input, self.output = -1, -1
        """The command's ends."""
        if pty:
            self._reader, self.output = open_terminal()
            self._writer = self._reader
            self.input = self.output
        else:
            self._reader, self.output = os.pipe()
            self.input, self._writer = os.pipe()
            os.set_blocking(self._reader, False)
            os.set_blocking(self._writer, False)

    def entered(self) -> None:
        """The command has its ends: ours of them must not keep the streams open."""
        for fd in {self.input, self.output}:
            os.close(fd)

    def watched(self) -> tuple[list[int], list[int]]:
        """What to wait for until it can be read, and until it can be written."""
        readers = [v.line.fileno() for v in self._visitors]
        readers += [self._reader] if self._reader >= 0 else []
        readers += [self._listener.fileno()] if self._listener else []
        return readers, [self._writer] if self._pending and self._writer >= 0 else []

    def serve(self, ready: list[int], writable: list[int]) -> bool:
        """Do what can be done now. Whether the command is to be ended."""
        if self._reader in ready:
            self._read()
        if writable:
            self._write()
        for visitor in [v for v in self._visitors if v.line.fileno() in ready]:
            self._hear(visitor)
        if self._listener and self._listener.fileno() in ready:
            self._welcome()
        return self._stop

    def ended(self, status: int, left: int) -> None:
        """What it wrote is kept before its end is told."""
        self._drain()
        self.record(status, why=self._why, left=left)
        self._stop_writing()
        for visitor in list(self._visitors):
            if visitor.known:
                self._tell(visitor, FRAME.pack(ENDED, status, left))

    def record(self, status: int, *, why: Why, left: int = 0) -> None:
        self._end = (status, why)
        text = f'{{"status":{status},"why":"{why}","at":{time.time():.3f},"left":{left}}}\n'
        with contextlib.suppress(OSError):
            fd = os.open(f"{END}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(fd)
            os.rename(f"{END}.new", END)

    def close(self) -> None:
        """Nothing of the command is left, and what it left behind has nobody to write to."""
        self._drain()
        if self._end and os.path.exists(END):  # noqa: PTH110
            self.record(self._end[0], why=self._end[1])
        if self._listener:
            with contextlib.suppress(OSError):
                os.unlink(SOCKET)

    # -- output and input ------------------------------------------------------------------

    def _drain(self) -> None:
        """What is in the pipe now; not what somebody goes on writing."""
        for _ in range(_DRAIN // _CHUNK):
            if not self._read():
                return

    def _read(self) -> bool:
        """Take one chunk; whether there may be more."""
        if self._reader < 0:
            return False
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # how a terminal says that nobody is left
            data = b""
        if data:
            self._log.feed(data)
            return True
        if self._writer == self._reader:
            self._writer = -1
        os.close(self._reader)
        self._reader = -1
        return False

    def _write(self) -> None:
        try:
            size = os.write(self._writer, self._pending)
        except BlockingIOError:
            return
        except OSError:
            self._stop_writing()
            return
        del self._pending[:size]
        if self._closing and not self._pending:
            self._stop_writing()

    def _stop_writing(self) -> None:
        self._pending.clear()
        if self._writer >= 0 and self._writer != self._reader:
            os.close(self._writer)
        self._writer = -1

    # -- who asks --------------------------------------------------------------------------

    def _welcome(self) -> None:
        assert self._listener
        with contextlib.suppress(OSError):
            line, _ = self._listener.accept()
            self._visitors.append(_Visitor(line, known=False))
            if len(self._visitors) > _VISITORS:
                self._leave(next(v for v in self._visitors if v is not self._agent))

    def _hear(self, visitor: _Visitor) -> None:
        try:
            data = visitor.line.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._leave(visitor)
            return
        visitor.received += data
        while len(visitor.received) >= OPERATION.size:
            kind, size = OPERATION.unpack_from(visitor.received)
            if size > (MAX_OPERATION if visitor.known else 256):
                self._leave(visitor)
                return
            end = OPERATION.size + size
            if len(visitor.received) < end:
                return
            body = visitor.received[OPERATION.size : end]
            visitor.received = visitor.received[end:]
            if not self._operate(visitor, kind, body):
                self._leave(visitor)
                return

    def _operate(self, visitor: _Visitor, kind: bytes, body: bytes) -> bool:
        """False: this visitor is not served."""
        if not visitor.known:
            from hmac import compare_digest

            visitor.known = kind == TOKEN and compare_digest(body, self._plan["token"])
            if visitor.known and self._end:
                self._tell(visitor, FRAME.pack(ENDED, self._end[0], 0))
            return visitor.known
        result = 0
        if kind == WRITE:
            result = self._take(body)
        elif kind == CLOSE:
            result = self._take(END_OF_INPUT) if self._pty else self._finish()
        elif kind == KILL:
            self._why = self._why or "killed"
            self._stop = True
        self._tell(visitor, FRAME.pack(ANSWER, result, len(self._pending)))
        return True

    def _take(self, body: bytes) -> int:
        if self._writer < 0 or self._closing:
            return errno.EPIPE
        if len(self._pending) + len(body) > INPUT_LIMIT:
            return errno.EAGAIN
        self._pending += body
        self._write()
        return 0 if self._writer >= 0 else errno.EPIPE

    def _finish(self) -> int:
        if self._writer < 0:
            return errno.EPIPE
        self._closing = True
        if not self._pending:
            self._stop_writing()
        return 0

    def _tell(self, visitor: _Visitor, frame: bytes) -> None:
        try:
            visitor.line.sendall(frame)
        except OSError:  # gone, or it does not listen
            self._leave(visitor)

    def _leave(self, visitor: _Visitor) -> None:
        if visitor not in self._visitors:
            return
        self._visitors.remove(visitor)
        if visitor is not self._agent:
            visitor.line.close()
        elif not self._plan["keep"]:  # its line is closed by our end: then nothing is left
            self._why = self._why or "agent"
            self._stop = True


def _listen() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        listener.bind(SOCKET)
    finally:
        os.umask(mask)
    listener.setblocking(False)
    listener.listen(8)
    return listener

"""What the supervisor of a background command does besides: log, input, requests of agents."""

# Only the standard library: the launcher runs without anything else. The lock on the folder is held
# as long as the supervisor lives, so others find out from the kernel instead of by process number.

# ruff: noqa: PTH104, PTH108
import contextlib
import errno
import fcntl
import os
import socket
import time

from hermes.exec.launcher import protocol
from hermes.exec.launcher.pty import END_OF_INPUT, open_terminal

_LAST_SEGMENTS = 2
_MAX_CONNECTIONS = 16
_CHUNK = 64 * 1024
_DRAIN_LIMIT = 1024 * 1024


class OutputLog:
    """Keeps the first and the last two segments of an output, however much is written."""

    def __init__(self) -> None:
        self._position = 0
        self._fd = -1
        self._room = 0
        self._segments: list[str] = []

    def feed(self, data: bytes) -> None:
        """Append; data that cannot be written becomes a gap, and later positions stay right."""
        view = memoryview(data)
        while view:
            try:
                if not self._room:
                    self._open_segment()
                size = os.write(self._fd, view[: self._room])
            except OSError:
                self._position += len(view)
                self._room = 0
                return
            self._position += size
            self._room -= size
            view = view[size:]

    def _open_segment(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        name = f"{protocol.SEGMENT_PREFIX}{self._position}"
        self._fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._room = protocol.SEGMENT_SIZE
        self._segments.append(name)
        while len(self._segments) > 1 + _LAST_SEGMENTS:
            os.unlink(self._segments.pop(1))


class _Connection:
    """A connection of an agent, and the data received so far."""

    def __init__(self, sock: socket.socket, *, authenticated: bool) -> None:
        self.socket = sock
        self.authenticated = authenticated
        self.received = b""
        sock.setblocking(False)


class BackgroundSupervisor:
    """Its working folder is the command's, so that the path of the socket is short enough."""

    def __init__(self, plan: protocol.BackgroundPlan, control: socket.socket, *, pty: bool) -> None:
        os.chdir(plan["folder"])
        self._lock = os.open(protocol.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # whoever checks whether we live holds it briefly
        self._plan = plan
        self._agent = _Connection(control, authenticated=True)
        self._connections = [self._agent]
        self._listener = _open_listener() if plan["keep"] else None
        self._log = OutputLog()
        self._end_cause: protocol.EndCause = ""
        self._end: tuple[int, protocol.EndCause] | None = None
        self._stop = False
        self._pty = pty
        self._pending = bytearray()
        self._closing = False
        self.input, self.output = -1, -1
        """The command's ends of its streams."""
        if pty:
            self._reader, self.output = open_terminal()
            self._writer = self._reader
            self.input = self.output
        else:
            self._reader, self.output = os.pipe()
            self.input, self._writer = os.pipe()
            os.set_blocking(self._reader, False)
            os.set_blocking(self._writer, False)

    def close_command_ends(self) -> None:
        """Close our copies of the command's ends, or they would keep the streams open."""
        for fd in {self.input, self.output}:
            os.close(fd)

    def list_descriptors(self) -> tuple[list[int], list[int]]:
        """Descriptors to wait for: until readable, and until writable."""
        readers = [c.socket.fileno() for c in self._connections]
        readers += [self._reader] if self._reader >= 0 else []
        readers += [self._listener.fileno()] if self._listener else []
        return readers, [self._writer] if self._pending and self._writer >= 0 else []

    def serve_ready(self, ready: list[int], writable: list[int]) -> bool:
        """Serve the ready descriptors. True when the command is to be ended."""
        if self._reader in ready:
            self._read_output()
        if writable:
            self._write_input()
        for connection in [c for c in self._connections if c.socket.fileno() in ready]:
            self._receive_operations(connection)
        if self._listener and self._listener.fileno() in ready:
            self._accept_connection()
        return self._stop

    def report_end(self, status: int, left: int) -> None:
        """Save the remaining output, record the end, then tell all connected agents."""
        self._drain_output()
        self.record_end(status, why=self._end_cause, left=left)
        self._close_input()
        for connection in list(self._connections):
            if connection.authenticated:
                self._send_frame(connection, protocol.FRAME.pack(protocol.ENDED, status, left))

    def record_end(self, status: int, *, why: protocol.EndCause, left: int = 0) -> None:
        """Write the end of the command to disk; `left` processes of it still run."""
        self._end = (status, why)
        text = f'{{"status":{status},"why":"{why}","at":{time.time():.3f},"left":{left}}}\n'
        new = f"{protocol.END}.new"
        with contextlib.suppress(OSError):
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(fd)
            os.rename(new, protocol.END)

    def close(self) -> None:
        """Save the remaining output, record that no process is left, remove the socket."""
        self._drain_output()
        if self._end and os.path.exists(protocol.END):  # noqa: PTH110
            self.record_end(self._end[0], why=self._end[1])
        if self._listener:
            with contextlib.suppress(OSError):
                os.unlink(protocol.SOCKET)

    def _drain_output(self) -> None:
        """Read what is in the pipe now, but not what is still being written."""
        for _ in range(_DRAIN_LIMIT // _CHUNK):
            if not self._read_output():
                return

    def _read_output(self) -> bool:
        """Read one chunk; True when there may be more."""
        if self._reader < 0:
            return False
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # how a terminal signals end of file
            data = b""
        if data:
            self._log.feed(data)
            return True
        if self._writer == self._reader:
            self._writer = -1
        os.close(self._reader)
        self._reader = -1
        return False

    def _write_input(self) -> None:
        try:
            size = os.write(self._writer, self._pending)
        except BlockingIOError:
            return
        except OSError:
            self._close_input()
            return
        del self._pending[:size]
        if self._closing and not self._pending:
            self._close_input()

    def _close_input(self) -> None:
        self._pending.clear()
        if self._writer >= 0 and self._writer != self._reader:
            os.close(self._writer)
        self._writer = -1

    def _accept_connection(self) -> None:
        assert self._listener
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            self._connections.append(_Connection(sock, authenticated=False))
            if len(self._connections) > _MAX_CONNECTIONS:
                self._drop_connection(next(c for c in self._connections if c is not self._agent))

    def _receive_operations(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop_connection(connection)
            return
        connection.received += data
        while len(connection.received) >= protocol.OPERATION.size:
            kind, size = protocol.OPERATION.unpack_from(connection.received)
            if size > (protocol.MAX_OPERATION if connection.authenticated else 256):
                self._drop_connection(connection)
                return
            end = protocol.OPERATION.size + size
            if len(connection.received) < end:
                return
            body = connection.received[protocol.OPERATION.size : end]
            connection.received = connection.received[end:]
            if not self._perform_operation(connection, kind, body):
                self._drop_connection(connection)
                return

    def _perform_operation(self, connection: _Connection, kind: bytes, body: bytes) -> bool:
        """Carry out one operation; False when the connection must be dropped."""
        if not connection.authenticated:
            from hmac import compare_digest

            connection.authenticated = kind == protocol.TOKEN and compare_digest(
                body, self._plan["token"]
            )
            if connection.authenticated and self._end:
                self._send_frame(connection, protocol.FRAME.pack(protocol.ENDED, self._end[0], 0))
            return connection.authenticated
        result = 0
        if kind == protocol.WRITE:
            result = self._queue_input(body)
        elif kind == protocol.CLOSE:
            result = self._queue_input(END_OF_INPUT) if self._pty else self._finish_input()
        elif kind == protocol.KILL:
            self._end_cause = self._end_cause or "killed"
            self._stop = True
        self._send_frame(
            connection, protocol.FRAME.pack(protocol.ANSWER, result, len(self._pending))
        )
        return True

    def _queue_input(self, body: bytes) -> int:
        if self._writer < 0 or self._closing:
            return errno.EPIPE
        if len(self._pending) + len(body) > protocol.INPUT_LIMIT:
            return errno.EAGAIN
        self._pending += body
        self._write_input()
        return 0 if self._writer >= 0 else errno.EPIPE

    def _finish_input(self) -> int:
        if self._writer < 0:
            return errno.EPIPE
        self._closing = True
        if not self._pending:
            self._close_input()
        return 0

    def _send_frame(self, connection: _Connection, frame: bytes) -> None:
        try:
            connection.socket.sendall(frame)
        except OSError:  # closed, or not reading
            self._drop_connection(connection)

    def _drop_connection(self, connection: _Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        if connection is not self._agent:
            connection.socket.close()
        elif not self._plan["keep"]:  # ours closes with this process, when nothing is left
            self._end_cause = self._end_cause or "agent"
            self._stop = True


def _open_listener() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        listener.bind(protocol.SOCKET)
    finally:
        os.umask(mask)
    listener.setblocking(False)
    listener.listen(8)
    return listener

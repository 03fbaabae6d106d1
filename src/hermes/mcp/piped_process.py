"""Programs that talk to the agent over their standard input and output as long as both live."""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hermes.core.errors import ToolError
from hermes.exec.process.local import CommandSpec, build_request, connect_supervisor
from hermes.exec.process.supervisor_client import SupervisorConnection

_CLOSE_SECONDS = 2.0
"""Seconds to end after its input was closed, and after TERM."""
_KILL_SECONDS = 4.0
_START_SECONDS = 30.0


class PipedProcess:
    """Everything the program starts ends with it: when it is closed here, and also when this
    process is killed."""

    def __init__(self, connection: SupervisorConnection, limit: int) -> None:
        self.reader = asyncio.StreamReader(limit=limit)
        self.writer: asyncio.StreamWriter
        self._connection = connection
        self._output: asyncio.ReadTransport
        self._errors: asyncio.ReadTransport

    @classmethod
    async def start(
        cls,
        argv: tuple[str, ...],
        *,
        cwd: Path,
        env: Mapping[str, str],
        limit: int,
        on_error_output: Callable[[bytes], None],
    ) -> "PipedProcess":
        """Start a program, by its full path. `limit`: most bytes of a line it may write. ToolError
        when it cannot be started."""
        request = build_request(CommandSpec(argv, cwd, env, 0.0, stdin=0), grace=_CLOSE_SECONDS)
        with ExitStack() as undo, ExitStack() as lent:
            ends = [_open_pipe(undo, lent, writes=writes) for writes in (False, False, True)]
            try:
                # Its output, its error output and, last, its input.
                given = [far for _, far in ends]
                connection = connect_supervisor(CommandSpec(argv, cwd, env, 0.0), given)
            except OSError as error:
                raise ToolError(f"No process could be started: {error.strerror}.") from error
            lent.close()
            undo.pop_all()
        process = cls(connection, limit)
        await process._connect_pipes([near for near, _ in ends], on_error_output)
        has_started = False
        try:
            await process._connection.send(request)
            await process._await_start()
            has_started = True
        finally:
            if not has_started:
                await asyncio.shield(process.close())
        return process

    async def _connect_pipes(
        self, ours: list[int], on_error_output: Callable[[bytes], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        output, errors, given = (
            os.fdopen(fd, mode, 0) for fd, mode in zip(ours, ("rb", "rb", "wb"), strict=True)
        )
        self._output, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.reader), output
        )
        self._errors, _ = await loop.connect_read_pipe(lambda: _Sink(on_error_output), errors)
        transport, flow = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(), given
        )
        self.writer = asyncio.StreamWriter(transport, flow, None, loop)

    async def _await_start(self) -> None:
        connection = self._connection
        watched: list[asyncio.Future[Any]] = [connection.started, connection.ended]
        await asyncio.wait(watched, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if connection.started.done():
            return
        why = connection.ended.exception() if connection.ended.done() else None
        raise ToolError(str(why or "It did not start in time."))

    async def close(self) -> None:
        """End the program and everything it started: its input is closed, TERM follows after 2 s
        and KILL after 2 more. Nothing of it is left when this returns."""
        connection = self._connection
        if not self.writer.transport.is_closing():
            self.writer.transport.abort()
        # It may be writing, and would not see the end of its input before somebody reads that.
        self._output.set_protocol(_Sink(lambda data: None))
        self._output.resume_reading()
        await asyncio.wait([connection.ended], timeout=_CLOSE_SECONDS)
        connection.hang_up()
        await asyncio.wait([connection.closed], timeout=_CLOSE_SECONDS + _KILL_SECONDS)
        connection.close()
        self._output.close()
        self._errors.close()


class _Sink(asyncio.Protocol):
    """Hands on what is read."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def data_received(self, data: bytes) -> None:
        self._take(data)


def _open_pipe(undo: ExitStack, lent: ExitStack, *, writes: bool) -> tuple[int, int]:
    """Our end of a pipe, which `undo` closes, and the other one, which `lent` closes."""
    reader, writer = os.pipe()
    near, far = (writer, reader) if writes else (reader, writer)
    undo.callback(os.close, near)
    lent.callback(os.close, far)
    os.set_blocking(near, False)
    return near, far

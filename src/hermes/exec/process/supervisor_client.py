"""The agent's connection to the supervisor of one command."""

import asyncio
import contextlib
import marshal
import os
import socket
from collections import deque
from typing import Any

from msgspec import Struct, structs

from hermes.core.errors import ToolError
from hermes.exec.launcher import protocol

_ANSWER_SECONDS = 10
"""Seconds to wait for an answer; a supervisor has little else to do."""
CONTACT_LOST = (
    "Contact with the command was lost: it was killed or never ran. Check before repeating it."
)


class CommandResult(Struct, frozen=True):
    """How a command ended. `status` is None when it was killed for taking too long."""

    status: int | None
    """Exit status, or minus the number of the signal that ended it."""
    left: int = 0
    """Processes it left running in the background; they end with the agent."""
    limit_hits: tuple[int, int] = (0, 0)
    """Processes killed for want of memory, and those that could not be started."""
    stopped: int = 0
    """Processes it had started that were ended with it, as always in namespaces."""
    refused: tuple[protocol.RefusedAddress, ...] = ()
    """Where it could not connect to because of the sandbox."""


class CommandNotStarted(ToolError):
    """The command was not started; its program's own message may still be in the pipes."""


class SupervisorConnection:
    """Turns the reports of a supervisor into futures; errors that nobody awaits are not logged."""

    def __init__(self, control: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[CommandResult] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done when none of its processes is left."""
        self._result = CommandResult(None)
        self._answers: deque[asyncio.Future[tuple[int, int]]] = deque()
        self._frames = b""
        self._control: socket.socket | None = control
        control.setblocking(False)
        self._loop.add_reader(control, self._on_frame)

    async def send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # the supervisor reports what happened
            if self._control:
                await self._loop.sock_sendall(self._control, data)

    async def request_operation(self, kind: bytes, body: bytes = b"") -> tuple[int, int]:
        """Request an operation: an errno or 0, and how many bytes of input are not read yet."""
        answer: asyncio.Future[tuple[int, int]] = self._loop.create_future()
        if self.closed.done() or not self._control:
            raise ToolError(CONTACT_LOST)
        self._answers.append(answer)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self.send(protocol.OPERATION.pack(kind, len(body)) + body)
                return await answer
        except TimeoutError:
            raise ToolError(
                f"The command's supervisor did not answer in {_ANSWER_SECONDS} s."
            ) from None

    def send_operation(self, kind: bytes) -> None:
        """Send an operation without waiting for the answer, if it can be sent at once."""
        if self._control:
            with contextlib.suppress(OSError):
                self._control.send(protocol.OPERATION.pack(kind, 0))

    def hang_up(self) -> None:
        """Make the supervisor end everything."""
        if self._control:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)

    def close(self) -> None:
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
        while len(self._frames) >= protocol.FRAME.size:
            kind, first, second = protocol.FRAME.unpack_from(self._frames)
            end = protocol.FRAME.size + (first if kind == protocol.DETAILS else 0)
            if len(self._frames) < end:
                break
            body, self._frames = self._frames[protocol.FRAME.size : end], self._frames[end:]
            if kind == protocol.DETAILS:
                hits, stopped, refused = marshal.loads(body)
                addresses = tuple(protocol.RefusedAddress(*address) for address in refused)
                self._result = CommandResult(None, 0, hits, stopped, addresses)
            else:
                self._on_report(kind, first, second)
        if not data:
            self._on_hang_up()

    def _on_report(self, kind: bytes, first: int, second: int) -> None:
        if kind == protocol.STARTED:
            self.started.set_result(None)
        elif kind == protocol.ENDED and not self.ended.done():
            self.ended.set_result(structs.replace(self._result, status=first, left=second))
        elif kind == protocol.FAILED and not self.ended.done():
            self.ended.set_exception(CommandNotStarted(_explain_failure(first, second)))
            self.ended.exception()
        elif kind == protocol.ANSWER and self._answers:
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_result((first, second))

    def _on_hang_up(self) -> None:
        assert self._control
        self._loop.remove_reader(self._control)
        waiting: list[asyncio.Future[Any]] = [self.ended, *self._answers]
        for future in (f for f in waiting if not f.done()):
            future.set_exception(ToolError(CONTACT_LOST))
            future.exception()
        self._answers.clear()
        self.closed.set_result(None)


async def wait_first(*futures: asyncio.Future[Any], timeout: float | None = None) -> None:
    """Wait until one of them is done, or the time is over."""
    await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


def _explain_failure(number: int, at_fault: int) -> str:
    if at_fault == protocol.GRANT_REPLACED:
        return "A path was replaced after it was approved."
    what = ("shell", "working directory", "sandbox", "folder for its record")[at_fault]
    return f"The {what} cannot be used{f': {os.strerror(number)}' if number else ''}."

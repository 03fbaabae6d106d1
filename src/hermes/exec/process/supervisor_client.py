"""The agent's end of the socket to one keeper."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque

from hermes.core.errors import ToolError
from hermes.exec.launcher.protocol import ANSWER, ENDED, FAILED, FRAME, OPERATION, STARTED

_PATIENCE = 10
"""Seconds for an answer; a keeper has little else to do."""
LOST = "Contact with the command was lost: it was killed, or never ran. Check before repeating it."


class NotStarted(ToolError):
    """What the program itself said about it may still be in the pipes."""


class Line:
    """What the keeper reports becomes futures. An error nobody waits for is no news."""

    def __init__(self, control: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self.began: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[tuple[int, int]] = self._loop.create_future()
        """Its status, and how many processes it left."""
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when none of its processes lives."""
        self._answers: deque[asyncio.Future[tuple[int, int]]] = deque()
        self._frames = b""
        self._control: socket.socket | None = control
        control.setblocking(False)
        self._loop.add_reader(control, self._on_frame)

    async def send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # then the other end says what happened
            if self._control:
                await self._loop.sock_sendall(self._control, data)

    async def operate(self, kind: bytes, body: bytes = b"") -> tuple[int, int]:
        """Ask a desk for something: an error number or 0, and how much input is pending."""
        answer: asyncio.Future[tuple[int, int]] = self._loop.create_future()
        if self.gone.done() or not self._control:
            raise ToolError(LOST)
        self._answers.append(answer)
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.send(OPERATION.pack(kind, len(body)) + body)
                return await answer
        except TimeoutError:
            raise ToolError(f"The keeper of the command did not answer in {_PATIENCE} s.") from None

    def demand(self, kind: bytes) -> None:
        """The same without waiting for an answer, as far as it can be sent at once."""
        if self._control:
            with contextlib.suppress(OSError):
                self._control.send(OPERATION.pack(kind, 0))

    def hang_up(self) -> None:
        """Tell the keeper to end everything."""
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
        while len(self._frames) >= FRAME.size:
            kind, first, second = FRAME.unpack_from(self._frames)
            self._frames = self._frames[FRAME.size :]
            self._on_report(kind, first, second)
        if not data:
            self._on_hang_up()

    def _on_report(self, kind: bytes, first: int, second: int) -> None:
        if kind == STARTED:
            self.began.set_result(None)
        elif kind == ENDED and not self.ended.done():
            self.ended.set_result((first, second))
        elif kind == FAILED and not self.ended.done():
            self.ended.set_exception(NotStarted(_why(first, second)))
            self.ended.exception()
        elif kind == ANSWER and self._answers:
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_result((first, second))

    def _on_hang_up(self) -> None:
        assert self._control
        self._loop.remove_reader(self._control)
        if not self.ended.done():
            self.ended.set_exception(ToolError(LOST))
            self.ended.exception()
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(ToolError(LOST))
                answer.exception()
        self._answers.clear()
        self.gone.set_result(None)


def _why(number: int, at_fault: int) -> str:
    what = ("shell", "working directory", "sandbox", "folder for its record")[at_fault]
    return f"The {what} cannot be used{f': {os.strerror(number)}' if number else ''}."

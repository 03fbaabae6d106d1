"""Standard output and error for asynchronous code: a slow reader never blocks the event loop."""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys

_ATOMIC = 4096
"""A pipe that select calls writable takes this much without blocking."""


class ReaderGone(Exception):
    """Whoever read our output has closed it."""


class Output:
    """One file descriptor. `write` waits for a slow reader, `offer` rather drops its text."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.tty = os.isatty(number)
        self._patient = not stat.S_ISREG(os.fstat(number).st_mode)
        self._waiting: asyncio.Future[None] | None = None
        self._abandoned = False

    async def write(self, text: str) -> None:
        """Raises ReaderGone, or OSError when it cannot be written at all."""
        data = memoryview(text.encode("utf-8", "replace"))
        while data and not self._abandoned:
            if self._patient and not self._writable():
                await self._ready()
                continue
            data = data[self._put(data) :]

    def offer(self, text: str) -> None:
        if not self._patient or self._writable():
            try:
                os.write(self.number, text.encode("utf-8", "replace"))
            except OSError:
                return

    def abandon(self) -> None:
        """Give up on text nobody takes; later writes are dropped."""
        if self._waiting is not None:
            self._abandoned = True
            if not self._waiting.done():
                self._waiting.set_result(None)

    def _put(self, data: memoryview) -> int:
        try:
            return os.write(self.number, data[:_ATOMIC] if self._patient else data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise ReaderGone from None

    def _writable(self) -> bool:
        return bool(select.select((), (self.number,), (), 0)[1])

    async def _ready(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        loop.add_writer(self.number, _wake, self._waiting)
        try:
            await self._waiting
        finally:
            loop.remove_writer(self.number)
            self._waiting = None


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def ask(question: str) -> bool:
    """A yes-or-no question on the terminal; plain Enter and end of input mean no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")

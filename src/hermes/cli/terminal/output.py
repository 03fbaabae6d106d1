"""Standard output and error for asynchronous code: a slow reader never blocks the event loop."""

import asyncio
import os
import select
import stat

_ATOMIC = 4096
"""Bytes that a pipe reported as writable takes without blocking."""


class ReaderGone(Exception):
    """The reader of the output has closed it."""


class Output:
    """One file descriptor: `write` waits for a slow reader, `offer` drops the text instead."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.tty = os.isatty(number)
        self._can_block = not stat.S_ISREG(os.fstat(number).st_mode)
        self._waiter: asyncio.Future[None] | None = None
        self._abandoned = False

    async def write(self, text: str) -> None:
        """Raises ReaderGone, or OSError when writing is not possible at all."""
        data = memoryview(text.encode("utf-8", "replace"))
        while data and not self._abandoned:
            if self._can_block and not self._is_writable():
                await self._wait_writable()
                continue
            data = data[self._write_some(data) :]

    def offer(self, text: str) -> None:
        if not self._can_block or self._is_writable():
            try:
                os.write(self.number, text.encode("utf-8", "replace"))
            except OSError:
                return

    def abandon(self) -> None:
        """Gives up on a write that nobody reads; later writes are dropped."""
        if self._waiter is not None:
            self._abandoned = True
            self._wake_writer()

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self.number, data[:_ATOMIC] if self._can_block else data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise ReaderGone from None

    def _is_writable(self) -> bool:
        return bool(select.select((), (self.number,), (), 0)[1])

    async def _wait_writable(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        loop.add_writer(self.number, self._wake_writer)
        try:
            await self._waiter
        finally:
            loop.remove_writer(self.number)
            self._waiter = None

    def _wake_writer(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

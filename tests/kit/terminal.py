"""The program on a terminal of its own, for what it only does when somebody sits there."""

from __future__ import annotations

import asyncio
import os
import pty
import signal

from tests.kit.home import Home, program


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, home: Home, *words: str, term: str = "xterm") -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(home.work)
            argv = [*program(), *words]
            os.execve(argv[0], argv, {**home.env, "TERM": term})
        self.seen = ""

    async def until(self, text: str, *, pressing: str = "") -> None:
        """Read until the text is seen; `pressing` is pressed once a second, as people press Ctrl-C
        again: Python misses a signal that comes just before it begins to read."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(90):
                while text not in self.seen:
                    reading = loop.run_in_executor(None, self._read)
                    while pressing and not (await asyncio.wait([reading], timeout=1))[0]:
                        self.type(pressing)
                    data = await reading
                    assert data, f"it ended: {self.seen!r}"
                    self.seen += data
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)  # ends the read that still waits
            raise AssertionError(f"never seen: {text!r} in {self.seen!r}") from None

    def _read(self) -> str:
        try:
            return os.read(self.fd, 4096).decode("utf-8", "replace")
        except OSError:
            return ""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    async def end(self) -> int:
        loop = asyncio.get_running_loop()
        while data := await loop.run_in_executor(None, self._read):
            self.seen += data
        _, code = await loop.run_in_executor(None, os.waitpid, self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(code)

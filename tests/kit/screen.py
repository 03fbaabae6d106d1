"""The program on a pseudo-terminal: keys go in, an emulator says what is on the screen."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pyte

from tests.kit.home import Home, program

ENTER, ESCAPE, TAB, UP, DOWN = "\r", "\x1b", "\t", "\x1b[A", "\x1b[B"
CTRL_C, CTRL_D, CTRL_T, ALT_ENTER = "\x03", "\x04", "\x14", "\x1b\r"
_FRAME_END = b"\x1b[?2026l"
"""Ends a picture that the program has drawn as a whole."""


class Terminal:
    """One running program. `raw` is everything it has written; `screen` and `scrollback` are what
    a person sees of it."""

    def __init__(
        self, process: asyncio.subprocess.Process, master: int, device: str, size: tuple[int, int]
    ) -> None:
        self.process = process
        self._device = device
        self.raw = bytearray()
        self._master = master
        self._screen = pyte.HistoryScreen(*size, history=50_000, ratio=0.01)
        self._stream = pyte.ByteStream(self._screen)
        self._fed = 0
        self._changed = asyncio.Event()
        self.ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
            self.ended.set()
        self.raw += data
        self._changed.set()

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def paste(self, text: str) -> None:
        """As a terminal does it; a long one in pieces, because the line to the program is short."""
        await self.send(f"\x1b[200~{text}\x1b[201~".encode())

    async def send(self, data: bytes) -> None:
        """No faster than the program reads."""
        os.set_blocking(self._master, False)
        while data:
            try:
                data = data[os.write(self._master, data[:4096]) :]
            except BlockingIOError:
                await asyncio.sleep(0.002)
        os.set_blocking(self._master, True)

    async def all_read(self) -> None:
        """Until the program has read everything that was typed."""
        count = bytearray(4)
        slave = os.open(self._device, os.O_RDONLY | os.O_NOCTTY)
        try:
            async with asyncio.timeout(90):
                while fcntl.ioctl(slave, termios.FIONREAD, count) or any(count):
                    await asyncio.sleep(0.001)
        finally:
            os.close(slave)

    def resize(self, columns: int, rows: int) -> None:
        self._feed()
        self._screen.resize(rows, columns)
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def hang_up(self) -> None:
        """The window is closed."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._master)
        os.close(self._master)
        self._master = -1

    def _feed(self) -> None:
        for _ in self._frames():
            pass

    def _frames(self) -> Iterator[None]:
        """Draws what has come in, one picture after the other."""
        while self._fed < len(self.raw):
            end = self.raw.find(_FRAME_END, self._fed)
            end = len(self.raw) if end < 0 else end + len(_FRAME_END)
            new = bytes(self.raw[self._fed : end]).replace(b"\x1b[<u", b"")  # pyte prints the u
            self._fed = end
            self._stream.feed(new)
            yield

    @property
    def screen(self) -> str:
        self._feed()
        return "\n".join(self._list_lines()).rstrip()

    def _list_lines(self) -> list[str]:
        """What is on the screen; pyte's own list fails on half of a wide character."""
        columns, buffer = range(self._screen.columns), self._screen.buffer
        rows = (buffer[y] for y in range(self._screen.lines))
        return ["".join(row[x].data for x in columns).rstrip() for row in rows]

    def _shows(self, text: str) -> bool:
        """Whether it is in the picture, also where the end of a line cuts it in two."""
        lines = self._list_lines()
        columns = self._screen.columns
        joined = "".join(line if len(line) == columns else line + "\n" for line in lines)
        return text in "\n".join(lines) or text in joined

    def _has_shown(self, text: str) -> bool:
        """Whether it is in one of the pictures that have come since the last look, or still there:
        a hint that lasts a second may be gone when a busy machine looks."""
        pictures = [self._shows(text) for _ in self._frames()]
        return any(pictures or [self._shows(text)])

    @property
    def scrollback(self) -> list[str]:
        """Every line there is, from the first one on."""
        self._feed()
        columns = self._screen.columns
        above = [
            "".join(line[x].data for x in range(columns)).rstrip()
            for line in self._screen.history.top
        ]
        return above + self._list_lines()

    async def until(self, test: Callable[[], bool], what: str = "", timeout: float = 90) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not test():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"never seen: {what}\n--- screen ---\n{self.screen}") from None

    async def see(self, *texts: str, timeout: float = 90) -> None:
        """Until all of them have been on the screen."""
        for text in texts:
            await self.until(lambda t=text: self._has_shown(t), text, timeout)

    async def gone(self, text: str) -> None:
        await self.until(lambda: text not in self.screen, f"no {text}")

    async def leave(self, timeout: float = 90) -> int:
        """The exit status, when it has ended by itself."""
        try:
            async with asyncio.timeout(timeout):
                return await self.process.wait()
        except TimeoutError:
            raise AssertionError(f"still running\n--- screen ---\n{self.screen}") from None

    def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        if self._master >= 0:
            asyncio.get_running_loop().remove_reader(self._master)
            os.close(self._master)


@asynccontextmanager
async def terminal(
    home: Home,
    args: Sequence[str] = (),
    *,
    size: tuple[int, int] = (80, 24),
    env: dict[str, str] | None = None,
    ready: str = "Enter: send",
    cwd: Path | None = None,
) -> AsyncIterator[Terminal]:
    """The program on a terminal of its own, as its controlling one, when it takes messages."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def own() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = await asyncio.create_subprocess_exec(
        *program(), *args, cwd=cwd or home.work,
        env={**home.env, "TERM": "xterm-256color", **(env or {})},
        stdin=slave, stdout=slave, stderr=slave, preexec_fn=own,
    )  # fmt: skip
    device = os.ttyname(slave)
    os.close(slave)
    found = Terminal(process, master, device, size)
    try:
        if ready:
            await found.see(ready)
            await found.gone("starting")
        yield found
    finally:
        found.close()
        await process.wait()

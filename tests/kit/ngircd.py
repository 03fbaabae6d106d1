"""A real IRC server (ngircd) on loopback, and a person on it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

_CONFIG = """
[Global]
Name = irc.kit.local
Info = kit
Listen = 127.0.0.1
Ports = {port}
ServerUID = nobody
ServerGID = nogroup
PidFile =
{password}
[Limits]
PingTimeout = 60
PongTimeout = 20
[Options]
PAM = no
Ident = no
DNS = no
"""


@asynccontextmanager
async def ngircd(root: Path, port: int, *, password: str = "") -> AsyncIterator[None]:
    program = shutil.which("ngircd") or shutil.which("/usr/sbin/ngircd")
    if program is None:
        pytest.skip("ngircd is not installed")
    root.mkdir(exist_ok=True)
    root.chmod(0o755)
    config = root / "ngircd.conf"
    shown = f"Password = {password}" if password else ""
    config.write_text(_CONFIG.format(port=port, password=shown))
    config.chmod(0o644)
    with (root / "ngircd.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program, "-n", "-f", str(config), stdout=log, stderr=log
        )
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


class IrcUser:
    """A person's client, as plain as can be."""

    def __init__(self, nick: str, port: int, password: str = "") -> None:
        self.nick = nick
        self.lines: list[str] = []
        self._port = port
        self._password = password
        self._changed = asyncio.Condition()
        self._writer: asyncio.StreamWriter
        self._reading: asyncio.Task[None]

    async def connect(self) -> None:
        async with asyncio.timeout(90):
            while True:
                try:
                    reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
                    break
                except OSError:
                    await asyncio.sleep(0.1)
        self._reading = asyncio.create_task(self._read(reader))
        if self._password:
            self.send(f"PASS {self._password}")
        self.send(f"NICK {self.nick}")
        self.send(f"USER {self.nick} 0 * :A person")
        await self.until(" 422 ", " 376 ")

    def send(self, line: str) -> None:
        self._writer.write(line.encode() + b"\r\n")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while raw := await reader.readline():
            line = raw.decode().rstrip("\r\n")
            if line.startswith("PING"):
                self.send(line.replace("PING", "PONG", 1))
            async with self._changed:
                self.lines.append(line)
                self._changed.notify_all()

    async def until(self, *texts: str, timeout: float = 90) -> str:
        """The first line that has one of the texts."""

        def find() -> list[str]:
            return [line for line in self.lines if any(text in line for text in texts)]

        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(find)
        except TimeoutError:
            raise AssertionError(f"{texts} did not come; lines: {self.lines}") from None
        return find()[0]

    async def close(self) -> None:
        self._reading.cancel()
        self._writer.close()
        await asyncio.wait({self._reading})

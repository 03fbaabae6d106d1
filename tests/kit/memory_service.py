"""A memory provider on loopback that can be down, slow, wrong, broken and restarted."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

Call = tuple[str, dict[str, Any]]


class MemoryService:
    """`mood`: ok, silent (answers when it recovers), garbage (200, no JSON), broken (500), noise
    (no HTTP), drip (an answer that never ends), flood (one of many megabytes) or pieces (one that
    comes in parts). `accepted` are the calls it has confirmed, in order."""

    def __init__(self) -> None:
        self.mood = "ok"
        self.facts: list[dict[str, Any]] = []
        self.accepted: list[Call] = []
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.headers: list[str] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Condition()
        self._awake = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/memory"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    def recover(self) -> None:
        """Work again; what it was silent about is answered late."""
        self.mood = "ok"
        self._awake.set()

    def list_bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for called, body in self.accepted if called == path]

    async def wait_for(self, count: int, path: str) -> list[dict[str, Any]]:
        """The first calls of a path, as soon as there are so many."""
        async with asyncio.timeout(90), self._changed:
            await self._changed.wait_for(lambda: len(self.list_bodies(path)) >= count)
        return self.list_bodies(path)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.headers.append(head)
            fields = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head.splitlines()[1:])
            }
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            path = head.split()[1].removeprefix("/memory")
            await self._reply(writer, path, json.loads(body or b"{}"), fields)
        writer.close()

    async def _reply(
        self, writer: asyncio.StreamWriter, path: str, body: Any, fields: dict[str, str]
    ) -> None:
        if path == "/recall":
            self.asked.append(body)
        if self.mood == "silent":
            await self._awake.wait()
        if self.mood == "noise":
            writer.write(b"\x00\xffnot HTTP at all\r\n\r\n")
            return
        if self.mood in ("drip", "flood") and path == "/recall":
            await self._answer_forever(writer)
            return
        status, answer = 200, json.dumps({"facts": self.facts}).encode()
        if self.mood == "broken":
            status = 500
        elif self.mood == "garbage":
            answer = b"<html>no facts</html>"
        if status == 200 and path != "/recall":
            async with self._changed:
                self.accepted.append((path, body))
                self.keys.append(fields.get("idempotency-key", ""))
                self._changed.notify_all()
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(answer)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        if self.mood == "pieces" and path == "/recall":
            writer.write(answer[:100])
            await writer.drain()
            await asyncio.sleep(0.05)
            answer = answer[100:]
        writer.write(answer)
        await writer.drain()

    async def _answer_forever(self, writer: asyncio.StreamWriter) -> None:
        """Until the client has gone: a byte now and then, or as much as it takes."""
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 99999999999\r\n\r\n")
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b" " if self.mood == "drip" else bytes(1 << 20))
                await writer.drain()
                await asyncio.sleep(0.01)

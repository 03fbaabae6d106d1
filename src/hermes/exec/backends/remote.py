"""Runs commands through a client program whose far end neither gets signals nor dies with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from hermes.core.errors import ToolError
from hermes.exec.process.local import Command, Outcome, run
from hermes.exec.process.output_capture import Capture

LONG = 10.0**8
"""Seconds: as long as the agent lives."""
END_SECONDS = 12.0
"""Most that ending a command there may take."""
NOTHING = "Nothing was run."
_LAST_WORDS = 0.25
_SIDE = 64 * 1024
_PASSED_ON = re.compile(r"LANG|LANGUAGE|LC_[A-Z]+|TERM|TZ|NO_COLOR|COLUMNS|LINES|HERMES_CHILD")
"""Names of variables that mean the same everywhere and cannot hold a secret."""
_LOST = "{where}: contact with the command was lost. It was ended, or will be. Check its effects."
_LINE = re.compile(rb"\036([0-9a-z.]+) (started|folder|ended) (\d+) (\d+)\n")

Explain: TypeAlias = Callable[[str], str]
"""The sentence for what a client program complained about."""


def passed_on(env: Mapping[str, str]) -> list[str]:
    """NAME=value of the few variables that another place is told."""
    return [f"{name}={value}" for name, value in env.items() if _PASSED_ON.fullmatch(name)]


class Side:
    """What comes on the client's stderr: reports of our script, and its own complaints."""

    def __init__(self, folder: Path, mark: str) -> None:
        self._loop = asyncio.get_running_loop()
        self.started: asyncio.Future[int] = self._loop.create_future()
        """The process that runs it there; 0: there is no such folder."""
        self.ended: asyncio.Future[tuple[int, int]] = self._loop.create_future()
        self.capture = Capture(_SIDE, folder, name="client", watch=self._see)
        self.mark = mark
        self._rest = b""

    def _see(self, data: bytes) -> None:
        self._rest += data
        for found in _LINE.finditer(self._rest):
            if found[1] == self.mark.encode():
                self._report(found[2], int(found[3]), int(found[4]))
        self._rest = self._rest[-200:] if b"\036" in self._rest[-200:] else b""

    def _report(self, what: bytes, first: int, second: int) -> None:
        if what != b"ended" and not self.started.done():
            self.started.set_result(first)
        if what != b"started" and not self.ended.done():
            self.ended.set_result((first, second))

    def complaint(self) -> str:
        return re.sub(r"\x1e[^\n]*\n", "", self.capture.text()).strip()


class Tap(Capture):
    """Feeds another capture up to the mark that ends a command's output; the rest is dropped."""

    def __init__(self, into: Capture, mark: str) -> None:
        super().__init__(0, Path())
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._into = into
        self._mark = b"\036%s\n" % mark.encode()
        self._rest = b""

    def feed(self, data: bytes) -> None:
        if self.complete.done():
            return
        data = self._rest + data
        end = data.find(self._mark)
        if end >= 0:
            self._rest = data[:end]
            self.turn_off()
            return
        doubtful = data.rfind(b"\036", -len(self._mark))
        held = doubtful >= 0 and self._mark.startswith(data[doubtful:])
        data, self._rest = (data[:doubtful], data[doubtful:]) if held else (data, b"")
        if data:
            self._into.feed(data)

    def turn_off(self) -> None:
        if not self.complete.done():
            if self._rest:
                self._into.feed(self._rest)
            self.complete.set_result(None)


class Clients:
    """The client processes that are still there because something in the other place is."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Outcome]] = set()

    def start(self, client: Command, out: Capture, err: Capture) -> asyncio.Task[Outcome]:
        task = asyncio.get_running_loop().create_task(run(client, out, err))
        self._tasks.add(task)
        task.add_done_callback(self._gone)
        return task

    def _gone(self, task: asyncio.Task[Outcome]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))


class Vanished(ToolError):
    """The place was there before and is no more; nothing was run."""


class Call:
    """One command in the other place, from its start to its end there."""

    def __init__(self, clients: Clients, client: Command, mark: str, spill: Path) -> None:
        self._clients = clients
        self._client = client
        self.side = Side(spill, mark)

    async def run(
        self, out: Capture, *, seconds: float, end: Callable[[int], Awaitable[None]], where: str,
        explain: Explain, gone: str,
    ) -> Outcome:  # fmt: skip
        """`end` ends everything that belongs to this process there. Raises Vanished when nothing
        was run and the client says `gone`."""
        tap = Tap(out, self.side.mark)
        task = self._clients.start(self._client, tap, self.side.capture)
        try:
            async with asyncio.timeout(seconds):
                await _first(task, self.side.ended)
                if not self.side.ended.done() or self.side.started.result() == 0:
                    task.cancel()
                    complaint = self.side.complaint()
                    if not self.side.started.done() and re.search(gone, complaint, re.IGNORECASE):
                        raise Vanished(f"{explain(complaint)} {NOTHING}")
                    raise self._failure(task, where, explain)
                status, left = self.side.ended.result()
                await _first(task, tap.complete)
            if not left:
                task.cancel()
            return Outcome(status, left)
        except TimeoutError:
            await self._stop(task, end)
            return Outcome(None)
        except asyncio.CancelledError:
            await _at_last(self._stop(task, end))
            raise
        finally:
            tap.turn_off()
            self.side.capture.close()

    def _failure(self, task: asyncio.Task[Outcome], where: str, explain: Explain) -> ToolError:
        started = self.side.started
        if not started.done():
            error = None if task.cancelled() else task.exception()
            words = explain(self.side.complaint()) or str(error or "")
            return ToolError(f"{words} {NOTHING}".strip())
        if started.result() == 0:
            return ToolError(f"{where}: the folder does not exist there; nothing was run.")
        return ToolError(_LOST.format(where=where))

    async def _stop(
        self, task: asyncio.Task[Outcome], end: Callable[[int], Awaitable[None]]
    ) -> None:
        started = self.side.started
        await stop(task, end, started.result() if started.done() else 0)


async def on_terminal(
    task: asyncio.Task[Outcome], seconds: float, end: Callable[[int], Awaitable[None]]
) -> Outcome:
    """For a client with a terminal: that is its only stream, and its status the command's."""
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return task.result()
        await stop(task, end, 0)
        return Outcome(None)
    except asyncio.CancelledError:
        await _at_last(stop(task, end, 0))
        raise


async def stop(
    task: asyncio.Task[Outcome], end: Callable[[int], Awaitable[None]], root: int
) -> None:
    """First there, so that the last output arrives; then the client."""
    try:
        await end(root)
        await asyncio.wait({task}, timeout=_LAST_WORDS)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ToolError):
            await task


async def _first(*futures: asyncio.Future[Any], timeout: float | None = None) -> None:
    """Until one of them is done."""
    await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


async def _at_last(work: Awaitable[None]) -> None:
    """Finish although we are being cancelled, which must not be twice."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    if not task.cancelled():
        task.exception()


class Lifeline:
    """A client that runs as long as the agent: its far end waits for the end of its input, which
    comes when we close it and when the agent dies."""

    def __init__(self, spill: Path) -> None:
        self._spill = spill
        self._task: asyncio.Task[Outcome] | None = None
        self._reader = self._writer = -1
        self.greeting = ""

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    async def open(
        self, client: Callable[[int], Command], seconds: float, explain: Explain
    ) -> None:
        """`client` makes the command, given its input. Raises ToolError unless it says `ready`."""
        loop = asyncio.get_running_loop()
        greeted: asyncio.Future[str] = loop.create_future()
        heard = b""

        def hear(data: bytes) -> None:
            nonlocal heard
            heard = (heard + data)[-4000:]
            found = re.search(rb"^ready ?(.*)\n", heard, re.MULTILINE)
            if found and not greeted.done():
                greeted.set_result(found[1].decode("utf-8", "replace").strip())

        self._reader, self._writer = os.pipe()
        out = Capture(_SIDE, self._spill, name="client", watch=hear)
        err = Capture(_SIDE, self._spill, name="client")
        self._task = loop.create_task(run(client(self._reader), out, err))
        try:
            await _first(self._task, greeted, timeout=seconds)
            if not greeted.done():
                late = not self._task.done()
                await self.close()
                words = explain(err.text().strip())
                if late:
                    words = f"{explain('')} There was no answer within {seconds:g} s."
                raise ToolError(f"{words} {NOTHING}")
        except asyncio.CancelledError:
            await _at_last(self.close())
            raise
        self.greeting = greeted.result()

    async def close(self) -> None:
        task, self._task = self._task, None
        for fd in {self._reader, self._writer} - {-1}:
            os.close(fd)
        self._reader = self._writer = -1
        if task is None:
            return
        await asyncio.wait({task}, timeout=3)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ToolError):
            await task


async def ask(client: Command, spill: Path, seconds: float = 30) -> tuple[int, str, str]:
    """Run a client program to its end: status (-1: too slow), stdout, stderr."""
    out, err = Capture(_SIDE, spill), Capture(_SIDE, spill)
    try:
        outcome = await run(Command(client.text, client.cwd, client.env, seconds), out, err)
    finally:
        out.close()
        err.close()
    status = -1 if outcome.status is None else outcome.status
    return status, out.text().strip(), err.text().strip()

"""Runs commands through a client such as ssh, which forwards neither signals nor its own end."""

import asyncio
import contextlib
import os
import re
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import structs

from hermes.core.errors import ToolError
from hermes.core.text import WordLists
from hermes.exec.backends.remote_scripts import RUN_BARE, RUN_ON_TERMINAL, RUN_REPORTED
from hermes.exec.backends.session import BackendSession
from hermes.exec.process.local import CommandSpec, encode_command, run_command
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.process.supervisor_client import CommandResult, wait_first

UNLIMITED_SECONDS = 10.0**8
"""As long as the agent runs."""
END_SECONDS = 12.0
_LAST_OUTPUT_SECONDS = 0.25
_REPORT_LIMIT = 64 * 1024
_FORWARDED_VARIABLES = re.compile(
    r"LANG|LANGUAGE|LC_[A-Z]+|TERM|TZ|NO_COLOR|COLUMNS|LINES|HERMES_CHILD"
)
"""Names of variables that mean the same everywhere and hold no secret."""
_REPORT_LINE = re.compile(rb"\036([0-9a-z.]+) (started|folder|ended) (\d+) (\d+)\n")


def select_forwarded(env: Mapping[str, str]) -> list[str]:
    """NAME=value of the few variables that are forwarded to a remote command."""
    return [
        f"{name}={value}" for name, value in env.items() if _FORWARDED_VARIABLES.fullmatch(name)
    ]


def find_reason(client: str, complaint: str, names: Mapping[str, str]) -> str:
    """The sentence for what a client program complains about; empty: none is known."""
    reasons = WordLists(Path(__file__).with_name("complaints.txt")).get_table(client)
    low = complaint.lower()
    return next((text.format(**names) for sign, text in reasons if sign in low), "")


def find_client(name: str, env: Mapping[str, str]) -> str:
    """The full path of a client program; raises NotRun when it is not installed."""
    if found := shutil.which(name, path=env.get("PATH", os.defpath)):
        return found
    raise NotRun(
        f"terminal.backend is {name}, but there is no program `{name}` here: install it (for ssh, "
        "OpenSSH's client), or set terminal.backend to local."
    )


class ReportStream:
    """The client's stderr: reports of our script, and the client's own error messages."""

    def __init__(self, folder: Path, mark: str) -> None:
        self._loop = asyncio.get_running_loop()
        self.started: asyncio.Future[int] = self._loop.create_future()
        """The remote process; 0: its folder does not exist."""
        self.ended: asyncio.Future[tuple[int, int]] = self._loop.create_future()
        watch = self._parse_reports
        self.capture = OutputCapture(_REPORT_LIMIT, folder, name="client", watch=watch)
        self.mark = mark
        self._pending = b""

    def _parse_reports(self, data: bytes) -> None:
        self._pending += data
        for found in _REPORT_LINE.finditer(self._pending):
            if found[1] == self.mark.encode():
                self._set_report(found[2], int(found[3]), int(found[4]))
        self._pending = self._pending[-200:] if b"\036" in self._pending[-200:] else b""

    def _set_report(self, what: bytes, first: int, second: int) -> None:
        if what != b"ended" and not self.started.done():
            self.started.set_result(first)
        if what != b"started" and not self.ended.done():
            self.ended.set_result((first, second))

    @property
    def root(self) -> int:
        """The remote process; 0: not known."""
        return self.started.result() if self.started.done() else 0

    def complaint(self) -> str:
        return re.sub(r"\x1e[^\n]*\n", "", self.capture.text()).strip()


class MarkedOutput(OutputCapture):
    """Feeds another capture up to the mark that ends a command's output, and drops the rest."""

    def __init__(self, into: OutputCapture, mark: str) -> None:
        super().__init__(0, Path())
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._into = into
        self._mark = b"\036%s\n" % mark.encode()
        self._pending = b""

    def feed(self, data: bytes) -> None:
        if self.complete.done():
            return
        data = self._pending + data
        end = data.find(self._mark)
        if end >= 0:
            self._pending = data[:end]
            self.finish()
            return
        start = data.rfind(b"\036", -len(self._mark))
        may_be_mark = start >= 0 and self._mark.startswith(data[start:])
        data, self._pending = (data[:start], data[start:]) if may_be_mark else (data, b"")
        if data:
            self._into.feed(data)

    def finish(self) -> None:
        if not self.complete.done():
            if self._pending:
                self._into.feed(self._pending)
            self.complete.set_result(None)


class NotRun(ToolError):
    """A command was not started; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason} Nothing was run.".strip())
        self.reason = reason


class BackendGone(NotRun):
    """The container or connection no longer exists; nothing was run."""


async def run_on_terminal(
    task: asyncio.Task[CommandResult], seconds: float, end: Callable[[int], Awaitable[None]]
) -> CommandResult:
    """Run a client with a terminal, which is its only stream; its status is the command's."""
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return task.result()
        await stop_client(task, end, 0)
        return CommandResult(None)
    except asyncio.CancelledError:
        await _finish_despite_cancel(stop_client(task, end, 0))
        raise


async def stop_client(
    task: asyncio.Task[CommandResult], end: Callable[[int], Awaitable[None]], root: int
) -> None:
    """End the remote processes first, so that the last output arrives, then the client."""
    try:
        await end(root)
        await asyncio.wait({task}, timeout=_LAST_OUTPUT_SECONDS)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ToolError):
            await task


async def _finish_despite_cancel(work: Awaitable[None]) -> None:
    """Finish `work` even when we are cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    if not task.cancelled():
        task.exception()


class Lifeline:
    """A client that runs as long as the agent. Its remote end waits for the end of its input, which
    comes when we close it and when the agent dies."""

    def __init__(self, spill: Path) -> None:
        self._spill = spill
        self._task: asyncio.Task[CommandResult] | None = None
        self._reader = self._writer = -1
        self.greeting = ""

    @property
    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done()

    async def open(
        self, client: CommandSpec, seconds: float, explain: Callable[[str], str]
    ) -> None:
        """Start the client and wait for its greeting. Raises ToolError when none comes."""
        loop = asyncio.get_running_loop()
        greeted: asyncio.Future[str] = loop.create_future()
        received = b""

        def parse_greeting(data: bytes) -> None:
            nonlocal received
            received = (received + data)[-4000:]
            found = re.search(rb"^ready ?(.*)\n", received, re.MULTILINE)
            if found and not greeted.done():
                greeted.set_result(found[1].decode("utf-8", "replace").strip())

        self._reader, self._writer = os.pipe()
        out = OutputCapture(_REPORT_LIMIT, self._spill, name="client", watch=parse_greeting)
        err = OutputCapture(_REPORT_LIMIT, self._spill, name="client")
        client = structs.replace(client, stdin=self._reader)
        self._task = loop.create_task(run_command(client, out, err))
        try:
            await wait_first(self._task, greeted, timeout=seconds)
            if not greeted.done():
                late = not self._task.done()
                await self.close()
                words = explain(err.text().strip())
                if late:
                    words = f"{explain('')} There was no answer within {seconds:g} s."
                raise NotRun(words)
        except asyncio.CancelledError:
            await _finish_despite_cancel(self.close())
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


async def run_client(client: CommandSpec, spill: Path, seconds: float = 30) -> tuple[int, str, str]:
    """Run a client program to its end: status (-1: too slow), stdout, stderr."""
    out, err = OutputCapture(_REPORT_LIMIT, spill), OutputCapture(_REPORT_LIMIT, spill)
    try:
        limited = CommandSpec(client.text, client.cwd, client.env, seconds)
        outcome = await run_command(limited, out, err)
    finally:
        out.close()
        err.close()
    status = -1 if outcome.status is None else outcome.status
    return status, out.text().strip(), err.text().strip()


class CommandBackend(ABC):
    """A container or host that runs commands, through a client program that a subclass knows.
    Nothing is started before the first command, and nothing outlives `close` or the agent."""

    gone_pattern: str
    """Complaints of the client that mean: the backend has vanished, and nothing was run."""
    plain_options: Sequence[str]
    input_options: Sequence[str]
    terminal_options: Sequence[str]
    """Options of the client for a command without input, with input, and on a terminal."""

    def __init__(self, site: BackendSession) -> None:
        self._site = site
        self._agent = secrets.token_hex(8)
        """Random name of this agent: the beginning of all marks of its commands."""
        self._clients: set[asyncio.Task[CommandResult]] = set()
        """Client processes that still run because something remote does."""
        self._count = 0

    @property
    @abstractmethod
    def location(self) -> str:
        """Completes the sentence "commands run …"."""

    @property
    def start_folder(self) -> Path:
        """The folder in which commands start, as a path on the backend."""
        return self.workspace

    @property
    @abstractmethod
    def workspace(self) -> Path:
        """The same as an absolute path, for judging what a command changes."""

    @abstractmethod
    async def is_confined(self) -> bool:
        """Whether commands can reach nothing but the workspace."""

    @abstractmethod
    async def check_access(self) -> str:
        """Try the backend and describe it in a sentence; raises ToolError when it does not work."""

    @abstractmethod
    async def close(self) -> None: ...

    async def run(self, command: CommandSpec, out: OutputCapture) -> CommandResult:
        """As `exec.process.local.run_command`: when it times out or is cancelled, every process of
        the command has ended when it returns. Only a few harmless variables are forwarded."""
        await self._connect(out)
        try:
            return await self._run_once(command, out)
        except BackendGone:
            if not await self._disconnect():
                raise
        await self._connect(out)
        return await self._run_once(command, out)

    async def _run_once(self, command: CommandSpec, out: OutputCapture) -> CommandResult:
        mark = self._next_mark()
        end = partial(self._end_marked, mark)
        if command.pty:
            client = self._build_session(self.terminal_options, RUN_ON_TERMINAL, mark, command)
            return await run_on_terminal(self._start_client(client, out, out), command.timeout, end)
        client = self._build_session(self.plain_options, RUN_REPORTED, mark, command)
        reports = ReportStream(self._site.outputs, mark)
        tap = MarkedOutput(out, mark)
        task = self._start_client(client, tap, reports.capture)
        try:
            async with asyncio.timeout(command.timeout):
                await wait_first(task, reports.ended)
                if not reports.ended.done() or not reports.root:
                    task.cancel()
                    raise self._build_failure(task, reports, command.cwd)
                status, left = reports.ended.result()
                await wait_first(task, tap.complete)
            if not left:
                task.cancel()
            return CommandResult(status, left)
        except TimeoutError:
            await stop_client(task, end, reports.root)
            return CommandResult(None)
        except asyncio.CancelledError:
            await _finish_despite_cancel(stop_client(task, end, reports.root))
            raise
        finally:
            tap.finish()
            reports.capture.close()

    def _build_failure(
        self, task: asyncio.Task[CommandResult], reports: ReportStream, folder: Path
    ) -> ToolError:
        if not reports.started.done():
            complaint = reports.complaint()
            if re.search(self.gone_pattern, complaint, re.IGNORECASE):
                return BackendGone(self._explain_failure(complaint))
            error = None if task.cancelled() else task.exception()
            return NotRun(self._explain_failure(complaint) or str(error or ""))
        if not reports.root:
            return NotRun(f"{folder} {self.location}: the folder does not exist there.")
        return ToolError(
            f"{folder} {self.location}: contact with the command was lost. It was ended, or will "
            "be. Check its effects."
        )

    async def build_client(self, command: CommandSpec) -> CommandSpec:
        """The command on this machine that runs `command` on the backend with its input, for
        background commands. It must be ended by `end_command` with this very value."""
        await self._connect(None)
        options = self.terminal_options if command.pty else self.input_options
        return self._build_session(options, RUN_BARE, self._next_mark(), command)

    async def end_command(self, client: CommandSpec) -> None:
        """End everything that was started through `client`: TERM, KILL after 1.5 s."""
        if found := re.search(rf"{self._agent}\.\d+\.", " ".join(client.text)):
            await self._end_marked(found[0], 0)

    def _start_client(
        self, client: CommandSpec, out: OutputCapture, err: OutputCapture
    ) -> asyncio.Task[CommandResult]:
        task = asyncio.get_running_loop().create_task(run_command(client, out, err))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _stop_clients(self) -> None:
        for task in self._clients:
            task.cancel()
        if self._clients:
            await asyncio.wait(set(self._clients))

    def _next_mark(self) -> str:
        self._count += 1
        return f"{self._agent}.{self._count}."

    def _require_text(self, command: CommandSpec) -> str:
        if not isinstance(command.text, str):
            raise ToolError(f"Only shell commands run {self.location}.")
        encode_command(command.text)
        return command.text

    @abstractmethod
    async def _connect(self, out: OutputCapture | None) -> None:
        """Make sure that commands can be run; tell in `out` what was lost before."""

    @abstractmethod
    async def _disconnect(self) -> bool:
        """Forget a backend that has vanished; False when there can be no other."""

    @abstractmethod
    def _build_session(
        self, options: Sequence[str], script: str, mark: str, command: CommandSpec
    ) -> CommandSpec:
        """The client that runs a script on the backend with a command as its argument."""

    @abstractmethod
    async def _end_marked(self, mark: str, root: int) -> None:
        """End what was started under this mark; `root` is its first process, if known."""

    @abstractmethod
    def _explain_failure(self, complaint: str) -> str: ...

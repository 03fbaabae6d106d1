"""Commands that go on while the conversation does: started, found again, written to, ended."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import socket
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from hermes.config.paths import private_folder
from hermes.core.errors import ToolError
from hermes.exec.launcher.protocol import (
    CLOSE,
    GRACE,
    INPUT_LIMIT,
    KILL,
    OPERATION,
    SOCKET,
    TOKEN,
    WRITE,
    DeskPlan,
)
from hermes.exec.process import background_records as records
from hermes.exec.process.background_records import Record, State
from hermes.exec.process.local import Command, hand_over, request_of
from hermes.exec.process.supervisor_client import Line, NotStarted

MOST = 16
"""Commands of one session that run at the same time."""
_PATIENCE = 4.0
"""Seconds after which a keeper that was asked to end everything is believed to be stuck."""
_TO_START = 30.0
_LOOK_AGAIN = 0.2


class Owner(Struct, frozen=True):
    """Whose commands: a session's, and those of the sessions that share its scope."""

    session: str
    scope: str = ""

    def sees(self, record: Record) -> bool:
        if record.session == self.session:
            return True
        return bool(self.scope) and record.scope == self.scope


class Processes:
    """All commands in the background of one home. `keep`: what is started outlives the agent."""

    def __init__(self, root: Path, *, keep: bool = False) -> None:
        self.root = root
        self.keep = keep
        self._lines: dict[str, Line] = {}

    # -- looking ---------------------------------------------------------------------------

    def all(self, owner: Owner) -> list[State]:
        """The oldest first."""
        found = (records.look(self.root / name) for name in records.names(self.root))
        return [state for state in found if state and owner.sees(state.record)]

    def running(self, owner: Owner) -> list[State]:
        return [state for state in self.all(owner) if state.alive]

    def find(self, id: str, owner: Owner) -> State:
        state = records.look(self.root / id) if id in records.names(self.root) else None
        if state and owner.sees(state.record):
            return state
        known = [found.record.id for found in self.all(owner)][-20:]
        hint = f"There are: {', '.join(known)}." if known else "None was started."
        raise ToolError(f"There is no background process {id or '(no id)'!r}. {hint}")

    def ours(self) -> list[State]:
        """What this agent started, or talked to, and still runs."""
        found = (records.look(self.root / name) for name in self._lines)
        return [state for state in found if state and state.alive]

    def adopt(self, session: str, child: str) -> None:
        """A session that was compressed goes on as its child, with all it started."""
        for state in self.all(Owner(session)):
            with suppress(OSError):
                records.write(state.folder, structs.replace(state.record, session=child))

    # -- acting ----------------------------------------------------------------------------

    async def start(
        self,
        command: Command,
        owner: Owner,
        *,
        confined: bool = False,
        stands_for: Command | None = None,
    ) -> State:
        """It runs when this returns. A client that stands for a command in another place is not
        kept: what it leads to ends with the agent."""
        live = [s.record.id for s in self.running(owner) if s.record.session == owner.session]
        if len(live) >= MOST:
            raise ToolError(
                f"{len(live)} background processes of this session are running, which is the most; "
                f"nothing was started. End one first with `process kill`: {', '.join(live)}."
            )
        meant = stands_for or command
        text = meant.text if isinstance(meant.text, str) else " ".join(meant.text)
        record = Record(
            id="",
            session=owner.session,
            scope=owner.scope,
            command=text,
            cwd=str(meant.cwd),
            started=time.time(),
            token=secrets.token_hex(16),
            pty=command.pty,
            keep=self.keep and stands_for is None,
            confined=confined,
            online=bool(command.policy and command.policy.network),
        )
        folder, record = await self._recorded(record)
        with ExitStack() as undo:
            undo.callback(records.remove, folder)
            self._lines[record.id] = await _begin(command, folder, record)
            undo.pop_all()
        return records.look(folder) or State(record, folder, alive=True)

    async def _recorded(self, record: Record) -> tuple[Path, Record]:
        """On disk, under its id. Who is interrupted meanwhile leaves no record."""
        writing = asyncio.ensure_future(asyncio.to_thread(self._record, record))
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            with suppress(OSError):
                records.remove((await writing)[0])
            raise
        except OSError as error:
            raise ToolError(
                f"Nothing was started: its record could not be written ({error.strerror})."
            ) from error

    def _record(self, record: Record) -> tuple[Path, Record]:
        private_folder(self.root)
        records.tidy(self.root)
        while True:
            last = records.names(self.root)[-1:]
            folder = self.root / f"p{int(last[0][1:]) + 1 if last else 1}"
            with suppress(FileExistsError):  # another agent of this home was faster
                folder.mkdir(mode=0o700)
                break
        record = structs.replace(record, id=folder.name)
        records.write(folder, record)
        return folder, record

    async def wait(self, state: State, timeout: float) -> State:
        """Until it has ended, or the time is over."""
        until = time.monotonic() + timeout
        while state.running and (left := until - time.monotonic()) > 0:
            line = await self._line(state)
            if line:
                await _either(line.ended, line.gone, timeout=left)
                if line.ended.done() and isinstance(line.ended.exception(), NotStarted):
                    break
            else:
                await asyncio.sleep(min(_LOOK_AGAIN, left))
            state = self._again(state)
        return self._again(state)

    async def kill(self, state: State) -> State:
        """TERM to all of it, KILL after 1.5 s; returns when nothing is left."""
        if not state.alive:
            return state
        line = await self._reach(state)
        if not line.gone.done():
            await line.operate(KILL)
            await asyncio.wait({line.gone}, timeout=GRACE + _PATIENCE)
        state = self._again(state)
        if state.alive and not line.gone.done():
            raise ToolError(f"{state.record.id} was sent KILL, but part of it does not end.")
        return state

    async def write(self, state: State, text: str, *, close: bool = False) -> int:
        """Give it input, and with `close` the end of it; how many bytes it has not taken yet."""
        data = text.encode("utf-8", "replace")
        if len(data) > INPUT_LIMIT:
            raise ToolError(f"At most {INPUT_LIMIT} bytes can be written at a time; none were.")
        if not state.running:
            words = state.words(time.time())
            raise ToolError(f"{state.record.id} takes no input: {words}. Nothing was written.")
        line = await self._reach(state)
        records.note_typed(state.folder, text)
        pending = 0
        if data:
            number, pending = await line.operate(WRITE, data)
            _check(number, pending, state.record.id)
        if close:
            number, pending = await line.operate(CLOSE)
            _check(number, pending, state.record.id)
        return pending

    async def close(self) -> None:
        """End what this agent started, except what is to be kept."""
        lines = {name: line for name, line in self._lines.items() if not line.gone.done()}
        ending = []
        for name, line in lines.items():
            state = records.look(self.root / name)
            if state is None or not state.record.keep:
                line.hang_up()
                ending.append(line.gone)
        if ending:
            await asyncio.wait(ending, timeout=GRACE + 1)
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    # -- reaching a keeper -----------------------------------------------------------------

    def _again(self, state: State) -> State:
        return records.look(state.folder) or state

    async def _reach(self, state: State) -> Line:
        line = await self._line(state)
        if line:
            return line
        if not state.record.keep:
            raise ToolError(
                f"{state.record.id} was started by another agent that is still running, and only "
                "that one can write to it or end it. Nothing was done."
            )
        raise ToolError(f"The keeper of {state.record.id} does not answer. Nothing was done.")

    async def _line(self, state: State) -> Line | None:
        """Ours, or a new one to a keeper that outlived its agent."""
        line = self._lines.get(state.record.id)
        if line and not line.gone.done():
            return line
        if not state.record.keep or not state.alive:
            return None
        try:
            control = await asyncio.to_thread(_connect, state.folder)
        except OSError:
            return None
        line = self._lines[state.record.id] = Line(control)
        token = state.record.token.encode()
        await line.send(OPERATION.pack(TOKEN, len(token)) + token)
        return line


async def _either(*futures: asyncio.Future[Any], timeout: float | None = None) -> None:
    await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


async def _begin(command: Command, folder: Path, record: Record) -> Line:
    plan: DeskPlan = {
        "folder": os.fsencode(folder),
        "token": record.token.encode(),
        "keep": record.keep,
    }
    request = await request_of(command, desk=plan)
    ours, theirs = socket.socketpair()
    try:
        given = [command.stdin] if command.stdin >= 0 and not command.pty else []
        hand_over([theirs.fileno(), *given])
    except OSError as error:
        ours.close()
        raise ToolError(f"No process could be started: {error.strerror}.") from error
    finally:
        theirs.close()
    line = Line(ours)
    with ExitStack() as undo:
        undo.callback(line.close)
        undo.callback(line.demand, KILL)
        await line.send(request)
        await _either(line.began, line.ended, timeout=_TO_START)
        if not line.began.done():
            why = line.ended.exception() if line.ended.done() else "It did not start in time."
            raise ToolError(f"{why} Nothing was run.")
        undo.pop_all()
    return line


def _connect(folder: Path) -> socket.socket:
    """Through the open folder where that is possible: a socket's path may have some 100 bytes."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(2)
            short = f"/proc/self/fd/{handle}/{SOCKET}"
            control.connect(short if sys.platform == "linux" else str(folder / SOCKET))
            return socket.socket(fileno=control.detach())
    finally:
        os.close(handle)


def _check(number: int, pending: int, id: str) -> None:
    if number == errno.EPIPE:
        raise ToolError(f"{id} has closed its input; this was not written.")
    if number == errno.EAGAIN:
        raise ToolError(f"{id} does not read its input ({pending} bytes wait); this was not added.")

"""Background commands: started, found again, written to, ended."""

import asyncio
import errno
import os
import secrets
import socket
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from msgspec import Struct, structs

from hermes.config.paths import make_private_folder
from hermes.core.errors import ToolError
from hermes.exec.launcher import protocol
from hermes.exec.launcher.protocol import GRACE_SECONDS, INPUT_LIMIT, BackgroundPlan
from hermes.exec.process import background_records, local, supervisor_client
from hermes.exec.process.background_records import ProcessRecord, ProcessState
from hermes.exec.process.local import CommandSpec
from hermes.exec.process.supervisor_client import CommandNotStarted, SupervisorConnection

MAX_RUNNING = 16
_KILL_SECONDS = 4.0
"""Seconds after which a supervisor that was told to end everything is considered stuck."""
_START_SECONDS = 30.0
_POLL_SECONDS = 0.2


class ProcessOwner(Struct, frozen=True):
    """A session; it sees its own commands and those of the sessions in the same scope."""

    session: str
    scope: str = ""

    def can_see(self, record: ProcessRecord) -> bool:
        if record.session == self.session:
            return True
        return bool(self.scope) and record.scope == self.scope


class BackgroundProcesses:
    """All background commands of one home. `keep`: those that are started outlive the agent."""

    def __init__(self, root: Path, *, keep: bool = False) -> None:
        self.root = root
        self.keep = keep
        self._connections: dict[str, SupervisorConnection] = {}

    def list_all(self, owner: ProcessOwner) -> list[ProcessState]:
        """All commands the owner can see, oldest first."""
        names = background_records.list_ids(self.root)
        found = (background_records.load_state(self.root / name) for name in names)
        return [state for state in found if state and owner.can_see(state.record)]

    def list_running(self, owner: ProcessOwner) -> list[ProcessState]:
        return [state for state in self.list_all(owner) if state.alive]

    def find_process(self, id: str, owner: ProcessOwner) -> ProcessState:
        is_known = id in background_records.list_ids(self.root)
        state = background_records.load_state(self.root / id) if is_known else None
        if state and owner.can_see(state.record):
            return state
        known = [found.record.id for found in self.list_all(owner)][-20:]
        hint = f"There are: {', '.join(known)}." if known else "None was started."
        raise ToolError(f"There is no background process {id or '(no id)'!r}. {hint}")

    def list_connected(self) -> list[ProcessState]:
        """Commands that this agent started or connected to and that still run."""
        found = (background_records.load_state(self.root / name) for name in self._connections)
        return [state for state in found if state and state.alive]

    def move_to_child(self, session: str, child: str) -> None:
        """Give the commands of a session to the child session that continues it."""
        local.continue_session(session, child)
        for state in self.list_all(ProcessOwner(session)):
            record = structs.replace(state.record, session=child)
            with suppress(OSError):
                background_records.write_record(state.folder, record)

    async def start(
        self,
        command: CommandSpec,
        owner: ProcessOwner,
        *,
        confined: bool = False,
        stands_for: CommandSpec | None = None,
    ) -> ProcessState:
        """Start a command; it runs when this returns. A client that stands for a command elsewhere
        does not outlive the agent: what it leads to ends with the agent."""
        live = [s.record.id for s in self.list_running(owner) if s.record.session == owner.session]
        if len(live) >= MAX_RUNNING:
            raise ToolError(
                f"{len(live)} background processes of this session run, which is the limit. "
                f"Nothing was started. End one first with `process kill`: {', '.join(live)}."
            )
        shown = stands_for or command
        text = shown.text if isinstance(shown.text, str) else " ".join(shown.text)
        record = ProcessRecord(
            id="",
            session=owner.session,
            scope=owner.scope,
            command=text,
            cwd=str(shown.cwd),
            started=time.time(),
            token=secrets.token_hex(16),
            pty=command.pty,
            keep=self.keep and stands_for is None,
            confined=confined,
            online=bool(command.policy and command.policy.network),
        )
        folder, record = await self._create_record(record)
        with ExitStack() as undo:
            undo.callback(background_records.remove_record, folder)
            self._connections[record.id] = await _start_supervised(command, folder, record)
            undo.pop_all()
        return background_records.load_state(folder) or ProcessState(record, folder, alive=True)

    async def _create_record(self, record: ProcessRecord) -> tuple[Path, ProcessRecord]:
        """Write the record under a new id. When cancelled meanwhile, no record is left behind."""
        writing = asyncio.ensure_future(asyncio.to_thread(self._write_new_record, record))
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            with suppress(OSError):
                background_records.remove_record((await writing)[0])
            raise
        except OSError as error:
            raise ToolError(
                f"Nothing was started: its record could not be written ({error.strerror})."
            ) from error

    def _write_new_record(self, record: ProcessRecord) -> tuple[Path, ProcessRecord]:
        make_private_folder(self.root)
        background_records.remove_old(self.root)
        while True:
            last = background_records.list_ids(self.root)[-1:]
            folder = self.root / f"p{int(last[0][1:]) + 1 if last else 1}"
            with suppress(FileExistsError):  # another agent of this home took that id
                folder.mkdir(mode=0o700)
                break
        record = structs.replace(record, id=folder.name)
        background_records.write_record(folder, record)
        return folder, record

    async def wait(self, state: ProcessState, timeout: float) -> ProcessState:
        """Wait until it has ended or the time is over."""
        until = time.monotonic() + timeout
        while state.running and (left := until - time.monotonic()) > 0:
            connection = await self._connect_supervisor(state)
            if connection:
                ended = connection.ended
                await supervisor_client.wait_first(ended, connection.closed, timeout=left)
                if ended.done() and isinstance(ended.exception(), CommandNotStarted):
                    break
            else:
                await asyncio.sleep(min(_POLL_SECONDS, left))
            state = self._reload_state(state)
        return self._reload_state(state)

    async def kill(self, state: ProcessState) -> ProcessState:
        """End all of its processes: TERM, KILL after 1.5 s. Returns when none is left."""
        if not state.alive:
            return state
        connection = await self._require_connection(state)
        if not connection.closed.done():
            await connection.request_operation(protocol.KILL)
            await asyncio.wait({connection.closed}, timeout=GRACE_SECONDS + _KILL_SECONDS)
        state = self._reload_state(state)
        if state.alive and not connection.closed.done():
            name = state.record.id
            raise ToolError(f"{name} was sent KILL, but some of its processes have not ended.")
        return state

    async def write(self, state: ProcessState, text: str, *, close: bool = False) -> int:
        """Send input, with `close` its end; returns how many bytes the command has not read yet."""
        data = text.encode("utf-8", "replace")
        if len(data) > INPUT_LIMIT:
            raise ToolError(
                f"At most {INPUT_LIMIT} bytes can be written at a time. Nothing was written."
            )
        if not state.running:
            why = state.describe(time.time())
            raise ToolError(f"{state.record.id} takes no input: {why}. Nothing was written.")
        connection = await self._require_connection(state)
        background_records.record_typed(state.folder, text)
        pending = 0
        if data:
            number, pending = await connection.request_operation(protocol.WRITE, data)
            _check_write(number, pending, state.record.id)
        if close:
            number, pending = await connection.request_operation(protocol.CLOSE)
            _check_write(number, pending, state.record.id)
        return pending

    async def close(self) -> None:
        """End the commands this agent started, except those that outlive it."""
        ending = []
        for name, connection in self._connections.items():
            state = background_records.load_state(self.root / name)
            if not connection.closed.done() and (state is None or not state.record.keep):
                connection.hang_up()
                ending.append(connection.closed)
        if ending:
            await asyncio.wait(ending, timeout=GRACE_SECONDS + 1)
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _reload_state(self, state: ProcessState) -> ProcessState:
        return background_records.load_state(state.folder) or state

    async def _require_connection(self, state: ProcessState) -> SupervisorConnection:
        connection = await self._connect_supervisor(state)
        if connection:
            return connection
        if not state.record.keep:
            raise ToolError(
                f"{state.record.id} was started by another agent that is still running, and only "
                "that one can write to it or end it. Nothing was done."
            )
        raise ToolError(f"The supervisor of {state.record.id} does not answer. Nothing was done.")

    async def _connect_supervisor(self, state: ProcessState) -> SupervisorConnection | None:
        """Our connection, or a new one to a supervisor that outlived its agent."""
        connection = self._connections.get(state.record.id)
        if connection and not connection.closed.done():
            return connection
        if not state.record.keep or not state.alive:
            return None
        try:
            control = await asyncio.to_thread(_open_socket, state.folder)
        except OSError:
            return None
        connection = self._connections[state.record.id] = SupervisorConnection(control)
        token = state.record.token.encode()
        await connection.send(protocol.OPERATION.pack(protocol.TOKEN, len(token)) + token)
        return connection


async def _start_supervised(
    command: CommandSpec, folder: Path, record: ProcessRecord
) -> SupervisorConnection:
    plan: BackgroundPlan = {
        "folder": os.fsencode(folder),
        "token": record.token.encode(),
        "keep": record.keep,
    }
    request = local.build_request(command, background=plan)
    try:
        connection = local.connect_supervisor(command)
    except OSError as error:
        raise ToolError(f"No process could be started: {error.strerror}.") from error
    with ExitStack() as undo:
        undo.callback(connection.close)
        undo.callback(connection.send_operation, protocol.KILL)
        await connection.send(request)
        await supervisor_client.wait_first(
            connection.started, connection.ended, timeout=_START_SECONDS
        )
        if not connection.started.done():
            has_ended = connection.ended.done()
            why = connection.ended.exception() if has_ended else "It did not start in time."
            raise ToolError(f"{why} Nothing was run.")
        undo.pop_all()
    return connection


def _open_socket(folder: Path) -> socket.socket:
    """Connect by way of the open folder: a socket's path may only have about 100 bytes."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(2)
            short = f"/proc/self/fd/{handle}/{protocol.SOCKET}"
            control.connect(short if sys.platform == "linux" else str(folder / protocol.SOCKET))
            return socket.socket(fileno=control.detach())
    finally:
        os.close(handle)


def _check_write(number: int, pending: int, id: str) -> None:
    if number == errno.EPIPE:
        raise ToolError(f"{id} has closed its input. Nothing was written.")
    if number == errno.EAGAIN:
        raise ToolError(
            f"{id} does not read its input ({pending} bytes are pending). Nothing was written."
        )

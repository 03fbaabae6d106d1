"""The agent's background commands, and the sessions that share them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hermes.core.store import SUBAGENT, SessionMeta

if TYPE_CHECKING:
    from hermes.exec.process.background import BackgroundProcesses, ProcessOwner
    from hermes.exec.process.background_records import ProcessRecord

ProcessAccess: TypeAlias = Callable[[str], "tuple[BackgroundProcesses, ProcessOwner]"]
_LOCAL_SOURCE = "cli"
"""Sessions of the user at this machine see each other's commands."""


class BackgroundCommands:
    """Costs nothing until it is used: most sessions leave nothing running."""

    def __init__(self, home: Path, *, keep: bool) -> None:
        self._root = home / "processes"
        self._keep = keep
        self._processes: BackgroundProcesses | None = None

    @property
    def processes(self) -> BackgroundProcesses:
        if self._processes is None:
            from hermes.exec.process.background import BackgroundProcesses

            self._processes = BackgroundProcesses(self._root, keep=self._keep)
        return self._processes

    def grant_access(self, meta: SessionMeta) -> ProcessAccess:
        """The access of a session's tools, called with its id, which changes on compression. A
        conversation also sees what its earlier sessions started, and so do the sessions of one
        channel, the part of the key after its owner."""
        scope = meta.source if meta.source == _LOCAL_SOURCE else ""
        owner, slash, channel = meta.key.partition("/")
        if meta.source != SUBAGENT and (channel or (owner and not slash)):
            scope = f"{meta.source} {meta.key}"

        def open_processes(session: str) -> tuple[BackgroundProcesses, ProcessOwner]:
            from hermes.exec.process.background import ProcessOwner

            return self.processes, ProcessOwner(session, scope)

        return open_processes

    def list_running(self, meta: SessionMeta) -> list[ProcessRecord]:
        """The running commands of this session and of those it shares with."""
        if not self._root.is_dir():
            return []
        processes, owner = self.grant_access(meta)(meta.id)
        return [state.record for state in processes.list_running(owner)]

    async def stop_running(self, meta: SessionMeta) -> None:
        """Stop the commands that `list_running` lists."""
        if self._root.is_dir():
            processes, owner = self.grant_access(meta)(meta.id)
            for state in processes.list_running(owner):
                await processes.kill(state)

    @property
    def running_count(self) -> int:
        """How many commands of this agent are still running."""
        return len(self._processes.list_connected()) if self._processes else 0

    def move_to_child(self, session: str, child: str) -> None:
        """Hand the commands of a session over to the one that continues it."""
        if self._root.is_dir():
            self.processes.move_to_child(session, child)

    def describe_leftovers(self) -> str:
        """What happens to running commands when the agent exits now; empty when there are none."""
        running = self._processes.list_connected() if self._processes else []
        parts = []
        for keep, text in (
            (False, "background processes were still running and are stopped now"),
            (True, "background processes keep running (terminal.keep_background)"),
        ):
            records = [state.record for state in running if state.record.keep is keep]
            if records:
                names = ", ".join(f"{r.id} ({_shorten_command(r.command)})" for r in records)
                parts.append(f"{text}: {names}")
        return "; ".join(parts)

    async def close(self) -> None:
        if self._processes:
            await self._processes.close()


def _shorten_command(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= 40 else line[:39] + "…"

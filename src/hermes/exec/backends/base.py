"""What a place that runs commands needs to know, and what it offers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from hermes.exec.process.local import Command, Outcome
from hermes.exec.process.output_capture import Capture
from hermes.exec.sandbox import Mode


class Site(Struct, frozen=True):
    """What a backend needs to know about the session it works for."""

    workspace: Path
    home: Path
    """The agent's own folder."""
    user_home: Path
    mode: Mode
    client_env: Mapping[str, str]
    """For the programs that reach the place (docker, ssh): no secret, but the sockets they use."""
    name: str = ""


class Backend(Protocol):
    """One place. Nothing is started before the first command, and nothing outlives `close` or the
    agent."""

    @property
    def where(self) -> str:
        """In words: behind "commands run "."""
        ...

    @property
    def folder(self) -> Path:
        """Where commands begin, in that place's own paths."""
        ...

    @property
    def workspace(self) -> Path:
        """The same as an absolute path, for judging what a command does to it."""
        ...

    async def confined(self) -> bool:
        """Whether a command can reach nothing but the workspace."""
        ...

    async def run(self, command: Command, out: Capture) -> Outcome:
        """As `exec.process.local.run`: when it returns, what timed out or was cancelled is dead.
        Of the environment only a few harmless names are passed on."""
        ...

    async def client(self, command: Command) -> Command:
        """The command on this machine that runs it there, with its input, for whoever starts it
        himself: in the background. It must be ended by `end` with this very value."""
        ...

    async def end(self, client: Command) -> None:
        """End everything that was started there through `client`: TERM, KILL after 1.5 s."""
        ...

    async def check(self) -> str:
        """A sentence about what works, having tried it; ToolError when it does not."""
        ...

    async def close(self) -> None: ...

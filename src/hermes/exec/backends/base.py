"""The protocol of a backend: where commands run when it is not this machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from hermes.core.tool import SandboxMode
from hermes.exec.process.local import CommandResult, CommandSpec
from hermes.exec.process.output_capture import OutputCapture


class BackendSession(Struct, frozen=True):
    """The session that a backend runs commands for."""

    workspace: Path
    home: Path
    """The agent's home folder."""
    user_home: Path
    mode: SandboxMode
    client_env: Mapping[str, str]
    """Environment of the client program (docker, ssh): no secrets, but the sockets it uses."""

    @property
    def outputs(self) -> Path:
        return self.home / "outputs"


class CommandBackend(Protocol):
    """A container or host that runs commands. Nothing is started before the first command, and
    nothing outlives `close` or the agent."""

    @property
    def location(self) -> str:
        """Completes the sentence "commands run …"."""

    @property
    def start_folder(self) -> Path:
        """The folder in which commands start, as a path on the backend."""

    @property
    def workspace(self) -> Path:
        """The same as an absolute path, for judging what a command changes."""

    async def is_confined(self) -> bool:
        """Whether commands can reach nothing but the workspace."""

    async def run(self, command: CommandSpec, out: OutputCapture) -> CommandResult:
        """As `exec.process.local.run_command`: when it times out or is cancelled, every process of
        the command has ended when it returns. Only a few harmless variables are forwarded."""

    async def build_client(self, command: CommandSpec) -> CommandSpec:
        """The command on this machine that runs `command` on the backend with its input, for
        background commands. It must be ended by `end_command` with this very value."""

    async def end_command(self, client: CommandSpec) -> None:
        """End everything that was started through `client`: TERM, KILL after 1.5 s."""

    async def check_access(self) -> str:
        """Try the backend and describe it in a sentence; raises ToolError when it does not work."""

    async def close(self) -> None: ...

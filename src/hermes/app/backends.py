"""The backends that run the commands of sessions on other machines or in containers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.core.tool import SandboxMode
from hermes.tools.registry import Tools

if TYPE_CHECKING:
    from hermes.exec.backends import CommandBackend

_FILE_TOOLS = frozenset("read_file write_file patch search_files execute_code".split())
"""Tools that act on the files of this machine."""


class Backends:
    """One host for all sessions, or a container for each. Nothing is started before it is used."""

    def __init__(self, setup: Setup, env: Mapping[str, str]) -> None:
        self._setup = setup
        self._env = env
        self._open: dict[str, CommandBackend] = {}

    @property
    def name(self) -> str:
        """Where commands run: local, docker or ssh."""
        return self._setup.config.terminal.backend

    @property
    def has_remote_files(self) -> bool:
        """Whether commands see other files than the file tools do."""
        return self._setup.config.terminal.backend == "ssh"

    @property
    def _is_remote(self) -> bool:
        return self._setup.config.terminal.backend in ("docker", "ssh")

    def get_backend(self, session_id: str, cwd: Path, mode: SandboxMode) -> "CommandBackend | None":
        """The backend of a session's commands; None: this machine."""
        terminal = self._setup.config.terminal
        if not self._is_remote:
            return None
        key = "" if self.has_remote_files else session_id
        if key not in self._open:
            from hermes.exec.backends import BackendSession, open_backend

            home = self._env.get("HOME")
            user_home = Path(home) if home else Path.home()
            session = BackendSession(cwd, self._setup.home, user_home, mode, self._env)
            found = open_backend(terminal, session)
            assert found is not None
            self._open[key] = found
        return self._open[key]

    def filter_tools(self, tools: Tools, toolsets: Sequence[str] | None) -> Tools:
        """The tools without those that would act on the wrong machine."""
        if not self.has_remote_files:
            return tools
        for name in toolsets or ():
            if name in _FILE_TOOLS:
                host = self._setup.config.terminal.ssh.host
                raise ConfigError(
                    f"{name} cannot be used: commands run on {host} over ssh, and it would act on "
                    "the files of this machine."
                )
        return tools.without(_FILE_TOOLS)

    @property
    def description(self) -> str:
        """Tells a model where its commands run; empty: on this machine."""
        terminal = self._setup.config.terminal
        if not self._is_remote:
            return ""
        if self.has_remote_files:
            ssh = terminal.ssh
            host = f"{ssh.user}@{ssh.host}" if ssh.user else ssh.host
            return (
                f"Commands run on {host} over ssh, not on the user's machine, and begin in "
                f"{ssh.cwd} there. Read and change files there with commands."
            )
        if terminal.docker.container:
            return f"Commands run in the container {terminal.docker.container}."
        return (
            f"Commands run in a container of {terminal.docker.image}: of the machine only the "
            "working directory is there, under the same path."
        )

    async def release_backend(self, backend: "CommandBackend | None") -> None:
        """Close the backend of a session that has ended; a shared one stays open."""
        for key, found in list(self._open.items()):
            if found is backend and key:
                del self._open[key]
                await found.close()

    async def close(self) -> None:
        while self._open:
            _, backend = self._open.popitem()
            await backend.close()

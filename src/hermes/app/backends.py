"""Where the commands of sessions run, when it is not this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.core.errors import ConfigError
from hermes.tools.registry import Tools

if TYPE_CHECKING:
    from hermes.config.load import Setup
    from hermes.exec.backends import CommandBackend
    from hermes.exec.sandbox import SandboxMode

_OF_FILES = frozenset("read_file write_file patch search_files execute_code".split())
"""Tools that act on the files of this machine."""


class Places:
    """One host for all sessions, or a container for each. Nothing is started before it is used."""

    def __init__(self, setup: Setup, env: Mapping[str, str]) -> None:
        self._setup = setup
        self._env = env
        self._open: dict[str, CommandBackend] = {}

    @property
    def elsewhere(self) -> bool:
        """Whether commands see other files than the file tools would."""
        return self._setup.config.terminal.backend == "ssh"

    @property
    def _away(self) -> bool:
        return self._setup.config.terminal.backend in ("docker", "ssh")

    def place(self, session_id: str, cwd: Path, mode: SandboxMode) -> CommandBackend | None:
        """None: commands run here."""
        terminal = self._setup.config.terminal
        if not self._away:
            return None
        key = "" if self.elsewhere else session_id
        found = self._open.get(key)
        if found is None:
            from hermes.exec.backends import BackendSession, open_backend

            home = self._env.get("HOME")
            user_home = Path(home) if home else Path.home()
            site = BackendSession(cwd, self._setup.home, user_home, mode, self._env)
            found = open_backend(terminal, site)
            assert found is not None
            self._open[key] = found
        return found

    def tools(self, tools: Tools, asked: Sequence[str] | None) -> Tools:
        """Without those that would act on the wrong machine."""
        if not self.elsewhere:
            return tools
        for name in asked or ():
            if name in _OF_FILES:
                host = self._setup.config.terminal.ssh.host
                raise ConfigError(
                    f"{name} cannot be used: commands run on {host} over ssh, and it would act on "
                    "the files of this machine."
                )
        return tools.without(_OF_FILES)

    @property
    def told(self) -> str:
        """What a model has to know about it."""
        terminal = self._setup.config.terminal
        if not self._away:
            return ""
        if self.elsewhere:
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

    async def leave(self, place: CommandBackend | None) -> None:
        """The session it was for has ended."""
        for key, found in list(self._open.items()):
            if found is place and key:
                del self._open[key]
                await found.close()

    async def close(self) -> None:
        while self._open:
            _, place = self._open.popitem()
            await place.close()

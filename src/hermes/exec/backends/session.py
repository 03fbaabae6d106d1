"""The session that a backend runs commands for."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from hermes.core.tool import SandboxMode


class BackendSession(Struct, frozen=True):
    """The session that a backend runs commands for."""

    workspace: Path
    home: Path
    user_home: Path
    mode: SandboxMode
    client_env: Mapping[str, str]
    """Environment of the client program (docker, ssh): no secrets, but the sockets it uses."""

    @property
    def outputs(self) -> Path:
        return self.home / "outputs"

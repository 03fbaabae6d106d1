"""Tells the unfinished work of this server from that of other servers of the same home."""

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from hermes.config.instances import is_in_progress, mark_in_progress


class ServerInstance:
    """One run of the server, known to other processes by its token."""

    node = ""
    """The name of this server among the nodes of a cluster."""
    has_own_files = False
    """Whether what sessions write here cannot be seen by other servers that continue them."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.token = secrets.token_hex(8)
        """Stored with all work in progress on this server."""

    def mark_running(self) -> AbstractContextManager[None]:
        """Show other servers that this one is running, until the block or the process ends."""
        return mark_in_progress(self._home, self.token)

    def is_other_running(self, token: str) -> bool:
        """Whether the token belongs to another server that is still running."""
        return token != self.token and is_in_progress(self._home, token)


class NodeInstance(ServerInstance):
    """One run of the server as a node of a cluster, known to the others by the name of its
    lease."""

    def __init__(self, home: Path, token: str, is_alive: Callable[[str], bool]) -> None:
        super().__init__(home)
        self.token = token
        self.node = token.partition("#")[0]
        self._is_alive = is_alive

    def mark_running(self) -> AbstractContextManager[None]:
        return nullcontext()

    def is_other_running(self, token: str) -> bool:
        return token != self.token and self._is_alive(token)

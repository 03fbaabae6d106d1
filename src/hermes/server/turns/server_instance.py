"""This server among others of the same home: whose unfinished work is whose."""

from __future__ import annotations

import secrets
from contextlib import AbstractContextManager
from pathlib import Path

from hermes.config.instances import is_in_progress, mark_in_progress


class ServerInstance:
    def __init__(self, home: Path) -> None:
        self._home = home
        self.token = secrets.token_hex(8)
        """Stored with everything this server is working on."""

    def mark_running(self) -> AbstractContextManager[None]:
        """Let other servers see that this one is alive, until the block or the process ends."""
        return mark_in_progress(self._home, self.token)

    def is_other_running(self, token: str) -> bool:
        """Whether another living server works on what bears this token."""
        return token != self.token and is_in_progress(self._home, token)

"""Which folders' context files the operator trusts, by the digest of their content."""

import time
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.private_files import hold_lock, replace_file
from hermes.core.errors import ConfigError


class TrustDecision(Struct, frozen=True):
    """Whether exactly this content is trusted."""

    digest: str
    trusted: bool
    when: float = 0.0


class TrustStore:
    """A file in the home, read each time. When it cannot be read, nothing is trusted and the user
    is asked again."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = home / "trust.json"

    def read_all(self) -> dict[str, TrustDecision]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, TrustDecision])
        except (OSError, ValueError):
            return {}

    def save_decisions(self, decisions: dict[str, TrustDecision]) -> None:
        """Folder -> decision; those of other folders stay."""
        with self._hold_lock():
            self._write_file(self.read_all() | decisions)

    def remove(self, folder: str) -> bool:
        """Whether there was a decision for the folder."""
        with self._hold_lock():
            known = self.read_all()
            if known.pop(folder, None) is None:
                return False
            self._write_file(known)
            return True

    def _hold_lock(self) -> AbstractContextManager[None]:
        return hold_lock(self._home / ".trust.lock", self._file.name)

    def _write_file(self, known: dict[str, TrustDecision]) -> None:
        try:
            replace_file(self._file, msgspec.json.format(msgspec.json.encode(known)))
        except OSError as error:
            raise ConfigError(
                f"{self._file} could not be written ({error.strerror}); nothing was changed."
            ) from None


def make_decision(digest: str, *, trusted: bool) -> TrustDecision:
    return TrustDecision(digest, trusted, round(time.time(), 3))

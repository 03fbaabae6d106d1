"""Which folders' context files the operator agreed to, by the digest of what they held then."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.private_files import locked, replace_file
from hermes.core.errors import ConfigError


class Answer(Struct, frozen=True):
    """Yes or no, to exactly this content."""

    digest: str
    trusted: bool
    when: float = 0.0


class TrustBook:
    """A file of the home, read anew each time. One that cannot be read knows nobody: then people
    are asked again."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = home / "trust.json"

    def all(self) -> dict[str, Answer]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, Answer])
        except (OSError, ValueError):
            return {}

    def put(self, answers: dict[str, Answer]) -> None:
        """Folder -> answer; others stay."""
        with self._alone():
            self._write(self.all() | answers)

    def remove(self, folder: str) -> bool:
        """False: nothing was known of it."""
        with self._alone():
            known = self.all()
            if known.pop(folder, None) is None:
                return False
            self._write(known)
            return True

    def _alone(self) -> AbstractContextManager[None]:
        return locked(self._home / ".trust.lock", self._file.name)

    def _write(self, known: dict[str, Answer]) -> None:
        try:
            replace_file(self._file, msgspec.json.format(msgspec.json.encode(known)))
        except OSError as error:
            raise ConfigError(
                f"{self._file} could not be written ({error.strerror}); nothing was changed."
            ) from None


def answer(digest: str, *, trusted: bool) -> Answer:
    return Answer(digest, trusted, round(time.time(), 3))

"""Which folders' context files the operator agreed to, by the digest of what they held then."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

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

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            handle = os.open(
                self._home / ".trust.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _write(self, known: dict[str, Answer]) -> None:
        fresh = self._file.with_name(".trust.json.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            handle = os.open(fresh, flags, 0o600)
            try:
                os.write(handle, msgspec.json.format(msgspec.json.encode(known)))
                os.fsync(handle)
            finally:
                os.close(handle)
            fresh.replace(self._file)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self._file} could not be written ({error.strerror}); nothing was changed."
        )


def answer(digest: str, *, trusted: bool) -> Answer:
    return Answer(digest, trusted, round(time.time(), 3))

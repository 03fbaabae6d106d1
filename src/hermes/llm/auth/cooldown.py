"""Keys that are set aside until they are worth a try again, remembered across processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from hermes.config.paths import make_private_folder
from hermes.config.private_files import open_lock, replace_file, try_lock

_TRIES = 50
Place: TypeAlias = tuple[str, str]
"""Base URL and key: what limits are counted by."""


class Rest(Struct, frozen=True):
    until: float
    why: str


class Cooling:
    """Read when it is first asked for and when another process has written it since; written at
    once, for its owner only. On disk a key is a digest. A file that cannot be used is no reason to
    fail: the limit is met again."""

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._known: dict[str, Rest] = {}
        self._seen: tuple[int, int] | None = None
        """Which writing of the file is known."""

    def left(self, place: Place) -> float:
        """Seconds until this one is worth a try; 0: now."""
        rest = self.of(place)
        return max(0.0, rest.until - self._clock()) if rest is not None else 0.0

    def of(self, place: Place) -> Rest | None:
        if self._written() != self._seen:
            self._known = {**self._known, **self._read()}
        return self._known.get(_digest(place)) if self._known else None

    def set(self, place: Place, seconds: float, why: str) -> None:
        now = self._clock()
        rest = Rest(now + seconds, why)
        self._known[_digest(place)] = rest
        if self._file is None:
            return
        with suppress(OSError):
            make_private_folder(self._file.parent)
            with _alone(self._file):
                known = {**self._known, **self._read(), _digest(place): rest}
                self._known = {digest: one for digest, one in known.items() if one.until > now}
                replace_file(self._file, msgspec.json.encode(self._known))
                self._seen = self._written()

    def _read(self) -> dict[str, Rest]:
        if self._file is None:
            return {}
        self._seen = self._written()
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, Rest])
        except (OSError, ValueError):
            return {}

    def _written(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """So that two who set keys aside at once keep both; nobody is waited for longer than a
    writing takes."""
    handle = open_lock(file.with_name(f".{file.stem}.lock"))
    try:
        for _ in range(_TRIES):
            if try_lock(handle):
                break
            time.sleep(0.002)
        yield
    finally:
        os.close(handle)


def _digest(place: Place) -> str:
    return blake2b("\0".join(place).encode(), digest_size=16).hexdigest()

"""Keys that are set aside until they are worth a try again, remembered across processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from hermes.config.paths import private_folder
from hermes.config.private import replace_file

Place: TypeAlias = tuple[str, str]
"""Base URL and key: what limits are counted by."""


class Rest(Struct, frozen=True):
    until: float
    why: str


class Cooling:
    """Read once, when it is first asked for; written at once, for its owner only. On disk a key is
    a digest. A file that cannot be used is no reason to fail: the limit is met again."""

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._known: dict[str, Rest] | None = None

    def left(self, place: Place) -> float:
        """Seconds until this one is worth a try; 0: now."""
        rest = self.of(place)
        return max(0.0, rest.until - self._clock()) if rest is not None else 0.0

    def of(self, place: Place) -> Rest | None:
        if self._known is None:
            self._known = self._read()
        return self._known.get(_digest(place)) if self._known else None

    def set(self, place: Place, seconds: float, why: str) -> None:
        rest = Rest(self._clock() + seconds, why)
        self._known = {**(self._known or {}), **self._read(), _digest(place): rest}
        if self._file is None:
            return
        now = self._clock()
        kept = {digest: rest for digest, rest in self._known.items() if rest.until > now}
        with suppress(OSError):
            private_folder(self._file.parent)
            replace_file(self._file, msgspec.json.encode(kept))

    def _read(self) -> dict[str, Rest]:
        if self._file is None:
            return {}
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, Rest])
        except (OSError, ValueError):
            return {}


def _digest(place: Place) -> str:
    return blake2b("\0".join(place).encode(), digest_size=16).hexdigest()

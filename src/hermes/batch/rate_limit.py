"""Keeps the model calls of a run below so many requests and tokens a minute."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct

_BYTES_PER_TOKEN = 4
_MARGIN = 1.03
"""Requests start so much further apart: on their way to the provider some catch up with others."""
_SLACK = 0.25
"""A start that comes so many seconds late does not delay those after it."""


class CallLimit(Protocol):
    """Says when the model calls of a run may start."""

    async def admit(self, size: int) -> None:
        """Wait until a request of `size` bytes may start."""

    def charge(self, tokens: int) -> None:
        """Count tokens that were written."""


class NextStart(Struct):
    """When the next call may start, by the requests and by the tokens before it."""

    by_requests: float = 0.0
    by_tokens: float = 0.0


class Rates(Struct, frozen=True):
    """The seconds that a request and a token take up."""

    request: float
    token: float

    @classmethod
    def per_minute(cls, requests: float | None, tokens: float | None) -> Rates:
        return cls(_MARGIN * 60.0 / requests if requests else 0.0, 60.0 / tokens if tokens else 0.0)

    def take_start(self, due: NextStart, now: float, size: int) -> float:
        """The time at which a request of `size` bytes may start; the next one is later."""
        start = max(due.by_requests, due.by_tokens)
        if start < now - _SLACK:
            start = now
        due.by_requests = start + self.request
        due.by_tokens = start + self.token * (size / _BYTES_PER_TOKEN)
        return start

    def charge(self, due: NextStart, now: float, tokens: int) -> None:
        due.by_tokens = max(now, due.by_tokens) + self.token * tokens


class DueStart(Protocol):
    """Where the next start is noted."""

    def change(self) -> AbstractContextManager[NextStart]:
        """The next start, for the caller alone; what becomes of it is noted at the end."""


class OwnStart:
    """That of one process."""

    def __init__(self) -> None:
        self._due = NextStart()

    @contextmanager
    def change(self) -> Iterator[NextStart]:
        yield self._due


class SharedStart:
    """That of all processes of a run on this machine, which have one clock: in a file."""

    _form = struct.Struct("dd")

    def __init__(self, file: Path) -> None:
        self._file = file

    @contextmanager
    def change(self) -> Iterator[NextStart]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self._file, flags, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            data = os.pread(handle, self._form.size, 0)
            is_whole = len(data) == self._form.size
            due = NextStart(*self._form.unpack(data)) if is_whole else NextStart()
            yield due
            os.pwrite(handle, self._form.pack(due.by_requests, due.by_tokens), 0)
        finally:
            os.close(handle)


class RateLimit:
    """The limit of one process, or of all that share its `due`. Requests start at even intervals;
    tokens are estimated from the size of the request, and what an answer used is added when it is
    known. Only the next call has its start: one that is given up leaves none unused."""

    def __init__(
        self,
        rates: Rates,
        due: DueStart | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rates = rates
        self._due = due or OwnStart()
        self._clock = clock
        self._sleep = sleep
        self._turn = asyncio.Lock()

    async def admit(self, size: int) -> None:
        async with self._turn:
            now = self._clock()
            with self._due.change() as due:
                start = self._rates.take_start(due, now, size)
            if start > now:
                await self._sleep(start - now)

    def charge(self, tokens: int) -> None:
        if not self._rates.token:
            return
        with self._due.change() as due:
            self._rates.charge(due, self._clock(), tokens)

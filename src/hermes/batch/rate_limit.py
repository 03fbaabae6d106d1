"""Keeps the model calls of a run below so many requests and tokens a minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
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


class RateLimit:
    """The limit of one process. Requests start at even intervals; tokens are estimated from the
    size of the request, and what an answer used is added when it is known. Only the next call has
    its start: one that is given up leaves none unused."""

    def __init__(
        self,
        rates: Rates,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rates = rates
        self._due = NextStart()
        self._clock = clock
        self._sleep = sleep
        self._turn = asyncio.Lock()

    async def admit(self, size: int) -> None:
        async with self._turn:
            now = self._clock()
            start = self._rates.take_start(self._due, now, size)
            if start > now:
                await self._sleep(start - now)

    def charge(self, tokens: int) -> None:
        self._rates.charge(self._due, self._clock(), tokens)

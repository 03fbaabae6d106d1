"""Keeps the model calls of a run below so many requests and tokens a minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_BYTES_PER_TOKEN = 4
_MARGIN = 1.03
"""Requests start so much further apart: on their way to the provider some catch up with others."""


class RateLimit:
    """Requests start at even intervals; tokens are estimated from the size of the request, and
    what an answer used is added when it is known."""

    def __init__(
        self,
        requests: float | None,
        tokens: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Both are per minute."""
        self._interval = _MARGIN * 60.0 / requests if requests else 0.0
        self._token_seconds = 60.0 / tokens if tokens else 0.0
        self._next_request = self._next_token = 0.0
        self._clock = clock
        self._sleep = sleep

    async def admit(self, size: int) -> None:
        """Wait until a request of `size` bytes may start."""
        now = self._clock()
        start = max(now, self._next_request, self._next_token)
        self._next_request = start + self._interval
        self._next_token = max(start, self._next_token) + self._token_seconds * (
            size / _BYTES_PER_TOKEN
        )
        if start > now:
            await self._sleep(start - now)

    def charge(self, tokens: int) -> None:
        """Count tokens that were written."""
        self._next_token = max(self._clock(), self._next_token) + self._token_seconds * tokens

"""The events of runs straight from the nodes that work on them, where they are too many to read."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

log = logging.getLogger(__name__)
MAX_BLOCKS = 2000
"""Blocks of events that a node reads from the table in a second; beyond that it asks the owners."""
FOLLOWED_BY = "X-Hermes-Node"
"""The header with the name of the node that asks; who is asked asks nobody else."""
_SILENCE_SECONDS = 60.0
_RETRY_SECONDS = 10.0
"""How long an owner that could not be followed is not asked again."""


class OwnerStreams:
    """The table stays the truth: whatever an owner does not send is read there."""

    def __init__(self, node: str, find_address: Callable[[str], Awaitable[str]]) -> None:
        """`find_address`: of a living node by its name; empty: it has none."""
        self._node = node
        self._find_address = find_address
        self._refused: dict[str, float] = {}
        self._second = 0
        self._blocks = self._blocks_before = 0

    def note_block(self) -> None:
        """Count a read of the table."""
        self._turn_second()
        self._blocks += 1

    @property
    def is_busy(self) -> bool:
        self._turn_second()
        return max(self._blocks, self._blocks_before) > MAX_BLOCKS

    async def read_frames(
        self, owner: str, run_id: str, after: int, headers: Mapping[str, str]
    ) -> AsyncIterator[bytes]:
        """Yield the frames after number `after` as long as the owner sends them. `headers`: of the
        client that it is to let in."""
        now = time.monotonic()
        if FOLLOWED_BY in headers or self._refused.get(owner, 0.0) > now:
            return
        address = await self._find_address(owner)
        if not address:
            return
        import aiohttp

        url = f"{address.rstrip('/')}/v1/runs/{run_id}/events"
        sent = {**headers, "Last-Event-ID": str(after), FOLLOWED_BY: self._node}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_SILENCE_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http,
                http.get(url, headers=sent, timeout=timeout, allow_redirects=False) as answer,
            ):
                answer.raise_for_status()
                rest = b""
                async for piece in answer.content.iter_any():
                    *frames, rest = (rest + piece).split(b"\n\n")
                    for frame in frames:
                        if frame.startswith(b"id: "):  # not a comment
                            yield frame + b"\n\n"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._refused[owner] = time.monotonic() + _RETRY_SECONDS
            log.warning("the events of %s are read from the database: %s", owner, error)

    def _turn_second(self) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._blocks_before = self._blocks if second == self._second + 1 else 0
            self._second, self._blocks = second, 0

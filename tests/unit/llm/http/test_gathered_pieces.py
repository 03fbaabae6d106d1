"""Small pieces that follow each other quickly are read together."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from hermes.llm.http import transport
from hermes.llm.http.transport import Exchange


class Incoming:
    """A response whose pieces are there at once, and a socket that notes when nobody reads it."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.pauses = 0
        self.is_paused = False
        self.content = self
        self.status, self.headers, self.content_type = 200, dict[str, str](), "text/event-stream"
        self.connection = SimpleNamespace(transport=self)

    def is_eof(self) -> bool:
        return not self.pieces

    async def readany(self) -> bytes:
        assert not self.is_paused
        return self.pieces.pop(0) if self.pieces else b""

    def pause_reading(self) -> None:
        self.pauses += 1
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


@pytest.fixture(autouse=True)
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "time", SimpleNamespace(monotonic=lambda: 1.0))
    monkeypatch.setattr(transport, "GATHER_SECONDS", 0.001)


async def _read_all(pieces: list[bytes]) -> tuple[bytes, int]:
    incoming: Any = Incoming(list(pieces))
    exchange = Exchange(incoming, "host")
    got = b""
    while data := await exchange.read():
        got += data
    return got, incoming.pauses


@pytest.mark.parametrize(
    ("pieces", "pauses"),
    [
        ([b"x"] * 8, 0),  # a short answer does not wait, and neither does the end of any
        ([b"x"] * 20, 12),
        ([b"x" * 4000] * 20, 0),
        ([b"x"] * 7 + [b"x" * 4000] + [b"x"] * 7, 0),
    ],
)
async def test_only_many_small_pieces_are_gathered(pieces: list[bytes], pauses: int) -> None:
    assert await _read_all(pieces) == (b"".join(pieces), pauses)


async def test_a_call_that_is_cancelled_meanwhile_leaves_the_socket_readable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "GATHER_SECONDS", 600.0)
    incoming: Any = Incoming([b"x"] * 20)
    exchange = Exchange(incoming, "host")
    for _ in range(8):
        await exchange.read()
    task = asyncio.create_task(exchange.read())
    while not incoming.is_paused:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not incoming.is_paused

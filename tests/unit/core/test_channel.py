"""A subscriber that does not read costs a bounded number of items and loses nothing."""

from __future__ import annotations

import asyncio

from hermes.core.channel import Channel
from hermes.core.events import Notice, TextDelta, ThinkingDelta


async def test_unread_deltas_conflate_in_order() -> None:
    channel = Channel()
    for i in range(10_000):
        channel.put(TextDelta(str(i % 10)))
    channel.put(ThinkingDelta("a"))
    channel.put(ThinkingDelta("b"))
    channel.put(Notice("x", "y"))
    channel.put(TextDelta("end"))
    channel.close()
    events = [e async for e in channel]
    assert events == [
        TextDelta("0123456789" * 1000),
        ThinkingDelta("ab"),
        Notice("x", "y"),
        TextDelta("end"),
    ]


async def test_a_waiting_reader_is_woken() -> None:
    channel = Channel()

    async def read() -> list[object]:
        return [e async for e in channel]

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    channel.put(TextDelta("a"))
    await asyncio.sleep(0)
    channel.put(TextDelta("b"))
    channel.close()
    assert "".join(e.text for e in await reader) == "ab"  # type: ignore[attr-defined]

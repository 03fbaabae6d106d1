"""Event queues with one reader that never block the writer, and a broadcast to many."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol

from hermes.core.events import TextDelta, ThinkingDelta, TurnEvent


class _DeltaRun:
    """Adjacent deltas of one kind, joined when they are read."""

    __slots__ = ("kind", "pieces")

    def __init__(self, kind: type[TextDelta] | type[ThinkingDelta], text: str) -> None:
        self.kind = kind
        self.pieces = [text]


class Channel:
    """A queue of events. Adjacent deltas are merged while unread; all other events are kept."""

    __slots__ = ("_closed", "_items", "_waiter")

    def __init__(self) -> None:
        self._items: deque[TurnEvent | _DeltaRun] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def put(self, event: TurnEvent) -> None:
        if self._closed:
            return
        kind = type(event)
        if kind is TextDelta or kind is ThinkingDelta:
            text: str = event.text  # type: ignore[union-attr]
            last = self._items[-1] if self._items else None
            if isinstance(last, _DeltaRun) and last.kind is kind:
                last.pieces.append(text)
                return
            self._items.append(_DeltaRun(kind, text))
        else:
            self._items.append(event)
        self._wake_reader()

    def close(self) -> None:
        """End the iteration after the unread events."""
        self._closed = True
        self._wake_reader()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def _wake_reader(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> AsyncIterator[TurnEvent]:
        return self

    async def __anext__(self) -> TurnEvent:
        while not self._items:
            if self._closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._pop_event()

    def drain_events(self) -> list[TurnEvent]:
        """All unread events, without waiting."""
        return [self._pop_event() for _ in range(len(self._items))]

    def _pop_event(self) -> TurnEvent:
        item = self._items.popleft()
        if isinstance(item, _DeltaRun):
            pieces = item.pieces
            return item.kind(pieces[0] if len(pieces) == 1 else "".join(pieces))
        return item


class EventSink(Protocol):
    """What takes events as they happen."""

    @property
    def is_closed(self) -> bool: ...

    def put(self, event: TurnEvent) -> None: ...

    def close(self) -> None: ...


class Broadcast:
    """Puts every event into all open channels."""

    __slots__ = ("_channels",)

    def __init__(self) -> None:
        self._channels: list[EventSink] = []

    def subscribe(self) -> Channel:
        """A channel that receives all events from now on. Its reader closes it."""
        channel = Channel()
        self.attach_sink(channel)
        return channel

    def attach_sink(self, sink: EventSink) -> None:
        """Hand every event from now on to `sink`, in the step in which it happens."""
        self._channels = [channel for channel in self._channels if not channel.is_closed]
        self._channels.append(sink)

    def put(self, event: TurnEvent) -> None:
        for channel in self._channels:
            channel.put(event)

    def close(self) -> None:
        while self._channels:
            self._channels.pop().close()

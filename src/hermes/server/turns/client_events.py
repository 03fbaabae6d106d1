"""The events of a session as its client sees them."""

from collections import deque

from msgspec import structs

from hermes.app.session import Session
from hermes.core.events import TextDelta, TurnEnd, TurnEvent, TurnResult
from hermes.server.turns.image_links import ImageLinkFilter, link_images

_NEVER_STARTED = TurnResult("interrupted", error="Interrupted.", error_code="interrupted")


class ClientEvents:
    """Iterates over the events of a session, in order. Remote images become links when they could
    leak data, unless `keep_images`."""

    __slots__ = ("_channel", "_filter", "_keep_images", "_ready", "_session")

    def __init__(self, session: Session, *, keep_images: bool) -> None:
        self._session = session
        self._channel = session.subscribe_events()
        self._keep_images = keep_images
        self._filter: ImageLinkFilter | None = None
        self._ready: deque[TurnEvent] = deque()

    def stop_turn(self) -> None:
        """Interrupt the turn. A turn that is only about to start ends with a TurnEnd as well."""
        if self._session.is_starting:
            self._channel.put(TurnEnd(_NEVER_STARTED))
        self._session.stop()

    def __aiter__(self) -> "ClientEvents":
        return self

    async def __anext__(self) -> TurnEvent:
        while not self._ready:
            self._ready += self._filter_event(await self._channel.__anext__())
        return self._ready.popleft()

    def take_ready_events(self) -> list[TurnEvent]:
        """The events that are available now, without waiting."""
        found = [*self._ready]
        self._ready.clear()
        for event in self._channel.drain_events():
            found += self._filter_event(event)
        return found

    def _filter_event(self, event: TurnEvent) -> list[TurnEvent]:
        if self._keep_images or not self._session.transcript.taint.can_leak:
            return [event]
        if isinstance(event, TextDelta):
            self._filter = self._filter or ImageLinkFilter()
            text = self._filter.feed(event.text)
            return [TextDelta(text)] if text else []
        held_back = self._filter.close() if self._filter else ""
        self._filter = None  # the next delta starts another text
        if isinstance(event, TurnEnd):
            result = event.result
            event = TurnEnd(structs.replace(result, text=link_images(result.text)))
        return [TextDelta(held_back), event] if held_back else [event]

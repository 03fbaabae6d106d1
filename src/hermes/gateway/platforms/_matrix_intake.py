"""What comes from Matrix rooms: messages, invitations, and what cannot be decrypted yet."""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from hermes.gateway import texts
from hermes.gateway.adapter import ChatType, Receiver, SendFailure
from hermes.gateway.platforms._matrix_client import (
    MatrixRefusal,
    MatrixSettings,
    call_homeserver,
)
from hermes.gateway.platforms._matrix_events import RoomView, read_event, read_relation
from hermes.gateway.transport.payload import MALFORMED

log = logging.getLogger(__name__)

KEY_SECONDS = 5.0
"""How long the key of a message may come later than the message."""
FORGET_SECONDS = 600.0
FIRST_SECONDS = 86400.0
PAGE = 100
_MOST_PAGES = 50


class MatrixState(Struct):
    """What a restart must know."""

    since: str = ""
    """Up to here every message was stored."""
    device: str = ""
    told_rooms: list[str] = []
    """Rooms that know that something could not be decrypted."""


class RoomIntake:
    """Hands over what a sync brought, message by message."""

    def __init__(
        self,
        client: Any,
        settings: MatrixSettings,
        state: MatrixState,
        receiver: Receiver,
        tell: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._client = client
        self._settings = settings
        self._state = state
        self._receiver = receiver
        self._tell = tell
        """Says something in a room."""
        self._undecrypted: dict[str, tuple[Any, float]] = {}

    @property
    def waits_for_keys(self) -> bool:
        return any(self._is_untold(event) for event, _ in self._undecrypted.values())

    async def receive_timeline(self, room_id: str, timeline: Any) -> None:
        events = list(timeline.events)
        entered = _find_entry(events, self._client.user_id)
        if entered is not None:
            events = events[entered:]  # what was said before the invitation was not said to us
        elif timeline.limited and self._state.since:
            events = await self._fetch_gap(room_id, timeline.prev_batch) + events
        if not self._state.since:
            events = _list_unanswered(events, self._client.user_id)
        for event in events:
            await self._receive_event(room_id, event)

    async def _fetch_gap(self, room_id: str, start: str) -> list[Any]:
        """What came since the last stored message and did not fit into the answer."""
        found: list[Any] = []
        for _ in range(_MOST_PAGES):
            page = await call_homeserver(
                self._client.room_messages(room_id, start, end=self._state.since, limit=PAGE)
            )
            found += page.chunk
            if not page.chunk or not page.end:
                break
            start = page.end
        return found[::-1]

    async def _receive_event(self, room_id: str, event: Any) -> None:
        from nio import MegolmEvent

        if isinstance(event, MegolmEvent):
            if event.sender != self._client.user_id:
                event.room_id = room_id
                self._undecrypted[event.event_id] = (event, time.monotonic())
            return
        source = getattr(event, "source", None)
        if not isinstance(source, dict) or source.get("type") != "m.room.message":
            return
        room = self._client.rooms.get(room_id)
        if room is None or source.get("sender") == self._client.user_id:
            return
        try:
            view = self._view_room(room, str(source["sender"]))
            answered = await self._find_answered(room_id, source)
            message = read_event(source, room_id, view, answered)
        except MALFORMED:  # not what Matrix describes
            log.exception("an event of Matrix was left out")
            return
        if message is not None:
            await self._receiver.receive_message(message)

    def _view_room(self, room: Any, sender: str) -> RoomView:
        """A room with one other person is a direct chat, unless it is listed as a group."""
        me = self._client.user_id
        is_direct = room.member_count <= 2 and room.room_id not in self._settings.allowed_chats
        chat_type: ChatType = "dm" if is_direct else "group"
        return RoomView(me, room.user_name(me) or "", chat_type, room.user_name(sender) or "")

    async def _find_answered(self, room_id: str, source: dict[str, Any]) -> tuple[str, str]:
        """The sender and the text of the message that this one replies to."""
        id = read_relation(source["content"]).replies_to
        if not id or not self._may_know(str(source["sender"]), room_id):
            return "", ""
        from nio import ErrorResponse, MegolmEvent
        from nio.exceptions import EncryptionError

        response = await self._client.room_get_event(room_id, id)
        if isinstance(response, ErrorResponse):
            return "", ""
        event = response.event
        if isinstance(event, MegolmEvent):
            event.room_id = room_id
            try:
                event = self._client.decrypt_event(event)
            except EncryptionError:
                return event.sender, ""
        return event.sender, str(event.source.get("content", {}).get("body") or "")

    def _may_know(self, user: str, room_id: str) -> bool:
        """Whether something may be fetched or said because of this person."""
        settings = self._settings
        if settings.lets_in(user) or settings.pairs_people:
            return True
        return settings.group_members and room_id in settings.allowed_chats

    async def answer_invitation(self, room_id: str, events: list[Any]) -> None:
        """Join when an allowed person invites. While codes are given out, everybody may open a
        direct chat, since that is where a code is said."""
        found = next(
            (e for e in events if getattr(e, "state_key", None) == self._client.user_id), None
        )
        if found is None or getattr(found, "membership", "") != "invite":
            return
        settings = self._settings
        is_direct = bool(found.content.get("is_direct"))
        if not settings.lets_in(found.sender) and not (settings.pairs_people and is_direct):
            log.info("an invitation of %s was ignored", found.sender)
            return
        try:
            await call_homeserver(self._client.join(room_id))
        except MatrixRefusal as refusal:
            if refusal.status == 429 or refusal.status >= 500:
                raise  # the token is not stored, so the invitation comes again
            log.info("the room %s cannot be joined: %s", room_id, refusal)

    async def retry_undecrypted(self) -> None:
        from nio.exceptions import EncryptionError

        now = time.monotonic()
        for id, (event, began) in list(self._undecrypted.items()):
            try:
                if self._client.olm is None:
                    raise EncryptionError("encryption is off")
                readable = self._client.decrypt_event(event)
            except EncryptionError:
                if now - began >= KEY_SECONDS and self._is_untold(event):
                    await self._tell_undecrypted(event)
                if now - began >= FORGET_SECONDS:
                    del self._undecrypted[id]
                continue
            del self._undecrypted[id]
            await self._receive_event(event.room_id, readable)

    def _is_untold(self, event: Any) -> bool:
        return event.room_id not in self._state.told_rooms

    async def _tell_undecrypted(self, event: Any) -> None:
        self._state.told_rooms.append(event.room_id)
        log.warning("a message in the Matrix room %s could not be decrypted", event.room_id)
        if self._client.olm is None or not self._may_know(event.sender, event.room_id):
            return
        try:
            await self._tell(event.room_id, texts.UNDECRYPTED)
        except SendFailure as failure:
            log.info("the notice was not delivered: %s", failure)


def _find_entry(events: list[Any], me: str) -> int | None:
    """Where our own invitation or entry is, if the account came into the room just now."""
    own = [
        (index, getattr(event, "membership", ""))
        for index, event in enumerate(events)
        if getattr(event, "state_key", None) == me
        and getattr(event, "membership", "") in ("invite", "join")
        and getattr(event, "prev_membership", "") != "join"
    ]
    return own[0][0] if own else None


def _list_unanswered(events: list[Any], me: str) -> list[Any]:
    """At the very first start: what was said in the last day, after our last word, and not to
    another device of ours."""
    from nio import MegolmEvent

    oldest = (time.time() - FIRST_SECONDS) * 1000
    found: list[Any] = []
    for event in events:
        if getattr(event, "sender", "") == me and not hasattr(event, "membership"):
            found = []
        elif not isinstance(event, MegolmEvent) and event.server_timestamp >= oldest:
            found.append(event)
    return found

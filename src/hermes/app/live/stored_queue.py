"""Messages that were accepted and are not in a transcript yet: they outlive the process."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from hermes.core.message import Message
from hermes.core.store import Objects

TurnState: TypeAlias = Literal["running", "queued", "steered"]
_KIND = "queued_turn"
_SENT_KIND = "web_turn"
_MAX_SENT = 2000
"""How many sends are remembered, so that a repeated one is the same turn."""


class QueuedMessage(Struct):
    """A message that runs or waits."""

    id: str
    message: Message
    session: str = ""
    principal: str = ""
    """Whose key sent it; empty: the operator's."""
    toolsets: tuple[str, ...] | None = None
    """With which it is answered; None: those of its session's surface."""
    sent_id: str = ""
    """How its sender would name it again; empty: it is sent once."""


class StoredQueue:
    """A message is put before anybody is told that it was accepted, and dropped once a transcript
    has it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def put_message(self, item: QueuedMessage) -> None:
        await self._objects.put(_KIND, item.id, msgspec.msgpack.encode(item))

    async def drop_message(self, item: QueuedMessage) -> None:
        await self._objects.remove(_KIND, item.id, owner="")

    async def list_messages(self) -> list[QueuedMessage]:
        """All of them, in the order in which they were accepted."""
        found = await self._objects.list_all(_KIND)
        return [msgspec.msgpack.decode(row.body, type=QueuedMessage) for row in found]

    async def record_send(self, item: QueuedMessage, state: TurnState) -> None:
        """Remember that a message was accepted, until many others were."""
        body = msgspec.json.encode((item.id, state))
        await self._objects.put(_SENT_KIND, item.sent_id, body, keep_latest=_MAX_SENT)

    async def find_send(self, sent_id: str) -> tuple[str, TurnState] | None:
        """The turn of an earlier send, also of one whose server died before it was recorded."""
        if found := await self._objects.get(_SENT_KIND, sent_id, owner=""):
            return msgspec.json.decode(found.body, type=tuple[str, TurnState])
        waiting = (item for item in await self.list_messages() if item.sent_id == sent_id)
        return next(((item.id, "queued") for item in waiting), None)

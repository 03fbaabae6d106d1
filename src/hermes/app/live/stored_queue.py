"""Messages that were accepted and are not in a transcript yet: they outlive the process."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from hermes.core.message import Message
from hermes.core.store import Objects

_KIND = "queued_turn"


class QueuedMessage(Struct):
    """A message that runs or waits."""

    id: str
    message: Message
    session: str = ""
    principal: str = ""
    """Whose key sent it; empty: the operator's."""


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

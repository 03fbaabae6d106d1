"""A past that callers bring again and again: what it was shortened to is remembered."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from hermes.core.errors import StoreError
from hermes.core.message import Message
from hermes.core.store import Store

log = logging.getLogger(__name__)

_OBJECT_KIND = "handoff"
_MAX_STORED = 200


class _StoredBeginning(Struct):
    covered: int
    """So many messages of the past it stands for."""
    digest: bytes
    """Of those: another past is not this one, whatever it is called."""
    messages: tuple[Message, ...]


class ClientConversation(Struct, frozen=True):
    """A conversation whose past the client brings along with each turn."""

    id: str
    past: tuple[Message, ...] = ()
    instructions: str = ""
    """Added to the system prompt, never stored."""
    persistent: bool = True
    """Whether anything of it is stored."""


class ClientHistory:
    """The whole past of one conversation, and what its turn begins with instead. Without it each
    turn of a long conversation would ask a model for the same summary again."""

    def __init__(self, store: Store, conversation: ClientConversation) -> None:
        self.messages = conversation.past
        self.persistent = conversation.persistent
        self._store = store
        self._id = conversation.id
        self._beginning: tuple[Message, ...] | None = conversation.past

    async def recall_messages(self) -> tuple[Message, ...]:
        with suppress(StoreError, msgspec.DecodeError):
            get = self._store.objects.get
            found = (
                await get(_OBJECT_KIND, self._id, owner="")
                if self.persistent and self.messages
                else None
            )
            if found is not None:
                kept = msgspec.msgpack.decode(found.body, type=_StoredBeginning)
                covered = self.messages[: kept.covered]
                if len(covered) == kept.covered and _hash_messages(covered) == kept.digest:
                    self._beginning = (*kept.messages, *self.messages[kept.covered :])
        return self._beginning or ()

    async def save_shortened(self, old: Sequence[Message], new: Sequence[Message]) -> None:
        """The history `old` became `new`: what is not of this turn is kept for the next one."""
        begins, self._beginning = self._beginning, None
        if begins is None:
            return
        own = len(old) - len(begins)
        cut = len(new) - own
        if cut < 0 or list(new[cut:]) != list(old[len(begins) :]):
            return  # of this turn, too, something was shortened
        self._beginning = tuple(new[:cut])
        if not self.persistent:
            return
        kept = _StoredBeginning(len(self.messages), _hash_messages(self.messages), self._beginning)
        try:
            await self._store.objects.put(
                _OBJECT_KIND, self._id, msgspec.msgpack.encode(kept), keep_latest=_MAX_STORED
            )
        except StoreError as error:
            log.warning("what session %s was shortened to is not kept: %s", self._id, error)


def _hash_messages(messages: Sequence[Message]) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(messages)).digest()

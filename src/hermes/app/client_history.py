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

KIND = "handoff"
MOST = 200


class _StoredBeginning(Struct):
    covered: int
    """So many messages of the past it stands for."""
    digest: bytes
    """Of those: another past is not this one, whatever it is called."""
    messages: tuple[Message, ...]


class ClientHistory:
    """The whole past of one conversation, and what its turn begins with instead. Without it each
    turn of a long conversation would ask a model for the same summary again."""

    def __init__(
        self, store: Store, session_id: str, past: tuple[Message, ...], *, keep: bool
    ) -> None:
        self.messages = past
        self.kept = keep
        self._store = store
        self._id = session_id
        self._begins: tuple[Message, ...] | None = past

    async def recall(self) -> tuple[Message, ...]:
        with suppress(StoreError, msgspec.DecodeError):
            get = self._store.objects.get
            found = await get(KIND, self._id, owner="") if self.kept and self.messages else None
            if found is not None:
                kept = msgspec.msgpack.decode(found.body, type=_StoredBeginning)
                covered = self.messages[: kept.covered]
                if len(covered) == kept.covered and _digest(covered) == kept.digest:
                    self._begins = (*kept.messages, *self.messages[kept.covered :])
        return self._begins or ()

    async def keep(self, old: Sequence[Message], new: Sequence[Message]) -> None:
        """The history `old` became `new`: what is not of this turn is kept for the next one."""
        begins, self._begins = self._begins, None
        if begins is None:
            return
        own = len(old) - len(begins)
        cut = len(new) - own
        if cut < 0 or list(new[cut:]) != list(old[len(begins) :]):
            return  # of this turn, too, something was shortened
        self._begins = tuple(new[:cut])
        if not self.kept:
            return
        kept = _StoredBeginning(len(self.messages), _digest(self.messages), self._begins)
        try:
            await self._store.objects.put(
                KIND, self._id, msgspec.msgpack.encode(kept), keep_latest=MOST
            )
        except StoreError as error:
            log.warning("what session %s was shortened to is not kept: %s", self._id, error)


def _digest(messages: Sequence[Message]) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(messages)).digest()

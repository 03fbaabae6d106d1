"""A session's transcript: append-only, with room for the encoders' incremental state."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from hermes.core.message import Message


class History:
    """Messages are only ever added. `views` holds what encoders derived from them so far, keyed
    by target and quirks, so that each message is made legal and serialised once per target."""

    __slots__ = ("messages", "views")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages: list[Message] = list(messages)
        self.views: dict[Hashable, Any] = {}

    def append(self, message: Message) -> None:
        self.messages.append(message)

    def __len__(self) -> int:
        return len(self.messages)

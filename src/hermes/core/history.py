"""The append-only messages of a session, with the encoders' incremental state."""

from collections.abc import Hashable, Iterable
from typing import Any

from hermes.core.message import Message


class History:
    """Messages are only ever added. `views` holds what encoders derived from them so far, keyed
    by target and quirks, so that each message is made legal and serialised once per target.
    `sent` holds what was last sent to each target, `refused` up to which message a target takes no
    images because one of them was bad. `mark` names the wrapper that tool results are
    shown in; empty: none."""

    __slots__ = ("_call_ids", "mark", "messages", "refused", "sent", "views")

    def __init__(self, messages: Iterable[Message] = (), *, mark: str = "") -> None:
        self.mark = mark
        self.messages: list[Message] = list(messages)
        self.views: dict[Hashable, Any] = {}
        self.sent: dict[Hashable, Any] = {}
        self.refused: dict[Hashable, int] = {}
        self._call_ids: set[str] | None = None

    def append(self, message: Message) -> None:
        self.messages.append(message)
        if self._call_ids is not None:
            self._call_ids.update(c.id for c in message.calls)

    @property
    def call_ids(self) -> set[str]:
        """Ids of all tool calls so far."""
        if self._call_ids is None:
            self._call_ids = {call.id for m in self.messages for call in m.calls}
        return self._call_ids

    def __len__(self) -> int:
        return len(self.messages)

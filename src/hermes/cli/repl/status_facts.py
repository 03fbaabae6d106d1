"""What the status line says of a conversation: model, context, cache, cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes.core.message import Message, Usage


class Facts:
    """Counted from the messages that were recorded, never from the whole history again."""

    def __init__(self) -> None:
        self.model = ""
        self.window: int | None = None
        self.mode = ""
        self.background = 0
        self._used = 0
        self._input = 0
        self._cached = 0
        self._cost = 0.0
        self._known = True
        """Whether every call said what it cost."""

    def begin(self, messages: Iterable[Message]) -> None:
        self._used = self._input = self._cached = 0
        self._cost, self._known = 0.0, True
        for message in messages:
            self.count(message)

    def count(self, message: Message) -> None:
        usage: Usage | None = message.usage
        if usage is None:
            return
        self._used = usage.input + usage.output
        self._input += usage.input
        self._cached += usage.cache_read
        if usage.cost is None:
            self._known = False
        else:
            self._cost += usage.cost

    def shown(self) -> list[str]:
        found = [word for word in (self.model, self.mode) if word]
        if self.window and self._used:
            found.append(f"context {100 * self._used / self.window:.0f}%")
        if self._input and self._cached:
            found.append(f"cache {100 * self._cached / self._input:.0f}%")
        if self._cost:
            more = "" if self._known else "+"
            found.append(
                f"${self._cost:.4f}{more}" if self._cost < 1 else f"${self._cost:.2f}{more}"
            )
        if self.background:
            found.append(f"{self.background} in the background")
        return found

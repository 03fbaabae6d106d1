"""Cache markers on the last messages of a request, while all bytes before them stay the same."""

from __future__ import annotations

from collections.abc import Iterable

MARKER = {"type": "ephemeral"}
MARKED = 3
"""Messages that carry a cache marker besides the system prompt."""

Forms = tuple[bytes, bytes]
"""A message without and with a marker; the second is empty when it can carry none."""


class Tail:
    """Messages are only ever added. The last that may carry a marker wait in both forms; what lies
    before them is settled, in its plain one."""

    __slots__ = ("_kept", "_marks", "_recent")

    def __init__(self, *, marks: bool) -> None:
        self._kept = bytearray()
        self._recent: list[Forms] = []
        self._marks = marks

    def push(self, messages: Iterable[Forms]) -> None:
        recent = self._recent
        recent.extend(messages)
        settled = len(recent)
        if self._marks:
            carriers = [i for i, (_, marked) in enumerate(recent) if marked]
            settled = carriers[-MARKED] if len(carriers) >= MARKED else 0
        if settled:
            self._kept += b"".join([plain + b"," for plain, _ in recent[:settled]])
            del recent[:settled]

    def joined(self, head: bytes, pending: Iterable[Forms], end: bytes = b"]}") -> bytes:
        """Everything with `pending` behind it, the last ones marked."""
        last: list[bytes] = []
        left = MARKED
        for plain, marked in reversed([*self._recent, *pending]):
            last.append(marked if marked and left > 0 else plain)
            left -= bool(marked)
        if not last:
            return (head + self._kept).removesuffix(b",") + end
        last.reverse()
        return b"".join((head, self._kept, b",".join(last), end))

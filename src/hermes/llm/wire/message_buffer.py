"""Messages of a request, only ever added to: their bytes, and cache markers on the last ones."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

MARKER = {"type": "ephemeral"}
MAX_MARKED = 3
"""Messages that carry a cache marker besides the system prompt."""

MessageForms = tuple[bytes, bytes]
"""A message without and with a marker; the second is empty when it can carry none."""


class SentMessages(Struct, frozen=True):
    """What one request was made of, markers left out. `kept` only ever grows: its first `settled`
    bytes are this request's."""

    head: bytes
    kept: bytearray
    settled: int
    closed: bytes
    """Behind that: messages that will not change any more."""
    open: bytes
    """And those that still may."""


class MessageBuffer:
    """Messages are only ever added. The last that may carry a marker wait in both forms; what lies
    before them is settled, in its plain one."""

    __slots__ = ("_kept", "_marks", "_recent", "last_sent")

    def __init__(self, *, marks: bool = False) -> None:
        self._kept = bytearray()
        self._recent: list[MessageForms] = []
        self._marks = marks
        self.last_sent: SentMessages | None = None
        """The last request."""

    def add_messages(self, messages: Iterable[MessageForms]) -> None:
        recent = self._recent
        recent.extend(messages)
        settled = len(recent)
        if self._marks:
            carriers = [i for i, (_, marked) in enumerate(recent) if marked]
            settled = carriers[-MAX_MARKED] if len(carriers) >= MAX_MARKED else 0
        if settled:
            self._kept += b"".join([plain + b"," for plain, _ in recent[:settled]])
            del recent[:settled]

    def join_body(self, head: bytes, pending: Iterable[MessageForms]) -> bytes:
        """Everything with `pending` behind it, the last ones marked."""
        fresh = list(pending)
        self.last_sent = SentMessages(
            head,
            self._kept,
            len(self._kept),
            b"".join([plain + b"," for plain, _ in self._recent]),
            b",".join([plain for plain, _ in fresh]),
        )
        last: list[bytes] = []
        left = MAX_MARKED
        for plain, marked in reversed([*self._recent, *fresh]):
            last.append(marked if marked and left > 0 else plain)
            left -= bool(marked)
        if not last:
            return (head + self._kept).removesuffix(b",") + b"]}"
        last.reverse()
        return b"".join((head, self._kept, b",".join(last), b"]}"))

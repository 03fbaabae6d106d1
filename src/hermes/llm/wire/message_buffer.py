"""The encoded messages of a conversation, with cache markers on the last ones."""

from collections.abc import Iterable

from msgspec import Struct

MARKER = {"type": "ephemeral"}
MAX_MARKED = 3
"""How many messages carry a cache marker, besides the system prompt."""

MessageForms = tuple[bytes, bytes]
"""A message without and with a marker; the second is empty if it cannot carry one."""


class SentMessages(Struct, frozen=True):
    """What a request consisted of, without markers. `kept` is shared and only grows; this request
    had its first `settled` bytes."""

    head: bytes
    kept: bytearray
    settled: int
    closed: bytes
    """The messages after those that will not change."""
    open: bytes
    """The messages that may still change."""


class MessageBuffer:
    """Messages are only ever added. The last ones that can carry a marker are kept in both forms,
    those before them only without."""

    __slots__ = ("_kept", "_marks", "_recent", "last_sent")

    def __init__(self, *, marks: bool = False) -> None:
        self._kept = bytearray()
        self._recent: list[MessageForms] = []
        self._marks = marks
        self.last_sent: SentMessages | None = None
        """The last request; None: there was none."""

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
        """The body: `head`, all messages and then `pending`, with markers on the last ones."""
        fresh = list(pending)
        self.last_sent = SentMessages(
            head,
            self._kept,
            len(self._kept),
            b"".join([plain + b"," for plain, _ in self._recent]),
            b",".join([plain for plain, _ in fresh]),
        )
        last: list[bytes] = []
        markers_left = MAX_MARKED
        for plain, marked in reversed([*self._recent, *fresh]):
            last.append(marked if marked and markers_left > 0 else plain)
            markers_left -= bool(marked)
        if not last:
            return (head + self._kept).removesuffix(b",") + b"]}"
        last.reverse()
        return b"".join((head, self._kept, b",".join(last), b"]}"))

"""Joins a continuation to the text it continues, without repeated words."""

WINDOW = 200
SHORTEST = 10
"""A shorter repetition may be intended (lists, refrains)."""


def overlap_length(before: str, after: str) -> int:
    """How many characters at the start of `after` repeat the end of `before`."""
    for size in range(min(len(before), len(after), WINDOW), SHORTEST - 1, -1):
        if before.endswith(after[:size]):
            return size
    return 0


def strip_overlap(before: str, after: str) -> str:
    return after[overlap_length(before, after) :]


class OverlapFilter:
    """The same for a stream: holds back the first characters while they may be a repetition."""

    __slots__ = ("_before", "_held", "_open")

    def __init__(self, before: str) -> None:
        self._before = before[-WINDOW:]
        self._held = ""
        self._open = True

    def feed(self, text: str) -> str:
        if not self._open:
            return text
        self._held += text
        if len(self._held) < WINDOW and self._held in self._before:
            return ""
        return self.finish()

    def finish(self) -> str:
        if not self._open:
            return ""
        self._open = False
        held, self._held = self._held, ""
        return strip_overlap(self._before, held)

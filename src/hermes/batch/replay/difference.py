"""What a replay finds: the first place where it differs from what was recorded."""

from __future__ import annotations

from msgspec import Struct

from hermes.llm.http.tape import count_common

_AROUND = 60
"""Characters that are shown on each side of a difference."""


class Difference(Struct, frozen=True):
    """The first difference between a recording and its replay."""

    step: int
    kind: str
    """request, message, or calls: more or fewer of them than were recorded."""
    byte: int
    """Its place in the request or message."""
    recorded: str
    """The text around it as it was recorded."""
    replayed: str


class ReplayReport(Struct, frozen=True, omit_defaults=False):
    """How a replay ended."""

    identical: bool
    steps: int
    difference: Difference | None = None


def compare_bytes(step: int, kind: str, recorded: bytes, replayed: bytes) -> Difference:
    """Where two requests or messages differ, with the text around that."""
    at = count_common(recorded, replayed)
    return Difference(step, kind, at, _show_around(recorded, at), _show_around(replayed, at))


def _show_around(data: bytes, at: int) -> str:
    before = data[max(0, at - 4 * _AROUND) : at].decode("utf-8", "replace")[-_AROUND:]
    return before + data[at : at + 4 * _AROUND].decode("utf-8", "replace")[:_AROUND]

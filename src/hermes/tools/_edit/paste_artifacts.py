"""What a block brought along from where it was copied: line numbers, the signs of a diff."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

_NUMBER = re.compile(r" {0,10}(\d{1,7})[|\t→│]")
_ESCAPES = ('\\"', "\\'", "&quot;", "&#39;", "&lt;", "&gt;", "&amp;")


class Copied(Struct, frozen=True):
    """The block as it is meant, and what shall be there instead."""

    old: list[str]
    new: list[str]
    line: int = 0
    """Which line it was said to begin with, from 1."""


def bare(old: Sequence[str], new: Sequence[str]) -> Copied | None:
    """Without its line numbers or signs; None when it has none."""
    return _unnumbered(old, new) or _unsigned(old, new)


def _unnumbered(old: Sequence[str], new: Sequence[str]) -> Copied | None:
    found = [_NUMBER.match(row) for row in old]
    numbers = [int(m[1]) for m in found if m]
    if not numbers or numbers != list(range(numbers[0], numbers[0] + len(old))):
        return None
    return Copied(
        [row[m.end() :] for row, m in zip(old, found, strict=True) if m],
        [row[m.end() :] if (m := _NUMBER.match(row)) else row for row in new],
        numbers[0],
    )


def _unsigned(old: Sequence[str], new: Sequence[str]) -> Copied | None:
    if not (_all_begin(old, "-") and _all_begin(new, "+")):
        return None
    return Copied([row[1:] for row in old], [row[1:] for row in new])


def _all_begin(rows: Sequence[str], sign: str) -> bool:
    signs = {row[0] for row in rows if row}
    return sign in signs and signs <= {sign, " "}


def escaped(written: Sequence[str], there: Sequence[str]) -> str:
    """What the block escapes though the file does not; nothing when there is no such thing."""
    mine, theirs = "\n".join(written), "\n".join(there)
    return next((mark for mark in _ESCAPES if mine.count(mark) > theirs.count(mark)), "")


def advice(old: Sequence[str]) -> str:
    """What may be wrong with a block that is nowhere."""
    if len(old) == 1 and "\\n" in old[0]:
        return " It has \\n as two characters: write real line breaks."
    if old[0].lstrip().startswith("```"):
        return " It is fenced with ```: give only the lines of the file."
    if any(mark in row for mark in _ESCAPES[2:] for row in old):
        return " It has HTML entities: write the characters themselves."
    if any(row.strip() in ("...", "…", "# ...", "// ...") for row in old):
        return " It leaves lines out (...): give all of them, or change each place by itself."
    return ""

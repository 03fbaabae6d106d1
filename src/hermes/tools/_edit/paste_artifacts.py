"""What a block brought along from where it was copied: line numbers, the signs of a diff."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

_LINE_NUMBER = re.compile(r" {0,10}(\d{1,7})[|\t→│]")
_ESCAPES = ('\\"', "\\'", "&quot;", "&#39;", "&lt;", "&gt;", "&amp;")


class CleanBlock(Struct, frozen=True):
    """The block as it is meant, and what shall be there instead."""

    old: list[str]
    new: list[str]
    line: int = 0
    """Which line it was said to begin with, from 1."""


def strip_artifacts(old: Sequence[str], new: Sequence[str]) -> CleanBlock | None:
    """Without its line numbers or signs; None when it has none."""
    return _strip_line_numbers(old, new) or _strip_diff_signs(old, new)


def _strip_line_numbers(old: Sequence[str], new: Sequence[str]) -> CleanBlock | None:
    found = [_LINE_NUMBER.match(row) for row in old]
    numbers = [int(m[1]) for m in found if m]
    if not numbers or numbers != list(range(numbers[0], numbers[0] + len(old))):
        return None
    return CleanBlock(
        [row[m.end() :] for row, m in zip(old, found, strict=True) if m],
        [row[m.end() :] if (m := _LINE_NUMBER.match(row)) else row for row in new],
        numbers[0],
    )


def _strip_diff_signs(old: Sequence[str], new: Sequence[str]) -> CleanBlock | None:
    if not (_all_start_with(old, "-") and _all_start_with(new, "+")):
        return None
    return CleanBlock([row[1:] for row in old], [row[1:] for row in new])


def _all_start_with(rows: Sequence[str], sign: str) -> bool:
    signs = {row[0] for row in rows if row}
    return sign in signs and signs <= {sign, " "}


def find_added_escape(written: Sequence[str], there: Sequence[str]) -> str:
    """What the block escapes though the file does not; nothing when there is no such thing."""
    mine, theirs = "\n".join(written), "\n".join(there)
    return next((mark for mark in _ESCAPES if mine.count(mark) > theirs.count(mark)), "")


def suggest_fix(old: Sequence[str]) -> str:
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

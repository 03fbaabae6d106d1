"""Removes what a copied block brought along: line numbers, the signs of a diff, escapes."""

import re
from collections.abc import Sequence

from msgspec import Struct

_LINE_NUMBER = re.compile(r" {0,10}(\d{1,7})[|\t→│]")
_ESCAPES = ('\\"', "\\'", "&quot;", "&#39;", "&lt;", "&gt;", "&amp;")


class CleanBlock(Struct, frozen=True):
    """A block and its replacement, without what was copied along."""

    old: list[str]
    new: list[str]
    line: int = 0
    """The line it begins with, by its own line numbers; 0: it had none."""


def strip_artifacts(old: Sequence[str], new: Sequence[str]) -> CleanBlock | None:
    """The block without line numbers or diff signs; None when it has neither."""
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


def find_added_escape(written: Sequence[str], actual: Sequence[str]) -> str:
    """An escape that the block has more often than the file; empty when there is none."""
    mine, theirs = "\n".join(written), "\n".join(actual)
    return next((mark for mark in _ESCAPES if mine.count(mark) > theirs.count(mark)), "")


def suggest_fix(old: Sequence[str]) -> str:
    """What may be wrong with a block that was not found."""
    if len(old) == 1 and "\\n" in old[0]:
        return " It contains \\n as two characters: write real line breaks."
    if old[0].lstrip().startswith("```"):
        return " It is fenced with ```: give only the lines of the file."
    if any(mark in row for mark in _ESCAPES[2:] for row in old):
        return " It contains HTML entities: write the characters themselves."
    if any(row.strip() in ("...", "…", "# ...", "// ...") for row in old):
        return " It leaves lines out (...): give all of them, or change each place separately."
    return ""

"""Finds the lines of a patch in what a model wrote: fences, indentation, unified diffs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hermes.core.errors import ToolError

HEADER = re.compile(r"\*\*\* ?(Update|Add|Create|Delete|Move) File(?:: *| +)(.+?) *$", re.I)
PATCH_FORMAT = (
    "A patch is: *** Begin Patch, then for each file *** Update File: PATH (with @@ and lines that "
    "begin with a space, - or +), *** Add File: PATH (lines with +) or *** Delete File: PATH, then "
    "*** End Patch. Nothing was changed."
)
_BEGIN, _END = "*** begin patch", "*** end patch"
_DEV_NULL = "/dev/null"
Row = tuple[int, str]
"""A line of a patch with its number there, from 1."""


def extract_patch(rows: list[str]) -> list[Row]:
    """The lines between the first and the last. Raises ToolError when there is no patch."""
    numbered = list(enumerate(_remove_indent(rows), 1))
    first = next((i for i, (_, row) in enumerate(numbered) if row.strip().lower() == _BEGIN), None)
    if first is None and (changed := list(_convert_unified(numbered))):
        return changed
    if first is None:
        first = next((i for i, (_, row) in enumerate(numbered) if HEADER.match(row)), None)
        if first is None:
            raise ToolError(f"There is no *** Begin Patch. {PATCH_FORMAT}")
        first -= 1
    for last in range(len(numbered) - 1, first, -1):
        if numbered[last][1].rstrip().lower() == _END:
            return list(_join_patches(numbered[first + 1 : last]))
    raise ToolError(
        "The patch has no *** End Patch at its end, so it may have been cut: send the whole of it. "
        "Nothing was changed."
    )


def _remove_indent(rows: list[str]) -> list[str]:
    """A patch that is indented as a whole, first line and all."""
    begin = next((row for row in rows if row.strip().lower() == _BEGIN), "")
    indent = begin[: len(begin) - len(begin.lstrip())]
    at = rows.index(begin) if indent else 0
    if not indent or not all(row.startswith(indent) or not row.strip() for row in rows[at:]):
        return rows
    return rows[:at] + [row.removeprefix(indent) for row in rows[at:]]


def _join_patches(rows: Sequence[Row]) -> Iterator[Row]:
    """Several patches one after the other are one, and names of a unified diff are no lines."""
    between = False
    for at, (number, row) in enumerate(rows):
        mark = row.rstrip().lower()
        if mark == _END:
            following = [r.strip().lower() for _, r in rows[at + 1 :] if r.strip()]
            between = following[:1] == [_BEGIN]
        elif between and mark == _BEGIN:
            between = False
            continue
        if (
            not between
            and not _is_unified_header(rows, at)
            and not (at and _is_unified_header(rows, at - 1))
        ):
            yield number, row


def _is_unified_header(rows: Sequence[Row], at: int) -> bool:
    """Whether `--- OLD` and `+++ NEW` stand here, before a hunk."""
    texts = [row for _, row in rows[at : at + 3]]
    return (
        len(texts) == 3
        and texts[0].startswith("--- ")
        and texts[1].startswith("+++ ")
        and texts[2].startswith("@@ ")
    )


def _convert_unified(rows: Sequence[Row]) -> Iterator[Row]:
    """A unified diff in our own form; nothing when it is none."""
    at = 0
    inside = False
    while at < len(rows):
        number, row = rows[at]
        if _is_unified_header(rows, at):
            inside = True
            yield number, _make_header(row[4:], rows[at + 1][1][4:])
            if rows[at][1][4:].startswith(_DEV_NULL):
                at += 1  # a new file has no place to say
            at += 2
            continue
        if row.startswith(("diff --git ", "```")):
            inside = False
        if inside:
            yield number, row
        at += 1


def _make_header(old: str, new: str) -> str:
    was, now = (name.partition("\t")[0].strip() for name in (old, new))
    if was.startswith("a/") and now.startswith("b/"):
        was, now = was[2:], now[2:]
    if was == _DEV_NULL:
        return f"*** Add File: {now.removeprefix('b/')}"
    if now == _DEV_NULL:
        raise ToolError("To delete a file write *** Delete File: PATH. Nothing was changed.")
    if was != now:
        raise ToolError(
            f"To move a file write *** Update File: {was} and *** Move to: {now}. Nothing was "
            "changed."
        )
    return f"*** Update File: {now}"

"""Reads patches of the form `*** Begin Patch` and computes what they make of a text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.tools._edit.locate import BlockMatch, collapse_spaces, find_block
from hermes.tools._edit.merge import EditScript, merge_block
from hermes.tools._edit.paste_artifacts import CleanBlock, strip_artifacts
from hermes.tools._edit.patch_text import HEADER, PATCH_FORMAT, extract_patch
from hermes.tools._edit.replace import Edit, EditResult, apply_edits, find_clean_block, guess_block
from hermes.tools._edit.text_file import Lines

_MOVE = re.compile(r"\*\*\* Move to: *(.+?) *$")
_UNIFIED_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)$")
_NO_NEWLINE = "\\ No newline at end of file"
_BLANK_ROW = ("", "")
"""A line without even its sign: a blank line of the file, or one before the next header."""


class Hunk(Struct):
    script: EditScript = []
    anchors: list[str] = []
    """Lines before the place, outermost first."""
    line: int = 0
    """Where it should be, from 1, when that was said."""
    at_end: bool = False
    final_end: bool | None = None
    """Whether the last line has an end, when that was said."""

    @property
    def old(self) -> list[str]:
        return [row for sign, row in self.script if sign != "+"]

    @property
    def new(self) -> list[str]:
        return [row for sign, row in self.script if sign == "+"]


class Change(Struct):
    """What happens to one file."""

    kind: str
    path: str
    hunks: list[Hunk] = []
    new_path: str = ""
    """Its new name."""
    end: str = "\n"
    """The line end of the patch itself, for texts that have none."""

    def build_content(self) -> str:
        """Of a file that is added."""
        rows = [row for hunk in self.hunks for _, row in hunk.script]
        finished = not any(hunk.final_end is False for hunk in self.hunks)
        return self.end.join(rows) + (self.end if rows and finished else "")


def parse_patch(patch: str) -> list[Change]:
    """Every change of a patch, or a ToolError that names the line that is wrong."""
    rows = patch.strip("\r\n").split("\n")
    end = "\n"
    if len(rows) > 1 and all(row.endswith("\r") for row in rows[:-1]):
        end = "\r\n"
        rows = [row.removesuffix("\r") for row in rows]
    changes: list[Change] = []
    for number, row in extract_patch(rows):
        if header := HEADER.match(row):
            changes.append(_start_change(header[1], header[2], end))
        elif not changes:
            if row.strip():
                raise _make_error(number, row, "there is no file header before it")
        elif problem := _add_row(changes[-1], row):
            raise _make_error(number, row, problem)
    if not changes:
        raise ToolError(f"The patch names no file. {PATCH_FORMAT}")
    for change in changes:
        _finish_change(change)
    return changes


def _make_error(number: int, row: str, problem: str) -> ToolError:
    return ToolError(f"Line {number} of the patch ({row[:80]!r}): {problem}. {PATCH_FORMAT}")


def _start_change(kind: str, path: str, end: str) -> Change:
    kind = "Add" if kind.lower() == "create" else kind.capitalize()
    source, arrow, target = path.partition(" -> ") if kind == "Move" else (path, "", "")
    if kind == "Move" and not arrow:
        raise ToolError(f"*** Move File: {path} must say `OLD -> NEW`. Nothing was changed.")
    return Change(kind, source.strip(), new_path=target.strip(), end=end)


def _add_row(change: Change, row: str) -> str:
    """One more line of a change; what is wrong with it."""
    if move := _MOVE.match(row):
        if change.kind != "Update" or change.new_path or change.hunks:
            return "it must follow *** Update File"
        change.new_path = move[1]
    elif change.kind == "Add":
        return _add_new_file_row(change, row)
    elif change.kind == "Delete":
        return "a deleted file has no lines" if row.strip() else ""
    elif row.rstrip() == "*** End of File":
        _open_hunk(change).at_end = True
    elif row.startswith("@@"):
        _add_anchor(change, row)
    elif row.startswith(_NO_NEWLINE):
        _mark_missing_newline(_open_hunk(change))
    elif row[:1] in (" ", "-", "+"):
        _open_hunk(change).script.append((row[0], row[1:]))
    elif not row.strip():
        _open_hunk(change).script.append(_BLANK_ROW)
    else:
        return "it begins with neither a space nor - nor +"
    return ""


def _add_new_file_row(change: Change, row: str) -> str:
    if not change.hunks:
        change.hunks.append(Hunk())
    if row.startswith(_NO_NEWLINE):
        change.hunks[0].final_end = False
    elif row.startswith("+"):
        change.hunks[0].script.append(("+", row[1:]))
    elif row.strip():
        return "lines of a new file begin with +"
    else:
        change.hunks[0].script.append(_BLANK_ROW)
    return ""


def _add_anchor(change: Change, row: str) -> None:
    """Anchors that follow one another narrow down one place."""
    if not change.hunks or change.hunks[-1].script:
        change.hunks.append(Hunk())
    hunk = change.hunks[-1]
    if counted := _UNIFIED_HUNK.match(row):
        hunk.line = int(counted[1])
    elif text := row[2:].removesuffix("@@").strip():
        hunk.anchors.append(text)


def _mark_missing_newline(hunk: Hunk) -> None:
    sign = hunk.script[-1][0] if hunk.script else " "
    if sign == "+":
        hunk.final_end = False
    elif sign == "-":
        hunk.final_end = True


def _open_hunk(change: Change) -> Hunk:
    if not change.hunks:
        change.hunks.append(Hunk())
    return change.hunks[-1]


def _finish_change(change: Change) -> None:
    for hunk in change.hunks:
        while hunk.script and hunk.script[-1] == _BLANK_ROW:
            hunk.script.pop()
        hunk.script = [(sign or " ", row) for sign, row in hunk.script]
    change.hunks = [hunk for hunk in change.hunks if hunk.script or change.kind == "Add"]
    if change.kind == "Update" and not change.new_path and not change.hunks:
        raise ToolError(f"*** Update File: {change.path} changes nothing. {PATCH_FORMAT}")
    if not change.path:
        raise ToolError(f"A file header has no path. {PATCH_FORMAT}")


def apply_hunks(text: str, change: Change) -> EditResult:
    """What the hunks of a change make of the text."""
    lines = Lines.split(text)
    edits: list[Edit] = []
    hows: list[str] = []
    finished: bool | None = None if lines.rows else True
    for number, hunk in enumerate(change.hunks, 1):
        after = edits[-1].stop if edits else 0
        try:
            how, found = _locate_hunk(lines, hunk, after)
            edits.append(Edit(found.start, found.stop, merge_block(lines.rows, found, hunk.script)))
        except ToolError as error:
            raise ToolError(f"Hunk {number} of {len(change.hunks)}: {error}") from None
        if hunk.final_end is not None and found.stop == len(lines.rows):
            finished = hunk.final_end
        if how:
            hows.append(how)
    edits.sort(key=lambda edit: (edit.start, edit.stop))
    if any(b.start < a.stop for a, b in pairwise(edits)):
        raise ToolError("Two hunks change the same lines; make them one. Nothing was changed.")
    result = apply_edits(lines, edits, final_end=finished, end=change.end)
    return EditResult(result, len(edits), ", ".join(dict.fromkeys(hows)))


def _locate_hunk(lines: Lines, hunk: Hunk, after: int) -> tuple[str, BlockMatch]:
    old = hunk.old
    if not old:
        return "", _locate_insertion(lines.rows, hunk, after)
    how, found = find_block(lines.rows, old)
    if not found and (copied := strip_artifacts(old, hunk.new)):
        hunk.script, old = _clean_script(hunk.script, copied), copied.old
        how, found = find_clean_block(lines.rows, copied)
    if not found:
        how, found = guess_block(lines.rows, old, "this block")
    if len(found) > 1:
        found = _narrow_matches(lines.rows, hunk, found, after)
    if len(found) > 1:
        places = ", ".join(str(f.start + 1) for f in found[:8])
        raise ToolError(
            f"this block is there {len(found)} times (lines {places}): add lines around it or an "
            "@@ line that comes before it. Nothing was changed."
        )
    return how, found[0]


def _clean_script(script: EditScript, copied: CleanBlock) -> EditScript:
    old, new = iter(copied.old), iter(copied.new)
    return [(sign, next(new if sign == "+" else old)) for sign, _ in script]


def _narrow_matches(
    rows: Sequence[str], hunk: Hunk, found: list[BlockMatch], after: int
) -> list[BlockMatch]:
    """Those of several equal places that the rest of the hunk speaks for."""
    if hunk.at_end and (last := [f for f in found if f.stop == len(rows)]):
        return last
    if hunk.line and (said := [f for f in found if f.start == hunk.line - 1]):
        return said
    if hunk.anchors:
        below = {
            next((f.start for f in found if f.start >= at), None)
            for at in _find_anchored(rows, hunk.anchors)
        }
        if named := [f for f in found if f.start in below]:
            found = named
    later = [f for f in found if f.start >= after]
    return later if len(later) == 1 or (hunk.anchors and later) else found


def _find_anchored(rows: Sequence[str], anchors: Sequence[str]) -> list[int]:
    """Lines at which the innermost anchor stands, each below its outer ones."""
    forms = [collapse_spaces(row) for row in rows]
    here = _find_anchor(forms, anchors[0])
    for anchor in anchors[1:]:
        inner = _find_anchor(forms, anchor)
        firsts = {bisect_right(inner, at) for at in here}
        here = [inner[i] for i in sorted(firsts) if i < len(inner)]
    return here


def _find_anchor(forms: Sequence[str], anchor: str) -> list[int]:
    wanted = collapse_spaces(anchor)
    equal = [at for at, form in enumerate(forms) if form == wanted]
    return equal or [at for at, form in enumerate(forms) if form.startswith(wanted)]


def _locate_insertion(rows: Sequence[str], hunk: Hunk, after: int) -> BlockMatch:
    """Where lines go that come without any line around them."""
    if hunk.at_end or not rows:
        return BlockMatch(len(rows), len(rows), ())
    if hunk.anchors:
        places = _find_anchored(rows, hunk.anchors)
        later = [at for at in places if at >= after]
        places = later if len(later) == 1 else places
        if len(places) == 1:
            return BlockMatch(places[0] + 1, places[0] + 1, ())
        problem = f"is there {len(places)} times" if places else "was not found"
        raise ToolError(
            f"the line {hunk.anchors[-1][:120]!r} of @@ {problem}; add lines around the place. "
            "Nothing was changed."
        )
    if hunk.line:
        at = min(hunk.line, len(rows))
        return BlockMatch(at, at, ())
    raise ToolError(
        "it only adds lines and does not say where; add a line before or after them. Nothing was "
        "changed."
    )

"""Reads patches of the form `*** Begin Patch` and computes what they make of a text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.tools._edit.locate import Found, collapsed, locate
from hermes.tools._edit.merge import Script, follow
from hermes.tools._edit.paste_artifacts import Copied, bare
from hermes.tools._edit.patch_text import FORM, HEADER, framed
from hermes.tools._edit.replace import Edit, Edited, apply, guess, numbered
from hermes.tools._edit.text_file import Lines

_MOVE = re.compile(r"\*\*\* Move to: *(.+?) *$")
_COUNTED = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)$")
_UNFINISHED = "\\ No newline at end of file"
_BARE = ("", "")
"""A line without even its sign: a blank line of the file, or one before the next header."""


class Hunk(Struct):
    script: Script = []
    anchors: list[str] = []
    """Lines before the place, outermost first."""
    line: int = 0
    """Where it should be, from 1, when that was said."""
    at_end: bool = False
    finished: bool | None = None
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
    to: str = ""
    """Its new name."""
    end: str = "\n"
    """The line end of the patch itself, for texts that have none."""

    def content(self) -> str:
        """Of a file that is added."""
        rows = [row for hunk in self.hunks for _, row in hunk.script]
        finished = not any(hunk.finished is False for hunk in self.hunks)
        return self.end.join(rows) + (self.end if rows and finished else "")


def parse(patch: str) -> list[Change]:
    """Every change of a patch, or a ToolError that names the line that is wrong."""
    rows = patch.strip("\r\n").split("\n")
    end = "\n"
    if len(rows) > 1 and all(row.endswith("\r") for row in rows[:-1]):
        end = "\r\n"
        rows = [row.removesuffix("\r") for row in rows]
    changes: list[Change] = []
    for number, row in framed(rows):
        if header := HEADER.match(row):
            changes.append(_begun(header[1], header[2], end))
        elif not changes:
            if row.strip():
                raise _wrong(number, row, "there is no file header before it")
        elif problem := _take(changes[-1], row):
            raise _wrong(number, row, problem)
    if not changes:
        raise ToolError(f"The patch names no file. {FORM}")
    for change in changes:
        _complete(change)
    return changes


def _wrong(number: int, row: str, problem: str) -> ToolError:
    return ToolError(f"Line {number} of the patch ({row[:80]!r}): {problem}. {FORM}")


def _begun(kind: str, path: str, end: str) -> Change:
    kind = "Add" if kind.lower() == "create" else kind.capitalize()
    source, arrow, target = path.partition(" -> ") if kind == "Move" else (path, "", "")
    if kind == "Move" and not arrow:
        raise ToolError(f"*** Move File: {path} must say `OLD -> NEW`. Nothing was changed.")
    return Change(kind, source.strip(), to=target.strip(), end=end)


def _take(change: Change, row: str) -> str:
    """One more line of a change; what is wrong with it."""
    if move := _MOVE.match(row):
        if change.kind != "Update" or change.to or change.hunks:
            return "it must follow *** Update File"
        change.to = move[1]
    elif change.kind == "Add":
        return _take_added(change, row)
    elif change.kind == "Delete":
        return "a deleted file has no lines" if row.strip() else ""
    elif row.rstrip() == "*** End of File":
        _open(change).at_end = True
    elif row.startswith("@@"):
        _take_anchor(change, row)
    elif row.startswith(_UNFINISHED):
        _take_unfinished(_open(change))
    elif row[:1] in (" ", "-", "+"):
        _open(change).script.append((row[0], row[1:]))
    elif not row.strip():
        _open(change).script.append(_BARE)
    else:
        return "it begins with neither a space nor - nor +"
    return ""


def _take_added(change: Change, row: str) -> str:
    if not change.hunks:
        change.hunks.append(Hunk())
    if row.startswith(_UNFINISHED):
        change.hunks[0].finished = False
    elif row.startswith("+"):
        change.hunks[0].script.append(("+", row[1:]))
    elif row.strip():
        return "lines of a new file begin with +"
    else:
        change.hunks[0].script.append(_BARE)
    return ""


def _take_anchor(change: Change, row: str) -> None:
    """Anchors that follow one another narrow down one place."""
    if not change.hunks or change.hunks[-1].script:
        change.hunks.append(Hunk())
    hunk = change.hunks[-1]
    if counted := _COUNTED.match(row):
        hunk.line = int(counted[1])
    elif text := row[2:].removesuffix("@@").strip():
        hunk.anchors.append(text)


def _take_unfinished(hunk: Hunk) -> None:
    sign = hunk.script[-1][0] if hunk.script else " "
    if sign == "+":
        hunk.finished = False
    elif sign == "-":
        hunk.finished = True


def _open(change: Change) -> Hunk:
    if not change.hunks:
        change.hunks.append(Hunk())
    return change.hunks[-1]


def _complete(change: Change) -> None:
    for hunk in change.hunks:
        while hunk.script and hunk.script[-1] == _BARE:
            hunk.script.pop()
        hunk.script = [(sign or " ", row) for sign, row in hunk.script]
    change.hunks = [hunk for hunk in change.hunks if hunk.script or change.kind == "Add"]
    if change.kind == "Update" and not change.to and not change.hunks:
        raise ToolError(f"*** Update File: {change.path} changes nothing. {FORM}")
    if not change.path:
        raise ToolError(f"A file header has no path. {FORM}")


def update(text: str, change: Change) -> Edited:
    """What the hunks of a change make of the text."""
    lines = Lines.of(text)
    edits: list[Edit] = []
    hows: list[str] = []
    finished: bool | None = None if lines.rows else True
    for number, hunk in enumerate(change.hunks, 1):
        after = edits[-1].stop if edits else 0
        try:
            how, found = _place(lines, hunk, after)
            edits.append(Edit(found.start, found.stop, follow(lines.rows, found, hunk.script)))
        except ToolError as error:
            raise ToolError(f"Hunk {number} of {len(change.hunks)}: {error}") from None
        if hunk.finished is not None and found.stop == len(lines.rows):
            finished = hunk.finished
        if how:
            hows.append(how)
    edits.sort(key=lambda edit: (edit.start, edit.stop))
    if any(b.start < a.stop for a, b in pairwise(edits)):
        raise ToolError("Two hunks change the same lines; make them one. Nothing was changed.")
    result = apply(lines, edits, finished=finished, end=change.end)
    return Edited(result, len(edits), ", ".join(dict.fromkeys(hows)))


def _place(lines: Lines, hunk: Hunk, after: int) -> tuple[str, Found]:
    old = hunk.old
    if not old:
        return "", _insertion(lines.rows, hunk, after)
    how, found = locate(lines.rows, old)
    if not found and (copied := bare(old, hunk.new)):
        hunk.script, old = _as_copied(hunk.script, copied), copied.old
        how, found = numbered(lines.rows, copied)
    if not found:
        how, found = guess(lines.rows, old, "this block")
    if len(found) > 1:
        found = _narrowed(lines.rows, hunk, found, after)
    if len(found) > 1:
        places = ", ".join(str(f.start + 1) for f in found[:8])
        raise ToolError(
            f"this block is there {len(found)} times (lines {places}): add lines around it or an "
            "@@ line that comes before it. Nothing was changed."
        )
    return how, found[0]


def _as_copied(script: Script, copied: Copied) -> Script:
    old, new = iter(copied.old), iter(copied.new)
    return [(sign, next(new if sign == "+" else old)) for sign, _ in script]


def _narrowed(rows: Sequence[str], hunk: Hunk, found: list[Found], after: int) -> list[Found]:
    """Those of several equal places that the rest of the hunk speaks for."""
    if hunk.at_end and (last := [f for f in found if f.stop == len(rows)]):
        return last
    if hunk.line and (said := [f for f in found if f.start == hunk.line - 1]):
        return said
    if hunk.anchors:
        below = {
            next((f.start for f in found if f.start >= at), None)
            for at in _anchored(rows, hunk.anchors)
        }
        if named := [f for f in found if f.start in below]:
            found = named
    later = [f for f in found if f.start >= after]
    return later if len(later) == 1 or (hunk.anchors and later) else found


def _anchored(rows: Sequence[str], anchors: Sequence[str]) -> list[int]:
    """Lines at which the innermost anchor stands, each below its outer ones."""
    forms = [collapsed(row) for row in rows]
    here = _anchor_lines(forms, anchors[0])
    for anchor in anchors[1:]:
        inner = _anchor_lines(forms, anchor)
        firsts = {bisect_right(inner, at) for at in here}
        here = [inner[i] for i in sorted(firsts) if i < len(inner)]
    return here


def _anchor_lines(forms: Sequence[str], anchor: str) -> list[int]:
    wanted = collapsed(anchor)
    equal = [at for at, form in enumerate(forms) if form == wanted]
    return equal or [at for at, form in enumerate(forms) if form.startswith(wanted)]


def _insertion(rows: Sequence[str], hunk: Hunk, after: int) -> Found:
    """Where lines go that come without any line around them."""
    if hunk.at_end or not rows:
        return Found(len(rows), len(rows), ())
    if hunk.anchors:
        places = _anchored(rows, hunk.anchors)
        later = [at for at in places if at >= after]
        places = later if len(later) == 1 else places
        if len(places) == 1:
            return Found(places[0] + 1, places[0] + 1, ())
        problem = f"is there {len(places)} times" if places else "was not found"
        raise ToolError(
            f"the line {hunk.anchors[-1][:120]!r} of @@ {problem}; add lines around the place. "
            "Nothing was changed."
        )
    if hunk.line:
        at = min(hunk.line, len(rows))
        return Found(at, at, ())
    raise ToolError(
        "it only adds lines and does not say where; add a line before or after them. Nothing was "
        "changed."
    )

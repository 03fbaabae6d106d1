"""Parses V4A patches (`*** Begin Patch`) and unified diffs, and applies their hunks to a text."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.tools._edit.locate import BlockMatch, collapse_spaces, find_block
from hermes.tools._edit.merge import EditScript, merge_block
from hermes.tools._edit.paste_artifacts import CleanBlock, strip_artifacts
from hermes.tools._edit.replace import Edit, EditResult, apply_edits, find_clean_block, guess_block
from hermes.tools._edit.text_file import NO_NEWLINE, Lines

_HEADER = re.compile(r"\*\*\* ?(Update|Add|Create|Delete|Move) File(?:: *| +)(.+?) *$", re.I)
PATCH_FORMAT = (
    "A patch is: *** Begin Patch, then for each file *** Update File: PATH (with @@ and lines that "
    "begin with a space, - or +), *** Add File: PATH (lines with +) or *** Delete File: PATH, then "
    "*** End Patch. Nothing was changed."
)
_BEGIN, _END = "*** begin patch", "*** end patch"
_DEV_NULL = "/dev/null"
Row = tuple[int, str]
"""The number of a line in the patch, from 1, and its text."""
_MOVE = re.compile(r"\*\*\* Move to: *(.+?) *$")
_UNIFIED_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)$")
_BLANK_ROW = ("", "")
"""A line without a sign: a blank line of the file, or one before the next header."""


class Hunk(Struct):
    script: EditScript = []
    anchors: list[str] = []
    """The `@@` lines above the block, outermost first."""
    line: int = 0
    """The line it should begin at, from 1; 0: not given."""
    at_end: bool = False
    final_end: bool | None = None
    """Whether the last line ends with a newline; None: not given."""

    @property
    def old(self) -> list[str]:
        return [row for sign, row in self.script if sign != "+"]

    @property
    def new(self) -> list[str]:
        return [row for sign, row in self.script if sign == "+"]


class Change(Struct):
    """The change to one file."""

    kind: str
    path: str
    hunks: list[Hunk] = []
    new_path: str = ""
    end: str = "\n"
    """The line end of the patch itself, for files that have none yet."""

    def build_content(self) -> str:
        """The content of an added file."""
        rows = [row for hunk in self.hunks for _, row in hunk.script]
        finished = not any(hunk.final_end is False for hunk in self.hunks)
        return self.end.join(rows) + (self.end if rows and finished else "")


def parse_patch(patch: str) -> list[Change]:
    """The changes of a patch. Raises ToolError naming the line that is wrong."""
    rows = patch.strip("\r\n").split("\n")
    end = "\n"
    if len(rows) > 1 and all(row.endswith("\r") for row in rows[:-1]):
        end = "\r\n"
        rows = [row.removesuffix("\r") for row in rows]
    changes: list[Change] = []
    for number, row in _extract_patch(rows):
        if header := _HEADER.match(row):
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


def _extract_patch(rows: list[str]) -> list[Row]:
    """The lines between *** Begin Patch and *** End Patch, without what surrounds them."""
    numbered = list(enumerate(_remove_indent(rows), 1))
    first = next((i for i, (_, row) in enumerate(numbered) if row.strip().lower() == _BEGIN), None)
    if first is None and (changed := list(_convert_unified(numbered))):
        return changed
    if first is None:
        first = next((i for i, (_, row) in enumerate(numbered) if _HEADER.match(row)), None)
        if first is None:
            raise ToolError(f"There is no *** Begin Patch. {PATCH_FORMAT}")
        first -= 1
    for last in range(len(numbered) - 1, first, -1):
        if numbered[last][1].rstrip().lower() == _END:
            return list(_join_patches(numbered[first + 1 : last]))
    raise ToolError(
        "The patch does not end with *** End Patch, so it may have been cut. Nothing was changed. "
        "Send the whole patch."
    )


def _remove_indent(rows: list[str]) -> list[str]:
    """Dedents a patch that is indented as a whole."""
    begin = next((row for row in rows if row.strip().lower() == _BEGIN), "")
    indent = begin[: len(begin) - len(begin.lstrip())]
    at = rows.index(begin) if indent else 0
    if not indent or not all(row.startswith(indent) or not row.strip() for row in rows[at:]):
        return rows
    return rows[:at] + [row.removeprefix(indent) for row in rows[at:]]


def _join_patches(rows: Sequence[Row]) -> Iterator[Row]:
    """Joins consecutive patches into one and drops the file names of unified diffs."""
    between = False
    for at, (number, row) in enumerate(rows):
        mark = row.rstrip().lower()
        if mark == _END:
            following = [r.strip().lower() for _, r in rows[at + 1 :] if r.strip()]
            between = following[:1] == [_BEGIN]
        elif between and mark == _BEGIN:
            between = False
            continue
        names = _is_unified_header(rows, at) or (at and _is_unified_header(rows, at - 1))
        if not between and not names:
            yield number, row


def _is_unified_header(rows: Sequence[Row], at: int) -> bool:
    """Whether these lines are `--- OLD`, `+++ NEW` and the start of a hunk."""
    starts = [row[:4] for _, row in rows[at : at + 3]]
    return len(starts) == 3 and starts[:2] == ["--- ", "+++ "] and starts[2].startswith("@@ ")


def _convert_unified(rows: Sequence[Row]) -> Iterator[Row]:
    """A unified diff as V4A lines; nothing when it is not one."""
    at = 0
    inside = False
    while at < len(rows):
        number, row = rows[at]
        if _is_unified_header(rows, at):
            inside = True
            yield number, _make_header(row[4:], rows[at + 1][1][4:])
            if rows[at][1][4:].startswith(_DEV_NULL):
                at += 1  # the hunk header of a new file names no line
            at += 2
            continue
        if row.startswith(("diff --git ", "```")):
            inside = False
        if inside:
            yield number, row
        at += 1


def _make_header(old: str, new: str) -> str:
    old_name, new_name = (name.partition("\t")[0].strip() for name in (old, new))
    if old_name.startswith("a/") and new_name.startswith("b/"):
        old_name, new_name = old_name[2:], new_name[2:]
    if old_name == _DEV_NULL:
        return f"*** Add File: {new_name.removeprefix('b/')}"
    if new_name == _DEV_NULL:
        raise ToolError("Nothing was changed. To delete a file write *** Delete File: PATH.")
    if old_name != new_name:
        raise ToolError(
            f"Nothing was changed. To move a file write *** Update File: {old_name} and "
            f"*** Move to: {new_name}."
        )
    return f"*** Update File: {new_name}"


def _make_error(number: int, row: str, problem: str) -> ToolError:
    return ToolError(f"Line {number} of the patch ({row[:80]!r}): {problem}. {PATCH_FORMAT}")


def _start_change(kind: str, path: str, end: str) -> Change:
    kind = "Add" if kind.lower() == "create" else kind.capitalize()
    source, arrow, target = path.partition(" -> ") if kind == "Move" else (path, "", "")
    if kind == "Move" and not arrow:
        raise ToolError(f"*** Move File: {path} must say `OLD -> NEW`. Nothing was changed.")
    return Change(kind, source.strip(), new_path=target.strip(), end=end)


def _add_row(change: Change, row: str) -> str:
    """Add one line of the patch to the change; returns what is wrong with it, or nothing."""
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
    elif row.startswith(NO_NEWLINE):
        _mark_missing_newline(_open_hunk(change))
    elif row[:1] in (" ", "-", "+"):
        _open_hunk(change).script.append((row[0], row[1:]))
    elif not row.strip():
        _open_hunk(change).script.append(_BLANK_ROW)
    else:
        return "it begins with neither a space nor - nor +"
    return ""


def _add_new_file_row(change: Change, row: str) -> str:
    hunk = _open_hunk(change)
    if row.startswith(NO_NEWLINE):
        hunk.final_end = False
    elif row.strip() and not row.startswith("+"):
        return "lines of a new file begin with +"
    else:
        hunk.script.append(("+", row[1:]) if row.startswith("+") else _BLANK_ROW)
    return ""


def _add_anchor(change: Change, row: str) -> None:
    """Consecutive anchors narrow down the place of one hunk."""
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
    """The text after the hunks of a change."""
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
        raise ToolError("Two hunks change the same lines. Nothing was changed. Make them one.")
    result = apply_edits(lines, edits, final_end=finished, end=change.end)
    return EditResult(result, match_note=", ".join(dict.fromkeys(hows)))


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
            f"this block occurs {len(found)} times (lines {places}). Nothing was changed. Add "
            "lines around it, or an @@ line that comes before it."
        )
    return how, found[0]


def _clean_script(script: EditScript, copied: CleanBlock) -> EditScript:
    old, new = iter(copied.old), iter(copied.new)
    return [(sign, next(new if sign == "+" else old)) for sign, _ in script]


def _narrow_matches(
    rows: Sequence[str], hunk: Hunk, found: list[BlockMatch], after: int
) -> list[BlockMatch]:
    """Of several equal matches, those that the rest of the hunk points to."""
    if hunk.at_end and (last := [f for f in found if f.stop == len(rows)]):
        return last
    if hunk.line and (named := [f for f in found if f.start == hunk.line - 1]):
        return named
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
    """The lines of the innermost anchor that stand below its outer anchors."""
    forms = [collapse_spaces(row) for row in rows]
    outer = _find_anchor(forms, anchors[0])
    for anchor in anchors[1:]:
        inner = _find_anchor(forms, anchor)
        firsts = {bisect_right(inner, at) for at in outer}
        outer = [inner[i] for i in sorted(firsts) if i < len(inner)]
    return outer


def _find_anchor(forms: Sequence[str], anchor: str) -> list[int]:
    wanted = collapse_spaces(anchor)
    equal = [at for at, form in enumerate(forms) if form == wanted]
    return equal or [at for at, form in enumerate(forms) if form.startswith(wanted)]


def _locate_insertion(rows: Sequence[str], hunk: Hunk, after: int) -> BlockMatch:
    """Where to insert lines that come without context."""
    if hunk.at_end or not rows:
        return BlockMatch(len(rows), len(rows), ())
    if hunk.anchors:
        places = _find_anchored(rows, hunk.anchors)
        later = [at for at in places if at >= after]
        places = later if len(later) == 1 else places
        if len(places) == 1:
            return BlockMatch(places[0] + 1, places[0] + 1, ())
        problem = f"occurs {len(places)} times" if places else "was not found"
        raise ToolError(
            f"the @@ line {hunk.anchors[-1][:120]!r} {problem}. Nothing was changed. Add lines "
            "around the place."
        )
    if hunk.line:
        at = min(hunk.line, len(rows))
        return BlockMatch(at, at, ())
    raise ToolError(
        "it only adds lines and does not say where. Nothing was changed. Add a line before or "
        "after them."
    )

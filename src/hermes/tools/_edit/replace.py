"""Replaces a piece of a text, exactly or approximately; touches no file."""

from bisect import bisect_right
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import accumulate

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.tools._edit.locate import BlockMatch, find_block, find_nearest, pick_clear_match
from hermes.tools._edit.merge import Item, merge_block
from hermes.tools._edit.paste_artifacts import CleanBlock, strip_artifacts, suggest_fix
from hermes.tools._edit.text_file import Lines, count_common, sign_rows

_MAX_SHOWN_LINES = 12
_MAX_LISTED = 8
_MAX_COUNTED = 1000
_NO_CHANGE = "`old` and `new` are the same; nothing was changed."


class Edit(Struct, frozen=True):
    """Lines `start` to `stop` (exclusive) become `items`."""

    start: int
    stop: int
    items: list[Item]


class EditResult(Struct, frozen=True):
    text: str
    count: int = 1
    match_note: str = ""
    """How the place was found; empty: exactly."""


def replace_text(text: str, old: str, new: str, *, every: bool = False) -> EditResult:
    """`text` with `old` replaced by `new`, at its only place or, with `every`, at all of them."""
    if not old:
        raise ToolError(
            "`old` is empty; nothing was changed. Give the text to replace, or create a file with "
            "write_file."
        )
    if old == new:
        raise ToolError(_NO_CHANGE)
    lines = Lines.split(text)
    if lines.has_mixed_ends and ("\r" in old or "\r" in new) and old in text:
        places = _find_places(text, old, every=every)
        _require_one_place(_find_rows(text, places), every=every)
        return EditResult(text.replace(old, new), len(places))
    wanted, fresh = _normalize_ends(lines, old), _normalize_ends(lines, new)
    if wanted == fresh:
        raise ToolError(_NO_CHANGE)
    plain = lines.plain_text
    if places := _find_places(plain, wanted, every=every):
        _require_one_place(_find_rows(plain, places), every=every)
        if "\r" not in text:
            return EditResult(text.replace(wanted, fresh), len(places))
        return EditResult(_exchange_text(text, lines, places, (wanted, fresh)), len(places))
    return _replace_approximately(lines, wanted, fresh, every=every)


def _normalize_ends(lines: Lines, text: str) -> str:
    """Line ends as line feeds, unless the file has no line ends at all."""
    if not lines.ends:
        return text
    text = text.replace("\r\n", "\n")
    return text.replace("\r", "\n") if lines.common_end == "\r" else text


def _find_places(text: str, old: str, *, every: bool) -> list[int]:
    """Where `old` is; unless every place is wanted, overlapping places count too."""
    places: list[int] = []
    step = len(old) if every else 1
    at = text.find(old)
    while at >= 0 and (every or len(places) < _MAX_COUNTED):
        places.append(at)
        at = text.find(old, at + step)
    return places


def _find_rows(text: str, places: Sequence[int]) -> list[int]:
    """The line of each place, from 0; `places` are sorted."""
    rows: list[int] = []
    row = done = 0
    for at in places:
        row += text.count("\n", done, at)
        done = at
        rows.append(row)
    return rows


def _require_one_place(rows: Sequence[int], *, every: bool) -> None:
    if len(rows) > 1 and not every:
        shown = ", ".join(str(row + 1) for row in rows[:_MAX_LISTED])
        more = ", …" if len(rows) > _MAX_LISTED else ""
        raise ToolError(
            f"`old` occurs {len(rows)} times (lines {shown}{more}). Nothing was changed. Add lines "
            "around it until it is unique, or set all=true."
        )


def _exchange_text(text: str, lines: Lines, places: list[int], change: tuple[str, str]) -> str:
    """The text with its line ends after the change; `places` are offsets into the text with line
    feeds. What is not replaced stays byte for byte."""
    old, new = change
    before = count_common(old, new)
    after = count_common(old[before:][::-1], new[before:][::-1])
    middle = new[before : len(new) - after]
    begins = [0, *accumulate(len(row) + 1 for row in lines.rows)]
    real = [0, *accumulate(len(r) + len(e) for r, e in zip(lines.rows, lines.ends, strict=False))]
    parts: list[str] = []
    done = 0
    for at in places:
        start, stop = at + before, at + len(old) - after
        first, last = bisect_right(begins, start) - 1, bisect_right(begins, stop) - 1
        cut, resume = real[first] + start - begins[first], real[last] + stop - begins[last]
        parts += (text[done:cut], _restore_ends(middle, lines, first, last))
        done = resume
    return "".join([*parts, text[done:]])


def _restore_ends(text: str, lines: Lines, first: int, last: int) -> str:
    """Line feeds become the ends of the replaced lines, then that of the next line."""
    rows = text.split("\n")
    if len(rows) == 1 or not lines.ends:
        return text
    ends = lines.ends[first:last]
    near = lines.ends[min(last, len(lines.ends) - 1)]
    ends = (ends + [near] * len(rows))[: len(rows) - 1]
    return "".join([row + end for row, end in zip(rows, [*ends, ""], strict=True)])


def _replace_approximately(lines: Lines, old: str, new: str, *, every: bool) -> EditResult:
    fresh = new.split("\n")
    if old.endswith("\n"):
        old = old[:-1]
        fresh = new.removesuffix("\n").split("\n") if new else []
    wanted = old.split("\n")
    how, found = find_block(lines.rows, wanted)
    if not found and (copied := strip_artifacts(wanted, fresh)):
        wanted, fresh = copied.old, copied.new
        if wanted == fresh:
            raise ToolError(_NO_CHANGE)
        how, found = find_clean_block(lines.rows, copied)
    if found:
        _require_one_place([f.start for f in found], every=every)
    else:
        how, found = guess_block(lines.rows, wanted, "`old`")
    matcher = SequenceMatcher(None, wanted, fresh, autojunk=False)
    script = list(sign_rows(matcher.get_opcodes(), wanted, fresh))
    edits = [Edit(f.start, f.stop, merge_block(lines.rows, f, script)) for f in found]
    return EditResult(apply_edits(lines, edits), len(edits), how)


def find_clean_block(rows: Sequence[str], copied: CleanBlock) -> tuple[str, list[BlockMatch]]:
    """Where the cleaned block is; of several places, the one its line numbers name."""
    how, found = find_block(rows, copied.old)
    if named := [f for f in found if f.start == copied.line - 1]:
        found = named
    what = "without its line numbers" if copied.line else "without its signs"
    return f"{what}, {how}" if how else what, found


def guess_block(
    rows: Sequence[str], wanted: Sequence[str], name: str
) -> tuple[str, list[BlockMatch]]:
    """The one place that is similar enough to be the one meant. Raises ToolError otherwise."""
    near = find_nearest(rows, wanted)
    sure = pick_clear_match(near, len(wanted))
    if sure is None:
        raise ToolError(
            f"{name} was not found{_describe_nearest(rows, near)}{suggest_fix(wanted)} "
            "Nothing was changed."
        )
    return f"approximately ({sure.score:.0%})", [sure]


def _describe_nearest(rows: Sequence[str], near: Sequence[BlockMatch]) -> str:
    if not near:
        return ", nor anything similar; read the file again."
    best = near[0]
    stop = min(best.stop, best.start + _MAX_SHOWN_LINES)
    shown = "\n".join(f"{n + 1}|{rows[n][:200]}" for n in range(best.start, stop))
    also = f" (and lines {near[1].start + 1}-{near[1].stop})" if len(near) > 1 else ""
    return f". The nearest is lines {best.start + 1}-{best.stop}{also}:\n{shown}\n"


def apply_edits(
    lines: Lines, edits: Sequence[Edit], *, final_end: bool | None = None, end: str = "\n"
) -> str:
    """The text after all edits, which are sorted and do not overlap. `final_end`: whether the
    last line gets a line end; None: as before. `end` is for a text that has no line end yet."""
    usual = lines.common_end or end
    rows: list[str] = []
    ends: list[str] = []

    def keep(start: int, stop: int) -> None:
        rows.extend(lines.rows[start:stop])
        ends.extend(lines.ends[start:stop])
        ends.extend([usual] * (len(rows) - len(ends)))

    done = 0
    for edit in edits:
        keep(done, edit.start)
        reused = {item for item in edit.items if isinstance(item, int)}
        replaced = range(edit.start, min(edit.stop, len(lines.ends)))
        spare = (lines.ends[n] for n in replaced if n not in reused)
        for item in edit.items:
            if isinstance(item, int):
                keep(item, item + 1)
            else:
                rows.append(item)
                ends.append(next(spare, ends[-1] if ends else usual))
        done = edit.stop
    keep(done, len(lines.rows))
    if final_end is None:
        final_end = lines.has_final_end
    if ends and not final_end:
        ends.pop()
    return Lines(rows, ends).join()

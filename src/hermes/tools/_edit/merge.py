"""The lines a block becomes: what it says is changed, the rest stays as the file has it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from hermes.core.errors import ToolError
from hermes.tools._edit.indent import Reindenter, get_indent
from hermes.tools._edit.locate import (
    MIN_REPLACED_SIMILARITY,
    MIN_SIMILARITY,
    PLAIN_CHARACTERS,
    BlockMatch,
    collapse_spaces,
    measure_similarity,
)
from hermes.tools._edit.paste_artifacts import find_added_escape

EditScript: TypeAlias = list[tuple[str, str]]
"""A block line by line: " " stays, "-" goes, "+" comes."""
Item: TypeAlias = int | str
"""A line of a result: one of the old lines, by its number, or a fresh one."""
_TOKEN = re.compile(r"\w+|\s+|(.)\1*", re.S)
"""Signs that stand in a row are one: nobody could say which of them was added."""
_CHARACTER_KINDS = {"'": "quote", '"': "quote", "-": "dash"}
_LAST_ASCII = 127
_WORD = re.compile(r"\w+")
_WITHOUT_DIGITS = re.compile(r"\D*$")
"""Where another digit stands, another number is meant."""
_MAX_MERGED_CHARS = 2000
"""Characters of a line beyond which it is taken as it was written."""


def merge_block(rows: Sequence[str], found: BlockMatch, script: EditScript) -> list[Item]:
    """The lines the block becomes: those that stay are the file's own."""
    fresh = _NewRows(rows, found, script)
    items: list[Item] = []
    at = found.start
    pairs = iter(found.pairs)
    changing = False
    for number, (sign, row) in enumerate(script):
        if sign == "+":
            items.append(fresh.adapt_row(number))
            changing = True
            continue
        there = next(pairs)
        if there is None:
            if sign == "-":
                raise ToolError(_describe_mismatch(row))
            continue
        # Lines nobody mentioned may stand between lines that stay, not amid a change.
        if (changing and there > at) or (sign == "-" and not _is_safe_to_delete(rows[there], row)):
            raise ToolError(_describe_mismatch(rows[at]))
        items += range(at, there if sign == "-" else there + 1)
        at, changing = there + 1, sign == "-"
    if changing and at < found.stop:
        raise ToolError(_describe_mismatch(rows[at]))
    return [*items, *range(at, found.stop)]


def _is_safe_to_delete(there: str, known: str) -> bool:
    """Whether a line may go that was known only nearly: not when there is more in it, nor when
    another word stands there than was said."""
    one, other = collapse_spaces(there), collapse_spaces(known)
    if one == other:
        return True
    return (
        other not in one
        and measure_similarity(there, known) >= MIN_REPLACED_SIMILARITY
        and _has_same_words(known, there)
    )


def _has_same_words(known: str, there: str) -> bool:
    """Whether the words differ by slips of the pen only."""
    mine, theirs = (_WORD.findall(row) for row in (known, there))
    pairs = [("".join(mine[i:ii]), "".join(lost)) for i, ii, lost in _list_edits(mine, theirs)]
    return all(
        not lost or (_WITHOUT_DIGITS.match(said + lost) and _is_similar(said, lost))
        for said, lost in pairs
    )


def _is_similar(one: str, other: str) -> bool:
    return measure_similarity(one, other) > MIN_SIMILARITY


def _describe_mismatch(row: str) -> str:
    return (
        f"Lines that are to be replaced are not quite those of the file (at {row.strip()[:120]!r})."
        " Read them again and give them exactly. Nothing was changed."
    )


class _NewRows:
    """Lines that come, in the manner of the file: what a block got wrong about the lines it was
    found by, it gets wrong in those it brings."""

    def __init__(self, rows: Sequence[str], found: BlockMatch, script: EditScript) -> None:
        self._script = script
        block = [number for number, (sign, _) in enumerate(script) if sign != "+"]
        self._file_rows = {
            number: rows[at]
            for number, at in zip(block, found.pairs, strict=True)
            if at is not None
        }
        known = [(script[number][1], there) for number, there in self._file_rows.items()]
        self._unchanged = all(a == b for a, b in known)
        self._reindent = Reindenter(
            [(a, b) for a, b in known if collapse_spaces(a) == collapse_spaces(b)], known
        )
        self._partners = {} if self._unchanged else self._pair_new_rows()
        self._plain_characters = _find_foreign_characters(
            [a for a, _ in known], [b for _, b in known]
        )
        self._added_escape = (
            ""
            if self._unchanged
            else find_added_escape([a for a, _ in known], [b for _, b in known])
        )

    def adapt_row(self, number: int) -> str:
        row = self._script[number][1]
        if self._unchanged:
            return row
        row = row.translate(self._plain_characters)
        if number in self._partners:
            was = self._partners[number]
            row = _merge_row(
                row, self._script[was][1].translate(self._plain_characters), self._file_rows[was]
            )
        if self._added_escape and self._added_escape in row:
            raise ToolError(
                f"It has {self._added_escape} where the file has not: do not escape. "
                "Nothing was changed."
            )
        return self._reindent(row)

    def _pair_new_rows(self) -> dict[int, int]:
        """Lines that come, each with the line it takes the place of if there is one like it."""
        partners: dict[int, int] = {}
        gone: list[int] = []
        come: list[int] = []
        for number, (sign, _) in enumerate([*self._script, (" ", "")]):
            if sign == " ":
                partners |= self._pair_similar(gone, come)
                gone, come = [], []
            elif sign == "+":
                come.append(number)
            elif number in self._file_rows:
                gone.append(number)
        return partners

    def _pair_similar(self, gone: list[int], come: list[int]) -> dict[int, int]:
        partners: dict[int, int] = {}
        left = list(gone)
        for number in come:
            row = self._script[number][1]
            for at, was in enumerate(left):
                if measure_similarity(row, self._script[was][1]) >= MIN_SIMILARITY:
                    partners[number] = was
                    del left[: at + 1]
                    break
        return partners


def _find_foreign_characters(written: Sequence[str], there: Sequence[str]) -> dict[int, str]:
    """Quotes or dashes that are not the file's manner, if the block has such; each with the plain
    one."""
    known = set("".join(there))
    mine = set("".join(written)) - known
    kinds = {
        _CHARACTER_KINDS.get(plain) for code, plain in PLAIN_CHARACTERS.items() if chr(code) in mine
    }
    return {
        code: plain
        for code, plain in PLAIN_CHARACTERS.items()
        if code > _LAST_ASCII
        and chr(code) not in known
        and _CHARACTER_KINDS.get(plain) in kinds - {None}
    }


def _merge_row(new: str, written: str, there: str) -> str:
    """`there` with the changes from `written` to `new`; where both differ, `new`."""
    if (
        written.strip() == there.strip()
        or max(len(new), len(written), len(there)) > _MAX_MERGED_CHARS
    ):
        return new
    base, mine, theirs = (_split_tokens(row.lstrip()) for row in (written, new, there))
    edits = _list_edits(base, mine)
    for start, stop, tokens in _list_edits(base, theirs):
        if not any(_ranges_meet(start, stop, a, b) for a, b, _ in edits):
            edits.append((start, stop, tokens))
    out: list[str] = []
    done = 0
    for start, stop, tokens in sorted(edits, key=lambda e: e[:2]):
        out += (*base[done:start], *tokens)
        done = stop
    return get_indent(new) + "".join([*out, *base[done:]])


def _split_tokens(text: str) -> list[str]:
    return [token[0] for token in _TOKEN.finditer(text)]


def _list_edits(base: list[str], other: list[str]) -> list[tuple[int, int, list[str]]]:
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, base, other, autojunk=False)
    return [(i, ii, other[j:jj]) for tag, i, ii, j, jj in matcher.get_opcodes() if tag != "equal"]


def _ranges_meet(start: int, stop: int, other: int, until: int) -> bool:
    if start == stop or other == until:
        return start <= until and other <= stop
    return start < until and other < stop

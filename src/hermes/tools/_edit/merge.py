"""Merges an edit into the matching lines of a file; what the edit does not change stays."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import TypeAlias

from hermes.core.errors import ToolError
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
"""A block line by line: " " is context, "-" is deleted, "+" is added."""
Item: TypeAlias = int | str
"""A line of the result: the number of an old line, or the text of a new one."""
_TOKEN = re.compile(r"\w+|\s+|(.)\1*", re.S)
"""A run of one character is one token: nobody could say which of them was added."""
_CHARACTER_KINDS = {"'": "quote", '"': "quote", "-": "dash"}
_LAST_ASCII = 127
_WORD = re.compile(r"\w+")
_WITHOUT_DIGITS = re.compile(r"\D*$")
"""A word with another digit is another number, not a typing error."""
_MAX_MERGED_CHARS = 2000
"""A longer line is taken as it was written."""
_TAB_WIDTH = 4
"""Spaces per tab when nothing shows the width."""


def merge_block(rows: Sequence[str], match: BlockMatch, script: EditScript) -> list[Item]:
    """The lines that replace the matched block; context lines keep the file's own text."""
    new_rows = _NewRows(rows, match, script)
    items: list[Item] = []
    at = match.start
    pairs = iter(match.pairs)
    changing = False
    for number, (sign, row) in enumerate(script):
        if sign == "+":
            items.append(new_rows.adapt_row(number))
            changing = True
            continue
        partner = next(pairs)
        if partner is None:
            if sign == "-":
                raise _make_mismatch(row)
            continue
        # Lines the edit does not mention may stand between context lines, not amid a change.
        if (changing and partner > at) or (sign == "-" and not _may_delete(rows[partner], row)):
            raise _make_mismatch(rows[at])
        items += range(at, partner if sign == "-" else partner + 1)
        at, changing = partner + 1, sign == "-"
    if changing and at < match.stop:
        raise _make_mismatch(rows[at])
    return [*items, *range(at, match.stop)]


def _may_delete(actual: str, written: str) -> bool:
    """Whether a line that was matched only approximately may be deleted: not when it contains
    more than was written, nor when one of its words is another."""
    one, other = collapse_spaces(actual), collapse_spaces(written)
    return one == other or (
        other not in one
        and measure_similarity(actual, written) >= MIN_REPLACED_SIMILARITY
        and _has_same_words(written, actual)
    )


def _has_same_words(written: str, actual: str) -> bool:
    """Whether the words differ by typing errors only."""
    mine, theirs = _WORD.findall(written), _WORD.findall(actual)
    pairs = [("".join(mine[i:ii]), "".join(lost)) for i, ii, lost in _list_edits(mine, theirs)]
    return all(
        not lost
        or (_WITHOUT_DIGITS.match(word + lost) and measure_similarity(word, lost) > MIN_SIMILARITY)
        for word, lost in pairs
    )


def _make_mismatch(row: str) -> ToolError:
    return ToolError(
        f"The lines to replace differ from the file (at {row.strip()[:120]!r}). Nothing was "
        "changed. Read the file again and give them exactly."
    )


class _NewRows:
    """Added lines in the style of the file: what the block got wrong in the lines it was found
    by (indentation, quotes, spelling), it gets wrong in its added lines too."""

    def __init__(self, rows: Sequence[str], match: BlockMatch, script: EditScript) -> None:
        self._script = script
        block = [number for number, (sign, _) in enumerate(script) if sign != "+"]
        self._file_rows = {
            number: rows[at]
            for number, at in zip(block, match.pairs, strict=True)
            if at is not None
        }
        known = [(script[number][1], actual) for number, actual in self._file_rows.items()]
        self._exact = all(a == b for a, b in known)
        if self._exact:
            return
        written, actual = [a for a, _ in known], [b for _, b in known]
        sure = [(a, b) for a, b in known if collapse_spaces(a) == collapse_spaces(b)]
        self._reindenter = _Reindenter(sure, known)
        self._partners = self._pair_new_rows()
        self._plain_characters = _find_foreign_characters(written, actual)
        self._added_escape = find_added_escape(written, actual)

    def adapt_row(self, number: int) -> str:
        row = self._script[number][1]
        if self._exact:
            return row
        row = row.translate(self._plain_characters)
        if number in self._partners:
            old = self._partners[number]
            written = self._script[old][1].translate(self._plain_characters)
            row = _merge_row(row, written, self._file_rows[old])
        if self._added_escape and self._added_escape in row:
            raise ToolError(
                f"The edit has {self._added_escape} where the file has not: do not escape. "
                "Nothing was changed."
            )
        return self._reindenter.reindent(row)

    def _pair_new_rows(self) -> dict[int, int]:
        """Pairs each added line with the similar deleted line that it replaces, if any."""
        partners: dict[int, int] = {}
        deleted: list[int] = []
        added: list[int] = []
        for number, (sign, _) in enumerate([*self._script, (" ", "")]):
            if sign == " ":
                partners |= self._pair_similar(deleted, added)
                deleted, added = [], []
            elif sign == "+":
                added.append(number)
            elif number in self._file_rows:
                deleted.append(number)
        return partners

    def _pair_similar(self, deleted: list[int], added: list[int]) -> dict[int, int]:
        partners: dict[int, int] = {}
        for number in added:
            row = self._script[number][1]
            for at, old in enumerate(deleted):
                if measure_similarity(row, self._script[old][1]) >= MIN_SIMILARITY:
                    partners[number] = old
                    del deleted[: at + 1]
                    break
        return partners


def _find_foreign_characters(written: Sequence[str], actual: Sequence[str]) -> dict[int, str]:
    """Typographic quotes or dashes that the block has and the file does not, each with its plain
    form."""
    known = set("".join(actual))
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


def _merge_row(new: str, written: str, actual: str) -> str:
    """`actual` with the changes from `written` to `new`; where both differ, `new`."""
    longest = max(len(new), len(written), len(actual))
    if written.strip() == actual.strip() or longest > _MAX_MERGED_CHARS:
        return new
    base, mine, theirs = (
        [token[0] for token in _TOKEN.finditer(row.lstrip())] for row in (written, new, actual)
    )
    edits = _list_edits(base, mine)
    for start, stop, tokens in _list_edits(base, theirs):
        if not any(_ranges_meet(start, stop, a, b) for a, b, _ in edits):
            edits.append((start, stop, tokens))
    out: list[str] = []
    done = 0
    for start, stop, tokens in sorted(edits, key=lambda e: e[:2]):
        out += (*base[done:start], *tokens)
        done = stop
    return _get_indent(new) + "".join([*out, *base[done:]])


def _list_edits(base: list[str], other: list[str]) -> list[tuple[int, int, list[str]]]:
    matcher = SequenceMatcher(None, base, other, autojunk=False)
    return [(i, ii, other[j:jj]) for tag, i, ii, j, jj in matcher.get_opcodes() if tag != "equal"]


def _ranges_meet(start: int, stop: int, other: int, until: int) -> bool:
    if start == stop or other == until:
        return start <= until and other <= stop
    return start < until and other < stop


def _get_indent(row: str) -> str:
    return row[: len(row) - len(row.lstrip())]


class _Reindenter:
    """Maps the indentation of a block to that of the file, learned from lines known in both
    forms: first from those that are surely the same, then from the others."""

    def __init__(self, sure: Iterable[tuple[str, str]], known: Iterable[tuple[str, str]]) -> None:
        self._table: dict[str, str] = {}
        for lines in (sure, known):
            counts = Counter((_get_indent(a), _get_indent(b)) for a, b in lines if a.strip())
            for (written, actual), _ in counts.most_common():
                self._table.setdefault(written, actual)
        self._unchanged = all(a == b for a, b in self._table.items())
        self._uses_tabs = any("\t" in actual for actual in self._table.values())
        self._ratio = self._infer_ratio()

    def reindent(self, row: str) -> str:
        if self._unchanged or not row.strip():
            return row
        indent = _get_indent(row)
        return self._map_indent(indent) + row[len(indent) :]

    def _map_indent(self, indent: str) -> str:
        if indent in self._table:
            return self._table[indent]
        bases = [base for base in self._table if indent.startswith(base)]
        if bases:
            base = max(bases, key=len)
            return self._table[base] + self._convert_indent(indent[len(base) :])
        shortest = min(self._table, key=len)
        if not shortest.startswith(indent):
            return indent
        actual = self._table[shortest]
        missing = self._convert_indent(shortest[len(indent) :])
        return actual[: max(0, len(actual) - len(missing))]

    def _infer_ratio(self) -> float:
        """Characters in the file per character written; 0 when nothing shows it."""
        steps = sorted((len(a), len(b)) for a, b in self._table.items())
        for (a1, b1), (a2, b2) in pairwise(steps):
            if a2 > a1 and b2 > b1:
                return (b2 - b1) / (a2 - a1)
        for written, actual in self._table.items():
            if written and actual and ("\t" in written) != ("\t" in actual):
                return len(actual) / len(written)
        return 0.0

    def _convert_indent(self, rest: str) -> str:
        if not rest or set(rest) - {" ", "\t"}:
            return rest
        ratio = self._ratio
        if not ratio:
            if ("\t" in rest) == self._uses_tabs:
                return rest
            ratio = 1 / _TAB_WIDTH if self._uses_tabs else _TAB_WIDTH
        size = len(rest) * ratio
        return ("\t" if self._uses_tabs else " ") * int(size) if size == int(size) else rest

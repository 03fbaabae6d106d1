"""A unified diff of two texts, bounded in size and in the time it takes."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import compress, groupby
from operator import eq, ne
from typing import Literal, TypeAlias

from msgspec import Struct
from typing_extensions import override

from hermes.tools._edit.text_file import NO_NEWLINE, Lines, count_common, sign_rows

MAX_LINES = 300
MAX_CHARS = 12_000
_CONTEXT_LINES = 3
_MAX_COMPARED_LINES = 20_000
"""No diff is computed when the first and the last change are further apart."""


_Opcode: TypeAlias = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]


class Diff(Struct, frozen=True):
    text: str
    added: int
    removed: int
    is_whole: bool = True
    """Whether every changed line is in the text."""


def make_diff(old: str, new: str, names: tuple[str, str]) -> Diff:
    before, after = Lines.split(old), Lines.split(new)
    a, b = _mark_line_ends(before), _mark_line_ends(after)
    head = count_common(a, b)
    tail = count_common(a[head:][::-1], b[head:][::-1])
    skip = max(0, head - _CONTEXT_LINES)
    keep = max(0, tail - _CONTEXT_LINES)
    a, b = a[skip : len(a) - keep], b[skip : len(b) - keep]
    header = [f"--- {names[0]}", f"+++ {names[1]}"]
    if max(len(a), len(b)) > _MAX_COMPARED_LINES:
        header.append(f"[{len(a)} lines became {len(b)}; too many to show]")
        return Diff("\n".join(header), len(b), len(a), is_whole=False)
    rows = list(_format_hunks(a, b, skip))
    added = sum(row.startswith("+") for row in rows)
    removed = sum(row.startswith("-") for row in rows)
    shown = limit_rows([*header, *rows])
    return Diff("\n".join(shown), added, removed, is_whole=shown == [*header, *rows])


def limit_rows(rows: Sequence[str]) -> list[str]:
    shown: list[str] = []
    room = MAX_CHARS
    for row in rows[:MAX_LINES]:
        row = row if len(row) <= 1000 else f"{row[:1000]}…"
        room -= len(row) + 1
        if room < 0:
            break
        shown.append(row)
    if len(shown) < len(rows):
        shown.append(f"[… {len(rows) - len(shown)} more lines of this diff]")
    return shown


def _mark_line_ends(lines: Lines) -> list[str]:
    """Lines with their unusual ends made visible, so that these show in the diff."""
    if lines.has_final_end and not lines.has_mixed_ends:
        return lines.rows
    ends = lines.ends if lines.has_final_end else [*lines.ends, "\\"]
    marks = {lines.common_end: "", "\\": f"\n{NO_NEWLINE}"}
    return [
        row + marks.get(e, "") + ("" if e in marks else repr(e)[1:-1])
        for row, e in zip(lines.rows, ends, strict=True)
    ]


class _PairedLines(SequenceMatcher[str]):
    """A comparison that is known: every line is where it was, changed or not."""

    def __init__(self, opcodes: list[_Opcode]) -> None:
        super().__init__()
        self._opcodes = opcodes

    @override
    def get_opcodes(self) -> list[_Opcode]:
        return self._opcodes


def _format_hunks(a: list[str], b: list[str], skip: int) -> Iterator[str]:
    matcher = _pair_lines(a, b) or SequenceMatcher(None, a, b, autojunk=len(a) > 2000)
    for group in matcher.get_grouped_opcodes(_CONTEXT_LINES):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        yield f"@@ -{_format_range(i1, i2, skip)} +{_format_range(j1, j2, skip)} @@"
        yield from (sign + row for sign, row in sign_rows(group, a, b))


def _pair_lines(a: list[str], b: list[str]) -> _PairedLines | None:
    """A comparison of texts with as many lines, several times as fast; None when a changed line
    may have been moved."""
    if len(a) != len(b):
        return None
    changed = list(map(ne, a, b))
    if not set(compress(a, changed)).isdisjoint(b) or not set(compress(b, changed)).isdisjoint(a):
        return None
    opcodes: list[_Opcode] = []
    at = 0
    for same, run in groupby(map(eq, a, b)):
        end = at + sum(1 for _ in run)
        opcodes.append(("equal" if same else "replace", at, end, at, end))
        at = end
    return _PairedLines(opcodes)


def _format_range(start: int, stop: int, skip: int) -> str:
    size = stop - start
    first = start + skip + (1 if size else 0)
    return str(first) if size == 1 else f"{first},{size}"

"""Moves lines written with one indentation to the indentation of the file they go into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

_TAB = 4
"""Spaces for a tab when nothing shows how many."""


def indent_of(row: str) -> str:
    return row[: len(row) - len(row.lstrip())]


class Reindent:
    """What was learned from lines known in both forms, as written and as in the file: first from
    those that are surely the same, then from the others."""

    def __init__(self, sure: Iterable[tuple[str, str]], known: Iterable[tuple[str, str]]) -> None:
        self._table: dict[str, str] = {}
        for lines in (sure, known):
            counts = Counter((indent_of(a), indent_of(b)) for a, b in lines if a.strip())
            for (written, there), _ in counts.most_common():
                self._table.setdefault(written, there)
        self._same = all(a == b for a, b in self._table.items())
        self._tabs = any("\t" in there for there in self._table.values())
        self._ratio = self._learned()

    def __call__(self, row: str) -> str:
        if self._same or not row.strip():
            return row
        indent = indent_of(row)
        return self._moved(indent) + row[len(indent) :]

    def _moved(self, indent: str) -> str:
        if indent in self._table:
            return self._table[indent]
        bases = [base for base in self._table if indent.startswith(base)]
        if bases:
            base = max(bases, key=len)
            return self._table[base] + self._converted(indent[len(base) :])
        shortest = min(self._table, key=len)
        if not shortest.startswith(indent):
            return indent
        there = self._table[shortest]
        missing = self._converted(shortest[len(indent) :])
        return there[: max(0, len(there) - len(missing))]

    def _learned(self) -> float:
        """How many characters of the file one of ours is; 0 when nothing shows it."""
        steps = sorted((len(a), len(b)) for a, b in self._table.items())
        for (a1, b1), (a2, b2) in pairwise(steps):
            if a2 > a1 and b2 > b1:
                return (b2 - b1) / (a2 - a1)
        for written, there in self._table.items():
            if written and there and ("\t" in written) != ("\t" in there):
                return len(there) / len(written)
        return 0.0

    def _converted(self, rest: str) -> str:
        if not rest or set(rest) - {" ", "\t"}:
            return rest
        ratio = self._ratio
        if not ratio:
            if ("\t" in rest) == self._tabs:
                return rest
            ratio = 1 / _TAB if self._tabs else _TAB
        size = len(rest) * ratio
        return ("\t" if self._tabs else " ") * int(size) if size == int(size) else rest

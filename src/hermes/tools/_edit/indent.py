"""Moves lines written with one indentation to the indentation of the file they go into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

_TAB_WIDTH = 4
"""Spaces for a tab when nothing shows how many."""


def get_indent(row: str) -> str:
    return row[: len(row) - len(row.lstrip())]


class Reindenter:
    """What was learned from lines known in both forms, as written and as in the file: first from
    those that are surely the same, then from the others."""

    def __init__(self, sure: Iterable[tuple[str, str]], known: Iterable[tuple[str, str]]) -> None:
        self._table: dict[str, str] = {}
        for lines in (sure, known):
            counts = Counter((get_indent(a), get_indent(b)) for a, b in lines if a.strip())
            for (written, there), _ in counts.most_common():
                self._table.setdefault(written, there)
        self._unchanged = all(a == b for a, b in self._table.items())
        self._uses_tabs = any("\t" in there for there in self._table.values())
        self._ratio = self._infer_ratio()

    def __call__(self, row: str) -> str:
        if self._unchanged or not row.strip():
            return row
        indent = get_indent(row)
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
        there = self._table[shortest]
        missing = self._convert_indent(shortest[len(indent) :])
        return there[: max(0, len(there) - len(missing))]

    def _infer_ratio(self) -> float:
        """How many characters of the file one of ours is; 0 when nothing shows it."""
        steps = sorted((len(a), len(b)) for a, b in self._table.items())
        for (a1, b1), (a2, b2) in pairwise(steps):
            if a2 > a1 and b2 > b1:
                return (b2 - b1) / (a2 - a1)
        for written, there in self._table.items():
            if written and there and ("\t" in written) != ("\t" in there):
                return len(there) / len(written)
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

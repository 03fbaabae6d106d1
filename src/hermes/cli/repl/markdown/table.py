"""Markdown tables: columns as wide as their content, or as the terminal allows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hermes.cli.repl.markdown.inline import pieces
from hermes.cli.repl.markdown.styled_text import BOLD, DIM, Piece, cells, fit, wrap

_CELL = re.compile(r"(?<!\\)\|")
_SEPARATOR = re.compile(r"^\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?$")
_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)
_MEASURED = 200
_LEAST = 4
_READABLE = 8
"""Columns narrower than this hold no words: then each cell gets a line of its own."""


def separator(row: str) -> bool:
    return bool(_SEPARATOR.match(row.strip()))


def split(row: str) -> list[str]:
    inner = row.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _CELL.split(inner)]


class Table:
    """Its widths are those of the first rows."""

    def __init__(self, rows: Sequence[str], width: int) -> None:
        self._titles = split(rows[0])
        self._aligned = [(cell.startswith(":"), cell.endswith(":")) for cell in split(rows[1])]
        measured = [self._titles, *map(split, rows[2:_MEASURED])]
        count = len(self._titles)
        natural = [
            max((_natural(row[i]) for row in measured if i < len(row)), default=1)
            for i in range(count)
        ]
        self._width, room = width, width - 3 * (count - 1)
        self._widths = shared(natural, room)
        self._apart = sum(natural) > room and room < _READABLE * count

    def head(self) -> list[list[Piece]]:
        if self._apart:
            return []
        rule = "─┼─".join("─" * width for width in self._widths)
        return [*self._lines(self._titles, BOLD), [(DIM, rule)]]

    def row(self, row: str) -> list[list[Piece]]:
        return self._record(split(row)) if self._apart else self._lines(split(row), "")

    def _record(self, texts: list[str]) -> list[list[Piece]]:
        lines: list[list[Piece]] = []
        for title, text in zip(self._titles, texts, strict=False):
            head = fit("".join(t for _, t in pieces(title)), self._width // 2)
            lines += wrap(pieces(text), self._width, [(BOLD, f"{head}: ")], "  ")
        return [*lines, [(DIM, "─" * min(self._width, 10))]]

    def _lines(self, given: list[str], style: str) -> list[list[Piece]]:
        count = len(self._widths)
        texts = [*given[:count], *[""] * (count - len(given))]
        columns = [
            [line for part in _BREAK.split(text) for line in wrap(pieces(part, style), width)]
            for text, width in zip(texts, self._widths, strict=True)
        ]
        height = max((len(column) for column in columns), default=0)
        return [self._line(columns, number) for number in range(height)]

    def _line(self, columns: list[list[list[Piece]]], number: int) -> list[Piece]:
        line: list[Piece] = []
        for i, (column, width) in enumerate(zip(columns, self._widths, strict=True)):
            inside = column[number] if number < len(column) else []
            free = max(0, width - sum(cells(text) for _, text in inside))
            left, right = self._aligned[i] if i < len(self._aligned) else (True, False)
            before = (free // 2 if left else free) if right else 0
            line += [("", " " * before), *inside, ("", " " * (free - before))]
            if i + 1 < len(self._widths):
                line.append((DIM, " │ "))
        return line


def _natural(text: str) -> int:
    return max(1, *(sum(cells(t) for _, t in pieces(part)) for part in _BREAK.split(text)))


def shared(natural: list[int], width: int) -> list[int]:
    """What each column gets: the narrow ones what they want, the wide ones the rest in equal
    parts."""
    widths = list(natural)
    room, open_ = max(width, _LEAST * len(natural)), set(range(len(natural)))
    if sum(natural) <= room:
        return widths
    while open_:
        fair = max(_LEAST, room // len(open_))
        small = {i for i in open_ if natural[i] <= fair}
        if not small:
            for i in open_:
                widths[i] = fair
            break
        room -= sum(natural[i] for i in small)
        open_ -= small
    return widths

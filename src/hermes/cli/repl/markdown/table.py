"""Markdown tables: columns as wide as their content, or as the terminal allows."""

import re
from collections.abc import Sequence

from hermes.cli.repl.markdown.inline import parse_inline
from hermes.cli.repl.markdown.styled_text import Line, Style, cell_width, fit_text, wrap_line

_CELL_BORDER = re.compile(r"(?<!\\)\|")
_SEPARATOR = re.compile(r"^\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?$")
_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)
_MEASURED_ROWS = 200
_MIN_COLUMN = 4
_READABLE_COLUMN = 8
"""Narrower columns hold no words: then each cell gets a line of its own."""


def is_separator(row: str) -> bool:
    return bool(_SEPARATOR.match(row.strip()))


def split_row(row: str) -> list[str]:
    inner = row.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _CELL_BORDER.split(inner)]


class Table:
    """A table whose column widths are those of its first rows."""

    def __init__(self, rows: Sequence[str], width: int) -> None:
        self._titles = split_row(rows[0])
        self._aligned = [(cell.startswith(":"), cell.endswith(":")) for cell in split_row(rows[1])]
        measured = [self._titles, *map(split_row, rows[2:_MEASURED_ROWS])]
        count = len(self._titles)
        natural = [
            max((_text_width(row[i]) for row in measured if i < len(row)), default=1)
            for i in range(count)
        ]
        self._width, room = width, width - 3 * (count - 1)
        self._widths = share_width(natural, room)
        self._one_cell_per_line = sum(natural) > room and room < _READABLE_COLUMN * count

    def format_head(self) -> list[Line]:
        if self._one_cell_per_line:
            return []
        rule = "─┼─".join("─" * width for width in self._widths)
        return [*self._format_cells(self._titles, Style.BOLD), [(Style.DIM, rule)]]

    def format_row(self, row: str) -> list[Line]:
        cells = split_row(row)
        one_per_line = self._one_cell_per_line
        return self._format_record(cells) if one_per_line else self._format_cells(cells, "")

    def _format_record(self, texts: list[str]) -> list[Line]:
        lines: list[Line] = []
        for title, text in zip(self._titles, texts, strict=False):
            head = fit_text("".join(t for _, t in parse_inline(title)), self._width // 2)
            lines += wrap_line(parse_inline(text), self._width, [(Style.BOLD, f"{head}: ")], "  ")
        return [*lines, [(Style.DIM, "─" * min(self._width, 10))]]

    def _format_cells(self, cells: list[str], style: str) -> list[Line]:
        count = len(self._widths)
        texts = [*cells[:count], *[""] * (count - len(cells))]
        columns = [
            [
                line
                for part in _BREAK.split(text)
                for line in wrap_line(parse_inline(part, style), width)
            ]
            for text, width in zip(texts, self._widths, strict=True)
        ]
        height = max((len(column) for column in columns), default=0)
        return [self._format_line(columns, number) for number in range(height)]

    def _format_line(self, columns: list[list[Line]], number: int) -> Line:
        line: Line = []
        for i, (column, width) in enumerate(zip(columns, self._widths, strict=True)):
            inside = column[number] if number < len(column) else []
            free = max(0, width - sum(cell_width(text) for _, text in inside))
            left, right = self._aligned[i] if i < len(self._aligned) else (True, False)
            before = (free // 2 if left else free) if right else 0
            line += [("", " " * before), *inside, ("", " " * (free - before))]
            if i + 1 < len(self._widths):
                line.append((Style.DIM, " │ "))
        return line


def _text_width(text: str) -> int:
    parts = map(parse_inline, _BREAK.split(text))
    return max(1, *(sum(cell_width(t) for _, t in part) for part in parts))


def share_width(natural: list[int], width: int) -> list[int]:
    """The width of each column: narrow ones get what they need, wide ones share the rest."""
    widths = list(natural)
    room, open_ = max(width, _MIN_COLUMN * len(natural)), set(range(len(natural)))
    if sum(natural) <= room:
        return widths
    while open_:
        fair = max(_MIN_COLUMN, room // len(open_))
        small = {i for i in open_ if natural[i] <= fair}
        if not small:
            for i in open_:
                widths[i] = fair
            break
        room -= sum(natural[i] for i in small)
        open_ -= small
    return widths

"""Streamed Markdown to lines for the terminal: a line that has ended is final, and costs the same
whatever came before it."""

from __future__ import annotations

import re
from collections.abc import Callable

from hermes.cli.repl.markdown import table
from hermes.cli.repl.markdown.highlight import Highlighter
from hermes.cli.repl.markdown.inline import pieces
from hermes.cli.repl.markdown.styled_text import (
    BOLD,
    DIM,
    HEADING,
    ITALIC,
    MARK,
    Piece,
    join,
    painted,
    wrap,
)
from hermes.cli.terminal.text import printable

_FENCE = re.compile(r"^ {0,8}(`{3,}|~{3,})[ \t]*([^`\s]*)[^`]*$")
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*$")
_RULE = re.compile(r"^ {0,3}(?:([-*_])[ \t]*(?:\1[ \t]*){2,}|={3,})$")
_ITEM = re.compile(r"^([ \t]*)([-*+]|\d{1,9}[.)])[ \t]+(.*)$")
_TASK = re.compile(r"^\[([ xX])\][ \t]+(.*)$")
_QUOTE = re.compile(r"^ {0,3}((?:>[ \t]?)+)(.*)$")
_TABLE_ROWS = 200
"""A longer table is shown piece by piece, with the columns its beginning has."""
_SHOWN = 1500
"""Characters of a line that is still being written."""


class Markdown:
    """`feed` gives the lines that are final now; `live` how the unfinished rest looks."""

    def __init__(self, columns: Callable[[], int], *, colour: bool) -> None:
        self._columns = columns
        self._colour = colour
        self._open: list[str] = []
        self._fence = ""
        self._code = Highlighter("")
        self._rows: list[str] = []
        self._table: table.Table | None = None
        self._blank = True
        """The last line was empty, or there was none."""

    def feed(self, text: str) -> list[str]:
        *ended, rest = text.split("\n")
        out: list[str] = []
        for line in ended:
            self._open.append(line)
            self._line("".join(self._open), out)
            self._open.clear()
        if rest:
            self._open.append(rest)
        return out

    def close(self) -> list[str]:
        """What is left, as if it had ended here; the next text begins anew."""
        out: list[str] = []
        if self._open:
            self._line("".join(self._open), out)
            self._open.clear()
        self._end_table(out)
        self._fence, self._blank = "", True
        return out

    def live(self) -> list[str]:
        """The unfinished line, and a table whose end has not come."""
        text = "".join(self._open)
        if len(self._open) > 1:
            self._open = [text]
        if len(self._rows) == 1 and not self._rows[0].lstrip().startswith("|"):
            out = [self._paint(line) for line in self._block(self._rows[0])]
        else:
            out = [self._paint([("", row.strip())]) for row in self._rows[-5:]]
        if not text:
            return out
        text = printable(text[-_SHOWN:])
        if self._fence or text.lstrip().startswith("|"):
            found = wrap([("", text)], self._columns())
        else:
            found = self._block(text)
        return out + [self._paint(line) for line in found]

    # -- lines -----------------------------------------------------------------------------

    def _line(self, text: str, out: list[str]) -> None:
        text = printable(text).rstrip()
        if self._fence:
            self._in_fence(text, out)
            return
        row = self._tabular(text)
        if not row:
            self._end_table(out)
            row = self._tabular(text)
        if row:
            self._rows.append(text)
            if len(self._rows) >= _TABLE_ROWS:
                self._flush_rows(out)
            return
        if not text:
            if not self._blank:
                out.append("")
            self._blank = True
            return
        self._blank = False
        if found := _FENCE.match(text):
            self._fence = found[1]
            self._code = Highlighter(found[2] if self._colour else "")
            out.append(self._paint([(DIM, text.expandtabs(4))]))
            return
        out += [self._paint(line) for line in self._block(text)]

    def _in_fence(self, text: str, out: list[str]) -> None:
        bare = text.strip()
        if bare.startswith(self._fence) and not bare.strip(self._fence[0]):
            self._fence = ""
            self._blank = False
            out.append(self._paint([(DIM, text.expandtabs(4))]))
            return
        # Not wrapped: what is copied from the terminal is what was written.
        out.append(self._paint(self._code.line(text.expandtabs(4))))

    def _block(self, text: str) -> list[list[Piece]]:
        width = self._columns()
        if found := _HEADING.match(text):
            style = HEADING if len(found[1]) <= 2 else BOLD
            return wrap(pieces(found[2], style), width)
        if _RULE.match(text):
            return [[(DIM, "─" * min(width, 40))]]
        if found := _ITEM.match(text):
            return self._item(found, width)
        if found := _QUOTE.match(text):
            bar = "▎ " * found[1].count(">")
            inner = max(10, width - len(bar))
            lines = wrap(pieces(found[2], ITALIC), inner)
            return [[(DIM, bar), *line] for line in lines]
        indent = text[: len(text) - len(text.lstrip())].expandtabs(4)
        indent = indent if len(indent) < width // 2 else ""
        head = [("", indent)] if indent else []
        return wrap(pieces(text.lstrip()), width, head, indent)

    def _item(self, found: re.Match[str], width: int) -> list[list[Piece]]:
        depth = min(len(found[1].expandtabs(4)), width // 2)
        mark, text = found[2], found[3]
        if mark in "-*+":
            mark = "•"
        if task := _TASK.match(text):
            mark, text = ("☐" if task[1] == " " else "☑"), task[2]
        head = [("", " " * depth), (join(MARK), f"{mark} ")]
        return wrap(pieces(text), width, head, " " * (depth + len(mark) + 1))

    # -- tables ----------------------------------------------------------------------------

    def _tabular(self, text: str) -> bool:
        """A row, or a line that the next one may make the head of a table."""
        bare = text.lstrip()
        if bare.startswith("|"):
            return True
        if "|" not in bare:
            return False
        if self._table is not None or len(self._rows) > 1:
            return self._table is not None or table.separator(self._rows[1])
        if self._rows:
            return table.separator(bare)
        return not any(kind.match(text) for kind in (_HEADING, _ITEM, _QUOTE, _FENCE))

    def _flush_rows(self, out: list[str]) -> None:
        if self._table is None and len(self._rows) > 1 and table.separator(self._rows[1]):
            self._table = table.Table(self._rows, self._columns())
            rows = self._rows[2:]
            out += [self._paint(line) for line in self._table.head()]
        elif self._table is not None:
            rows = self._rows
        else:
            for row in self._rows:
                out += [self._paint(line) for line in self._block(row)]
            self._rows.clear()
            return
        for row in rows:
            out += [self._paint(line) for line in self._table.row(row)]
        self._rows.clear()

    def _end_table(self, out: list[str]) -> None:
        if self._rows:
            self._flush_rows(out)
            self._blank = False
        self._table = None

    def _paint(self, line: list[Piece]) -> str:
        return painted(line, colour=self._colour)

"""Streamed Markdown as lines for the terminal: a line that has ended is final, and costs the same
whatever came before it."""

import re
from collections.abc import Callable

from hermes.cli.repl.markdown import table
from hermes.cli.repl.markdown.highlight import Highlighter
from hermes.cli.repl.markdown.inline import parse_inline
from hermes.cli.repl.markdown.styled_text import Line, Style, join_styles, paint_line, wrap_line
from hermes.cli.terminal.text import strip_controls

_FENCE = re.compile(r"^ {0,8}(`{3,}|~{3,})[ \t]*([^`\s]*)[^`]*$")
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*$")
_RULE = re.compile(r"^ {0,3}(?:([-*_])[ \t]*(?:\1[ \t]*){2,}|={3,})$")
_ITEM = re.compile(r"^([ \t]*)([-*+]|\d{1,9}[.)])[ \t]+(.*)$")
_TASK = re.compile(r"^\[([ xX])\][ \t]+(.*)$")
_QUOTE = re.compile(r"^ {0,3}((?:>[ \t]?)+)(.*)$")
_TABLE_ROWS = 200
"""A longer table is shown in parts, with the column widths of its beginning."""
_UNFINISHED_CHARS = 1500
"""Shown of a line that is still being written."""


class Markdown:
    """`feed` returns the lines that became final, `unfinished_lines` how the remainder looks."""

    def __init__(self, columns: Callable[[], int], *, colour: bool) -> None:
        self._columns = columns
        self._colour = colour
        self._open: list[str] = []
        self._fence = ""
        self._code = Highlighter("")
        self._rows: list[str] = []
        self._table: table.Table | None = None
        self._blank = True
        """The last line was empty, or there is none yet."""

    def feed(self, text: str) -> list[str]:
        *ended, remainder = text.split("\n")
        out: list[str] = []
        for line in ended:
            self._open.append(line)
            self._add_line("".join(self._open), out)
            self._open.clear()
        if remainder:
            self._open.append(remainder)
        return out

    def close(self) -> list[str]:
        """The remaining lines, as if the text had ended here; the next text starts afresh."""
        out: list[str] = []
        if self._open:
            self._add_line("".join(self._open), out)
            self._open.clear()
        self._end_table(out)
        self._fence, self._blank = "", True
        return out

    def unfinished_lines(self) -> list[str]:
        """The line, and the table, whose end has not arrived."""
        text = "".join(self._open)
        if len(self._open) > 1:
            self._open = [text]
        lines: list[Line] = [[("", row.strip())] for row in self._rows[-5:]]
        if len(self._rows) == 1 and not self._rows[0].lstrip().startswith("|"):
            lines = self._format_block(self._rows[0])
        if text:
            text = strip_controls(text[-_UNFINISHED_CHARS:])
            raw = self._fence or text.lstrip().startswith("|")
            lines += wrap_line([("", text)], self._columns()) if raw else self._format_block(text)
        return [self._paint_line(line) for line in lines]

    def _add_line(self, text: str, out: list[str]) -> None:
        text = strip_controls(text).rstrip()
        if self._fence:
            self._add_code_line(text, out)
            return
        row = self._is_table_row(text)
        if not row:
            self._end_table(out)
            row = self._is_table_row(text)
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
            out.append(self._paint_line([(Style.DIM, text.expandtabs(4))]))
            return
        out += map(self._paint_line, self._format_block(text))

    def _add_code_line(self, text: str, out: list[str]) -> None:
        bare = text.strip()
        if bare.startswith(self._fence) and not bare.strip(self._fence[0]):
            self._fence = ""
            self._blank = False
            out.append(self._paint_line([(Style.DIM, text.expandtabs(4))]))
            return
        # Not wrapped: code copied from the terminal must be the code that was written.
        out.append(self._paint_line(self._code.highlight_line(text.expandtabs(4))))

    def _format_block(self, text: str) -> list[Line]:
        width = self._columns()
        if found := _HEADING.match(text):
            style = Style.HEADING if len(found[1]) <= 2 else Style.BOLD
            return wrap_line(parse_inline(found[2], style), width)
        if _RULE.match(text):
            return [[(Style.DIM, "─" * min(width, 40))]]
        if found := _ITEM.match(text):
            return self._format_item(found, width)
        if found := _QUOTE.match(text):
            bar = "▎ " * found[1].count(">")
            inner = max(10, width - len(bar))
            lines = wrap_line(parse_inline(found[2], Style.ITALIC), inner)
            return [[(Style.DIM, bar), *line] for line in lines]
        indent = text[: len(text) - len(text.lstrip())].expandtabs(4)
        indent = indent if len(indent) < width // 2 else ""
        head = [("", indent)] if indent else []
        return wrap_line(parse_inline(text.lstrip()), width, head, indent)

    def _format_item(self, found: re.Match[str], width: int) -> list[Line]:
        depth = min(len(found[1].expandtabs(4)), width // 2)
        mark, text = found[2], found[3]
        if mark in "-*+":
            mark = "•"
        if task := _TASK.match(text):
            mark, text = ("☐" if task[1] == " " else "☑"), task[2]
        head = [("", " " * depth), (join_styles(Style.MARK), f"{mark} ")]
        return wrap_line(parse_inline(text), width, head, " " * (depth + len(mark) + 1))

    def _is_table_row(self, text: str) -> bool:
        """Whether the line is a row, or may turn out to be the head of a table."""
        bare = text.lstrip()
        if bare.startswith("|"):
            return True
        if "|" not in bare:
            return False
        if self._table is not None or len(self._rows) > 1:
            return self._table is not None or table.is_separator(self._rows[1])
        if self._rows:
            return table.is_separator(bare)
        return not any(kind.match(text) for kind in (_HEADING, _ITEM, _QUOTE, _FENCE))

    def _flush_rows(self, out: list[str]) -> None:
        rows, self._rows = self._rows, []
        lines: list[Line] = []
        if self._table is None and len(rows) > 1 and table.is_separator(rows[1]):
            self._table = table.Table(rows, self._columns())
            lines, rows = self._table.format_head(), rows[2:]
        format_row = self._format_block if self._table is None else self._table.format_row
        lines += [line for row in rows for line in format_row(row)]
        out += map(self._paint_line, lines)

    def _end_table(self, out: list[str]) -> None:
        if self._rows:
            self._flush_rows(out)
            self._blank = False
        self._table = None

    def _paint_line(self, line: Line) -> str:
        return paint_line(line, colour=self._colour)

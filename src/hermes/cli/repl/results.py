"""Results of tools on a line: how they ended; and the changes they made to files."""

from __future__ import annotations

import re

from msgspec import Struct

from hermes.cli.display import one_line, parsed, printable
from hermes.cli.repl.ink import BAD, DIM, GOOD, MARK, Piece
from hermes.core.message import ToolCall, ToolReturn

_STATUS = re.compile(r"\[exit status (\d+)\]\s*\Z")
_KILLED = re.compile(r"\[(killed by \w+|timed out after [^\]]+)\]\s*\Z")
_SHELLS = frozenset({"terminal", "execute_code"})
_DIFF_LINES = 40
_NEW_LINES = 10
_FIRST = 200
_HEADS = ("--- ", "+++ ", "diff --git ", "new file mode ", "deleted file mode ")


class Outcome(Struct, frozen=True):
    bad: bool
    took: str
    code: str
    first: str
    """Line of what it returned."""


def outcome(result: ToolReturn, duration: float) -> Outcome:
    text = printable(result.text)
    took = f"{duration:.1f} s" if duration >= 0.1 else f"{duration * 1000:.0f} ms"
    code = ""
    bad = result.error
    if found := _STATUS.search(text):
        code, bad = f"exit {found[1]}", True
        text = text[: found.start()]
    elif found := _KILLED.search(text):
        code, bad = found[1], True
        text = text[: found.start()]
    elif result.name in _SHELLS and not result.error:
        code = "exit 0"
    first = next((line for line in text.split("\n", 50) if line.strip()), "")
    return Outcome(bad, took, code, one_line(first, _FIRST))


def changes(call: ToolCall | None, result: ToolReturn) -> list[list[Piece]]:
    """The diff in a result, or the beginning of a new file."""
    if result.error:
        return []
    text = printable(result.text)
    at = 0 if text.startswith("--- ") else text.find("\n--- ") + 1
    if (at or text.startswith("--- ")) and "\n+++ " in text:
        return coloured(text[at:].rstrip().split("\n"))
    if call is None or not text.startswith("Created"):
        return []
    given = parsed(call.args)
    content = given.get("content") if isinstance(given, dict) else None
    if not isinstance(content, str):
        return []
    rows = printable(content).rstrip("\n").split("\n")
    lines: list[list[Piece]] = [[(GOOD, f"  +{row}")] for row in rows[:_NEW_LINES]]
    return [*lines, *_more(len(rows) - _NEW_LINES)]


def coloured(rows: list[str]) -> list[list[Piece]]:
    """A diff, as far as it is shown."""
    lines: list[list[Piece]] = []
    for row in rows[:_DIFF_LINES]:
        if row.startswith(_HEADS):
            style = DIM
        elif row.startswith("@@"):
            style = MARK
        else:
            style = {"+": GOOD, "-": BAD}.get(row[:1], "")
        lines.append([(style, f"  {row}")])
    return [*lines, *_more(len(rows) - _DIFF_LINES)]


def _more(count: int) -> list[list[Piece]]:
    return [[(DIM, f"  … {count} more lines")]] if count > 0 else []

"""Results of tools on a line: how they ended; and the changes they made to files."""

from __future__ import annotations

import re

from msgspec import Struct

from hermes.cli.repl.markdown.styled_text import BAD, BOLD, DIM, GOOD, MARK, Piece
from hermes.cli.terminal.text import one_line, parsed, printable
from hermes.core.message import ToolCall, ToolReturn
from hermes.core.text import counted

_STATUS = re.compile(r"\[exit status (\d+)\]\s*\Z")
_KILLED = re.compile(r"\[(killed by \w+|timed out after [^\]]+)\]\s*\Z")
_SHELLS = frozenset({"terminal", "execute_code"})
_DIFF_LINES = 40
_NEW_LINES = 10
_FIRST = 200
_HEADS = ("--- ", "+++ ", "diff --git ", "new file mode ", "deleted file mode ")
_NUMBERED = re.compile(r"^ *\d+\|", re.MULTILINE)
_MARKS = {"completed": "☑", "in_progress": "▸", "cancelled": "☒"}
_STEPS = 30


class Outcome(Struct, frozen=True):
    bad: bool
    took: str
    code: str
    said: str
    """The line of what it returned that tells most."""


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
    return Outcome(bad, took, code, one_line(_telling(result, text), _FIRST))


def _telling(result: ToolReturn, text: str) -> str:
    """Commands end with what came of them, everything else begins with it."""
    if result.name == "read_file" and (count := len(_NUMBERED.findall(text))):
        return counted(count, "line")
    if result.name in _SHELLS and not result.error:
        return text.rstrip().rsplit("\n", 1)[-1]
    return next((line for line in text.split("\n", 50) if line.strip()), "")


def changes(call: ToolCall | None, result: ToolReturn) -> list[list[Piece]]:
    """The diff in a result, the beginning of a new file, or the steps of a plan."""
    if result.error:
        return []
    if result.name == "todo" and call is not None:
        return _steps(call)
    text = printable(result.text)
    at = 0 if text.startswith("--- ") else text.find("\n--- ") + 1
    if (at or text.startswith("--- ")) and "\n+++ " in text:
        rows = text[at:].rstrip().split("\n")
        heads = [row for row in rows if row.startswith(("--- ", "+++ "))]
        alone = len(heads) == 2 and rows[:2] == heads and heads[0][4:] == heads[1][4:]
        return coloured(rows[2:] if alone else rows)  # then the line above has named the file
    if call is None or not text.startswith("Created"):
        return []
    given = parsed(call.args)
    content = given.get("content") if isinstance(given, dict) else None
    if not isinstance(content, str):
        return []
    rows = printable(content).rstrip("\n").split("\n")
    lines: list[list[Piece]] = [[(GOOD, f"  +{row}")] for row in rows[:_NEW_LINES]]
    return [*lines, *_more(len(rows) - _NEW_LINES)]


def _steps(call: ToolCall) -> list[list[Piece]]:
    given = parsed(call.args)
    todos = given.get("todos") if isinstance(given, dict) else None
    found = [one for one in todos if isinstance(one, dict)] if isinstance(todos, list) else []
    lines: list[list[Piece]] = []
    for one in found[:_STEPS]:
        status = str(one.get("status"))
        style = {"in_progress": BOLD, "completed": DIM, "cancelled": DIM}.get(status, "")
        text = one_line(str(one.get("content", "")), _FIRST)
        lines.append([(MARK, f"  {_MARKS.get(status, '☐')} "), (style, text)])
    return [*lines, *_more(len(found) - _STEPS, "step")]


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


def _more(count: int, what: str = "line") -> list[list[Piece]]:
    return [[(DIM, f"  … {counted(count, f'more {what}')}")]] if count > 0 else []

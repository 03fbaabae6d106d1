"""Tool results on the screen: the outcome on one line, and the changes made to files."""

import re

from msgspec import Struct

from hermes.cli.repl.markdown.styled_text import Line, Style
from hermes.cli.terminal.text import one_line, parse_arguments, strip_controls
from hermes.core.message import ToolCall, ToolReturn
from hermes.core.text import format_plural

_EXIT_STATUS = re.compile(r"\[exit status (\d+)\]\s*\Z")
_KILLED = re.compile(r"\[(killed by \w+|timed out after [^\]]+)\]\s*\Z")
_SHELL_TOOLS = frozenset({"terminal", "execute_code"})
_DIFF_LINES = 40
_NEW_FILE_LINES = 10
_SUMMARY_CHARS = 200
_DIFF_HEADERS = ("--- ", "+++ ", "diff --git ", "new file mode ", "deleted file mode ")
_NUMBERED_LINE = re.compile(r"^ *\d+\|", re.MULTILINE)
_STEP_MARKS = {
    "completed": ("☑", Style.DIM),
    "in_progress": ("▸", Style.BOLD),
    "cancelled": ("☒", Style.DIM),
}
_PLAN_STEPS = 30


class ToolOutcome(Struct, frozen=True):
    failed: bool
    took: str
    code: str
    summary: str
    """The most telling line of the result."""


def describe_outcome(result: ToolReturn, duration: float) -> ToolOutcome:
    text = strip_controls(result.text)
    took = f"{duration:.1f} s" if duration >= 0.1 else f"{duration * 1000:.0f} ms"
    code = ""
    failed = result.error
    if found := _EXIT_STATUS.search(text):
        code, failed = f"exit {found[1]}", True
        text = text[: found.start()]
    elif found := _KILLED.search(text):
        code, failed = found[1], True
        text = text[: found.start()]
    elif result.name in _SHELL_TOOLS and not result.error:
        code = "exit 0"
    return ToolOutcome(failed, took, code, one_line(_summary_line(result, text), _SUMMARY_CHARS))


def _summary_line(result: ToolReturn, text: str) -> str:
    """The last line of a command's output; the first line of anything else."""
    if result.name == "read_file" and (count := len(_NUMBERED_LINE.findall(text))):
        return format_plural(count, "line")
    if result.name in _SHELL_TOOLS and not result.error:
        return text.rstrip().rsplit("\n", 1)[-1]
    return next((line for line in text.split("\n", 50) if line.strip()), "")


def describe_changes(call: ToolCall | None, result: ToolReturn) -> list[Line]:
    """The diff in a result, the beginning of a new file, or the steps of a plan."""
    if result.error:
        return []
    if result.name == "todo" and call is not None:
        return _plan_steps(call)
    text = strip_controls(result.text)
    start = 0 if text.startswith("--- ") else text.find("\n--- ") + 1
    if (start or text.startswith("--- ")) and "\n+++ " in text:
        rows = text[start:].rstrip().split("\n")
        names = [row for row in rows if row.startswith(("--- ", "+++ "))]
        one_file = len(names) == 2 and rows[:2] == names and names[0][4:] == names[1][4:]
        return colour_diff(rows[2:] if one_file else rows)  # the line above names that file
    if call is None or not text.startswith("Created"):
        return []
    arguments = parse_arguments(call.args)
    content = arguments.get("content") if isinstance(arguments, dict) else None
    if not isinstance(content, str):
        return []
    rows = strip_controls(content).rstrip("\n").split("\n")
    lines: list[Line] = [[(Style.GOOD, f"  +{row}")] for row in rows[:_NEW_FILE_LINES]]
    return [*lines, *_count_more(len(rows) - _NEW_FILE_LINES)]


def _plan_steps(call: ToolCall) -> list[Line]:
    arguments = parse_arguments(call.args)
    todos = arguments.get("todos") if isinstance(arguments, dict) else None
    steps = [step for step in todos if isinstance(step, dict)] if isinstance(todos, list) else []
    lines: list[Line] = []
    for step in steps[:_PLAN_STEPS]:
        status = str(step.get("status"))
        text = one_line(str(step.get("content", "")), _SUMMARY_CHARS)
        mark, style = _STEP_MARKS.get(status, ("☐", ""))
        lines.append([(Style.MARK, f"  {mark} "), (style, text)])
    return [*lines, *_count_more(len(steps) - _PLAN_STEPS, "step")]


def colour_diff(rows: list[str]) -> list[Line]:
    """The first lines of a diff, in colours."""
    lines: list[Line] = []
    for row in rows[:_DIFF_LINES]:
        if row.startswith(_DIFF_HEADERS):
            style = Style.DIM
        elif row.startswith("Line: TypeAlias = list[Piece]"):
            style = Style.MARK
        else:
            style = {"+": Style.GOOD, "-": Style.BAD}.get(row[:1], "")
        lines.append([(style, f"  {row}")])
    return [*lines, *_count_more(len(rows) - _DIFF_LINES)]


def _count_more(count: int, what: str = "line") -> list[Line]:
    return [[(Style.DIM, f"  … {format_plural(count, f'more {what}')}")]] if count > 0 else []

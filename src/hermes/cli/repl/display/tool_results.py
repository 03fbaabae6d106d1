"""Tool results on the screen: changes to files and the steps of a plan, in colours."""

from typing import Any

from hermes.cli.repl.markdown.styled_text import Line, Style, cell_width, fit_text
from hermes.cli.terminal.text import format_call, one_line, parse_arguments
from hermes.cli.terminal.tool_results import ToolOutcome, limit_rows, list_changes
from hermes.core.message import ToolCall, ToolReturn

_DIFF_HEADERS = ("--- ", "+++ ", "diff --git ", "new file mode ", "deleted file mode ", "… ")
_STEP_CHARS = 200
_STEP_MARKS = {
    "completed": ("☑", Style.DIM),
    "in_progress": ("▸", Style.BOLD),
    "cancelled": ("☒", Style.DIM),
}
_PLAN_STEPS = 30
_OUTCOME_COLUMNS = 45
"""Columns that the outcome of a call gets before its label is cut."""


def describe_changes(call: ToolCall | None, result: ToolReturn, data: Any = None) -> list[Line]:
    """The diff that a call made, the beginning of a new file, or the steps of a plan."""
    if result.name == "todo" and call is not None and not result.error:
        return _plan_steps(call)
    return colour_rows(list_changes(call, result, data))


def tool_line(call: ToolCall | None, name: str, outcome: ToolOutcome, width: int) -> Line:
    """A finished call on one line: what it did, how long that took, and how it ended."""
    label = format_call(call.name, call.args) if call else name
    mark = (Style.BAD, "✗ ") if outcome.failed else (Style.GOOD, "✓ ")
    facts = " · ".join(filter(None, (outcome.took, outcome.code, outcome.summary)))
    reserved = min(_OUTCOME_COLUMNS, width // 2, cell_width(facts))
    label = fit_text(label, max(20, width - 4 - reserved))
    room = max(12, width - 4 - cell_width(label))
    return [mark, ("", label), (Style.DIM, f"  {fit_text(facts, room)}")]


def _plan_steps(call: ToolCall) -> list[Line]:
    arguments = parse_arguments(call.args)
    todos = arguments.get("todos") if isinstance(arguments, dict) else None
    steps = [step for step in todos if isinstance(step, dict)] if isinstance(todos, list) else []
    lines: list[Line] = []
    for step in steps[:_PLAN_STEPS]:
        text = one_line(str(step.get("content", "")), _STEP_CHARS)
        mark, style = _STEP_MARKS.get(str(step.get("status")), ("☐", ""))
        lines.append([(Style.MARK, f"  {mark} "), (style, text)])
    rows = limit_rows([""] * len(steps), _PLAN_STEPS, "step")
    return [*lines, *([[(Style.DIM, f"  {rows[-1]}")]] if len(steps) > _PLAN_STEPS else [])]


def colour_diff(rows: list[str]) -> list[Line]:
    """The first rows of a diff, in colours."""
    return colour_rows(limit_rows(rows))


def colour_rows(rows: list[str]) -> list[Line]:
    return [[(_choose_style(row), f"  {row}")] for row in rows]


def _choose_style(row: str) -> str:
    if row.startswith(_DIFF_HEADERS):
        return Style.DIM
    if row.startswith("@@"):
        return Style.MARK
    return {"+": Style.GOOD, "-": Style.BAD}.get(row[:1], "")

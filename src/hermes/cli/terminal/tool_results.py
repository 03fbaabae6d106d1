"""Tool results in words: how a call ended, and the changes it made to files."""

import re
from signal import Signals
from typing import Any

from msgspec import Struct, structs

from hermes.cli.terminal.text import one_line, parse_arguments, strip_controls
from hermes.core.message import ToolCall, ToolReturn
from hermes.core.text import format_plural
from hermes.exec.process.signals import signal_name

MAX_CHANGE_ROWS = 40
_NEW_FILE_ROWS = 10
_SUMMARY_CHARS = 200
_TELLING_ROWS = 20
_STATUS_NOTE = re.compile(r"\[(?:exit status (\d+)|killed by (SIG[A-Z]+)|timed out after .*)\]")
_TROUBLE = re.compile(
    r"\b(?:fatal|failed|failure|denied|no such|not found)\b|error\b", re.IGNORECASE
)
_NUMBERED_LINE = re.compile(r"^ *\d+\|", re.MULTILINE)


class ToolOutcome(Struct, frozen=True):
    failed: bool
    took: str
    code: str
    summary: str
    """The most telling line of the result."""


LOST_OUTCOME = ToolOutcome(True, "", "", "no result: its outcome is unknown")
"""Of a call that ran when the program was ended."""


def describe_outcome(result: ToolReturn, duration: float, data: Any = None) -> ToolOutcome:
    """`data`: what the tool says about the call; of commands, their exit status and the number of
    notes behind their output."""
    text = strip_controls(result.text)
    took = f"{duration:.1f} s" if duration >= 0.1 else f"{duration * 1000:.0f} ms"
    code, summary, failed = "", _summary_line(result, text), result.error
    if isinstance(data, dict) and "notes" in data:
        status = data["exit_status"]
        code, failed = _describe_status(status), failed or status != 0
        rows = text.rstrip().split("\n")
        summary = _telling_row(rows[: len(rows) - data["notes"]], failed=failed)
    return ToolOutcome(failed, took, code, one_line(summary, _SUMMARY_CHARS))


def describe_stored_outcome(result: ToolReturn) -> ToolOutcome:
    """The outcome of a call of an earlier conversation, as far as its stored result tells."""
    data = _read_notes(result) if result.name == "terminal" else None
    return structs.replace(describe_outcome(result, 0.0, data), took="")


def _read_notes(result: ToolReturn) -> dict[str, Any] | None:
    """The exit status and the number of notes of a command, read from the end of its result."""
    rows = result.text.rstrip().split("\n")
    notes = next(
        (n for n, row in enumerate(reversed(rows)) if row[:1] + row[-1:] != "[]"), len(rows)
    )
    for row in rows[len(rows) - notes :]:
        if found := _STATUS_NOTE.fullmatch(row):
            killed = getattr(Signals, found[2] or "", 0)
            return {"exit_status": int(found[1]) if found[1] else -killed or None, "notes": notes}
    if result.error or notes:
        return None
    return {"exit_status": 0, "notes": 0}


def _describe_status(status: int | None) -> str:
    if status is None:
        return "timed out"
    return f"exit {status}" if status >= 0 else f"killed by {signal_name(-status)}"


def _telling_row(rows: list[str], *, failed: bool) -> str:
    """The last row of output; after a failure the last one near the end that names a problem."""
    rows = [row for row in rows[-_TELLING_ROWS:] if row.strip()] or [""]
    problems = [row for row in rows if _TROUBLE.search(row)] if failed else []
    return problems[-1] if problems else rows[-1]


def _summary_line(result: ToolReturn, text: str) -> str:
    if result.name == "read_file" and (count := len(_NUMBERED_LINE.findall(text))):
        return format_plural(count, "line")
    return next((line for line in text.split("\n", 50) if line.strip()), "")


def list_changes(call: ToolCall | None, result: ToolReturn, data: Any = None) -> list[str]:
    """The rows of the diff that a call made, or of the file it created; the last row counts those
    that are left out."""
    if result.error:
        return []
    text = strip_controls(result.text)
    if isinstance(data, dict) and isinstance(data.get("diff"), str) and data["diff"]:
        text = strip_controls(data["diff"])
    start = 0 if text.startswith("--- ") else text.find("\n--- ") + 1
    if (start or text.startswith("--- ")) and "\n+++ " in text:
        rows = text[start:].rstrip().split("\n")
        names = [row for row in rows if row.startswith(("--- ", "+++ "))]
        one_file = len(names) == 2 and rows[:2] == names and names[0][4:] == names[1][4:]
        return limit_rows(rows[2:] if one_file else rows)  # the line above names that file
    if call is None or not text.startswith("Created"):
        return []
    arguments = parse_arguments(call.args)
    content = arguments.get("content") if isinstance(arguments, dict) else None
    if not isinstance(content, str):
        return []
    rows = [f"+{row}" for row in strip_controls(content).rstrip("\n").split("\n")]
    return limit_rows(rows, _NEW_FILE_ROWS)


def limit_rows(rows: list[str], most: int = MAX_CHANGE_ROWS, what: str = "line") -> list[str]:
    """The first rows, and one that counts the others."""
    more = len(rows) - most
    return [*rows[:most], f"… {format_plural(more, f'more {what}')}"] if more > 0 else rows

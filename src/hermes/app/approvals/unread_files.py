"""Files that a small model would replace without having seen their text in this turn."""

import re
from pathlib import Path
from typing import Any

from hermes.core.errors import ToolError
from hermes.core.history import History
from hermes.core.message import ToolCall
from hermes.core.tool import Workspace

_WRITES_FILE, _RUNS_COMMAND = "write_file", "terminal"
_LONGEST_TEXT = 2000
_REPLACING = re.compile(r"(?<![>&\d])>\|?\s*(?![>&(])([^\s;|&<>]+)")
"""A redirection that empties its file first."""


def require_reading(
    history: History, call: ToolCall, params: Any, files: tuple[str, ...], workspace: Workspace
) -> None:
    """Refuse a call that would lose text the model does not know; a short text is shown with the
    refusal, so that the next attempt knows it. `files`: the paths that the call locks."""
    if call.name == _RUNS_COMMAND:
        names = (name.strip("'\"") for name in _REPLACING.findall(params.command))
        files = tuple(str(workspace.cwd / name) for name in names)
    elif call.name != _WRITES_FILE:
        return
    earlier = _list_earlier_calls(history)
    for file in map(Path, files):
        if not file.is_file() or not file.stat().st_size:
            continue
        text = _read_short_text(file, workspace)
        seen = [c for c in earlier if file.name in c.args and (text or c.name != _WRITES_FILE)]
        if not seen:
            shown = f"This is its text:\n{text}" if text else "Read it first."
            raise ToolError(
                f"{file.name} exists and you have not read it. Nothing was changed. To add to its "
                f"end, use >> in the terminal; to change it, write the whole file. {shown}"
            )


def _list_earlier_calls(history: History) -> list[ToolCall]:
    """The calls of this turn before the last message that makes any."""
    earlier: list[tuple[ToolCall, ...]] = []
    for message in reversed(history.messages):
        if message.role == "user" and message.kind != "steer":
            break
        earlier += [message.calls] if message.calls else []
    return [call for calls in earlier[1:] for call in calls]


def _read_short_text(file: Path, workspace: Workspace) -> str:
    """The text of a file that file tools may read; empty if it is long, or no text."""
    from hermes.tools._edit.text_file import decode_text, read_bytes

    try:
        if file.stat().st_size > _LONGEST_TEXT:
            return ""
        return decode_text(read_bytes(file, workspace)[0], file)[0]
    except (ToolError, OSError):
        return ""

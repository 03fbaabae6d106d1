"""Turns what a tool returned into message content: redacted, made inert and cut to size."""

import os
from pathlib import Path
from typing import Any

from msgspec import structs

from hermes.core.message import Media, Text
from hermes.core.redaction.redactor import Redactor
from hermes.core.text import replace_invalid, safe_name
from hermes.core.tool import RecordedResult, ToolResult
from hermes.core.untrusted_text import make_inert
from hermes.exec.process.output_files import is_cleanup_due, remove_old_outputs


def prepare_result(result: Any, limit: int, redactor: Redactor, whole: Path) -> ToolResult:
    """The result to record of anything a tool may return. `whole`: the file for the full text if
    it is longer than the limit."""

    if isinstance(result, RecordedResult):
        return result

    def shown(text: str) -> Text:
        return Text(limit_output(make_inert(redactor.redact(replace_invalid(text))), limit, whole))

    found = result if isinstance(result, ToolResult) else ToolResult(result)
    parts = found.content
    if isinstance(parts, tuple) and all(isinstance(p, Text | Media) for p in parts):
        content = tuple([shown(p.text) if isinstance(p, Text) else p for p in parts])
    else:
        content = (shown(format_value(parts)),)
    return structs.replace(found, content=content)


def output_path(folder: Path, session_id: str, call_id: str) -> Path:
    """The file for the full output of a call. Ids may be hostile, such as `../`."""
    return folder / f"{safe_name(session_id, 'session')}-{safe_name(call_id, 'output')}.txt"


def format_value(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    return "(no output)" if value is None else str(value)


def limit_output(text: str, limit: int, whole: Path) -> str:
    """The text cut to `limit` characters: the middle is left out and the full text saved."""
    if len(text) <= limit:
        return text
    where = _save_output(text, whole)
    half = limit // 2
    cut = len(text) - 2 * half
    note = f"\n\n[… {cut} characters cut here; the full output is in {where} …]\n\n"
    return text[:half] + note + text[-half:]


def _save_output(text: str, path: Path) -> str:
    if is_cleanup_due(path.parent):
        remove_old_outputs(path.parent)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        return f"no file (it could not be saved: {error.strerror})"
    return str(path)

"""Sentences about files that /undo and /rollback restore."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.core.text import format_plural

if TYPE_CHECKING:
    from hermes.exec.snapshots.checkpoints import Checkpoint, RestoredFiles

_MAX_DIFF_CHARS = 4000
_MAX_NAMES = 40
_FILE = re.compile(r'^diff --git "?a/(.+?)"? "?b/', re.MULTILINE)
_INDEX_LINE = re.compile(r"^index [0-9a-f]+\.\.[0-9a-f]+.*\n", re.MULTILINE)
"""Object ids, which mean nothing to a person."""


def format_time(checkpoint: Checkpoint) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(checkpoint.created))


async def preview_restore(workspace: Path, home: Path, found: Checkpoint) -> str:
    """What has changed since a checkpoint, and so would be restored."""
    from hermes.exec.snapshots.checkpoints import diff_checkpoint

    text = await diff_checkpoint(workspace, home, found.id)
    files = _FILE.findall(text)
    if not files:
        return f"The files are unchanged since {format_time(found)}."
    names = _join_names(files)
    text = _INDEX_LINE.sub("", text)
    if len(text) > _MAX_DIFF_CHARS:
        text = text[:_MAX_DIFF_CHARS].rsplit("\n", 1)[0] + "\n[cut]"
    state = "its state" if len(files) == 1 else "their state"
    head = f"Restores {format_plural(len(files), 'file')} to {state} at {format_time(found)}"
    return f"{head}, including changes made by others since: {names}\n{text.rstrip()}"


def explain_no_files(workspace: Path, home: Path) -> str:
    """Why no files would be restored."""
    from hermes.exec.snapshots.checkpoints import explain_unsuitable

    why = explain_unsuitable(workspace, home)
    return f"Files are not restored: {why}." if why else "No files were changed in it."


def describe_restored(done: RestoredFiles) -> str:
    parts = (
        ("Restored", done.changed),
        ("Recreated", done.added),
        ("Removed", done.removed),
        ("Left unchanged", done.kept),
    )
    lines = [f"{word}: {_join_names(files)}" for word, files in parts if files]
    return "\n".join(lines) or "No file had changed."


def _join_names(files: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(files) - _MAX_NAMES} more" if len(files) > _MAX_NAMES else ""
    return ", ".join(files[:_MAX_NAMES]) + more

"""Sentences about files that /undo and /rollback restore."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.core.text import format_plural

if TYPE_CHECKING:
    from hermes.exec.snapshots.checkpoints import Checkpoint, RestoredFiles

_MAX_DIFF_CHARS = 4000
_MAX_NAMES = 40
_FILE_START = re.compile(r"^diff --git ", re.MULTILINE)
_FILE_NAME = re.compile(r'"?a/(.+?)"? "?b/')
_INDEX_LINE = re.compile(r"^index [0-9a-f]+\.\.[0-9a-f]+.*\n", re.MULTILINE)
"""Object ids, which mean nothing to a person."""


def format_time(checkpoint: Checkpoint) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(checkpoint.created))


async def preview_restore(
    workspace: Path, home: Path, found: Checkpoint, paths: Sequence[str] = ()
) -> str:
    """What restoring a checkpoint would do to which files, and the changes, the largest last."""
    from hermes.exec.snapshots.checkpoints import diff_checkpoint

    text = await diff_checkpoint(workspace, home, found.id, paths, reverse=True)
    diffs = sorted(_FILE_START.split(_INDEX_LINE.sub("", text))[1:], key=len)
    if not diffs:
        return f"The files are unchanged since {format_time(found)}."
    files: dict[str, list[str]] = {"restores": [], "recreates": [], "deletes": []}
    for diff in diffs:
        name = _FILE_NAME.match(diff)
        head = diff.partition("\n@@")[0]
        verb = "restores"
        if "\nnew file mode " in head:
            verb = "recreates"
        elif "\ndeleted file mode " in head:
            verb = "deletes"
        files[verb].append(name[1] if name else "?")
    state = "its state" if len(diffs) == 1 else "their state"
    head = f"Restores {format_plural(len(diffs), 'file')} to {state} at {format_time(found)}"
    lines = [f"{head}, including changes made by others since:"]
    lines += [f"  {verb}: {_join_names(sorted(names))}" for verb, names in files.items() if names]
    shown = "".join(f"diff --git {diff}" for diff in diffs)
    if len(shown) > _MAX_DIFF_CHARS:
        shown = shown[:_MAX_DIFF_CHARS].rsplit("\n", 1)[0] + "\n[cut]"
    return "\n".join([*lines, shown.rstrip()])


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

"""What going back does to files, in words."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.core.text import format_plural

if TYPE_CHECKING:
    from hermes.exec.snapshots.checkpoints import Checkpoint, RestoredFiles

_DIFF = 4000
_NAMES = 40
_FILE = re.compile(r'^diff --git "?a/(.+?)"? "?b/', re.MULTILINE)
_INTERNAL = re.compile(r"^index [0-9a-f]+\.\.[0-9a-f]+.*\n", re.MULTILINE)
"""Lines of git that tell a person nothing."""


def when(checkpoint: Checkpoint) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(checkpoint.created))


async def preview(workspace: Path, home: Path, found: Checkpoint) -> str:
    """What has changed since a checkpoint, and so would change back."""
    from hermes.exec.snapshots.checkpoints import diff_checkpoint

    text = await diff_checkpoint(workspace, home, found.id)
    files = _FILE.findall(text)
    if not files:
        return f"The files are as they were on {when(found)}."
    names = _listed(files)
    text = _INTERNAL.sub("", text)
    shown = text if len(text) <= _DIFF else text[:_DIFF].rsplit("\n", 1)[0] + "\n[cut]"
    what = f"{format_plural(len(files), 'file')} back to {when(found)}"
    head = f"Puts {what}, whoever changed them since: {names}"
    return f"{head}\n{shown.rstrip()}"


def trouble(workspace: Path, home: Path) -> str:
    """Why no files would change."""
    from hermes.exec.snapshots.checkpoints import explain_unsuitable

    why = explain_unsuitable(workspace, home)
    return f"Files stay as they are: {why}." if why else "No files were changed in it."


def described(done: RestoredFiles) -> str:
    parts = (
        ("Put back", done.changed),
        ("Brought back", done.added),
        ("Removed", done.removed),
        ("Left as they are", done.kept),
    )
    lines = [f"{word}: {_listed(files)}" for word, files in parts if files]
    return "\n".join(lines) or "No file had changed."


def _listed(files: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(files) - _NAMES} more" if len(files) > _NAMES else ""
    return ", ".join(files[:_NAMES]) + more

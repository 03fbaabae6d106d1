"""How a folder is shown: shortened, and with the branch of its git repository."""

from pathlib import Path

from hermes.cli.terminal.tables import shorten_path
from hermes.cli.terminal.text import one_line

_HEAD_PREFIX = "ref: refs/heads/"
_SHORT_ID = 8
_MAX_CHARS = 80


def describe_folder(folder: Path) -> str:
    branch = read_branch(folder)
    shown = shorten_path(str(folder)) + (f" ({branch})" if branch else "")
    return one_line(shown, _MAX_CHARS)


def read_branch(folder: Path) -> str:
    """The branch that is checked out, or the beginning of the commit's id; empty outside git."""
    for parent in (folder, *folder.parents):
        marker = parent / ".git"
        try:
            if marker.is_file():  # a linked worktree: the file names the folder
                text = marker.read_text("utf-8", "replace")
                marker = parent / text.removeprefix("gitdir:").strip()
            head = (marker / "HEAD").read_text("utf-8", "replace").strip()
        except OSError:
            continue
        return head.removeprefix(_HEAD_PREFIX) if head.startswith("ref:") else head[:_SHORT_ID]
    return ""

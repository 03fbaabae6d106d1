"""Lets a confined command change a repository: on an overlay, whose harmless changes are merged."""

# Much in .git makes git run programs for whoever uses it next, outside the sandbox: hooks,
# settings, references to other repositories, plans of a rebase. So a command never writes there. It
# works on a copy mounted over .git; afterwards new objects, branches and the index are read from
# that copy as data, validated, and written by us.

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from hermes.exec.commits.merge_back import ChangesRejected, NoRepository, merge_changes
from hermes.exec.commits.overlay import (
    OverlayCopy,
    OverlayUnavailable,
    create_copy,
    git_environment,
    list_mounts,
    remove_copy,
    write_identity,
)
from hermes.exec.sandbox.policy import PathOverlay

__all__ = [
    "ChangesRejected", "GitOverlay", "NoRepository", "OverlayUnavailable",
    "create_overlay", "merge_overlay",
]  # fmt: skip


class GitOverlay(Struct, frozen=True):
    """The overlay for one command; `merge_overlay` ends it."""

    copy: OverlayCopy
    mounts: tuple[PathOverlay, ...]
    """For `SandboxPolicy.overlays`."""
    env: Mapping[str, str]
    """For git inside: the user's name and the like, because the user's settings are not visible."""


def create_overlay(workspace: Path, home: Path, env: Mapping[str, str]) -> GitOverlay:
    """Create an overlay for the repository in `workspace`; blocking. Raises OverlayUnavailable when
    there can be none: .git then stays read-only."""
    copy = create_copy(workspace, home)
    write_identity(copy, env)
    return GitOverlay(copy, list_mounts(copy), git_environment(copy))


def merge_overlay(overlay: GitOverlay) -> None:
    """Merge the command's changes into the repository and remove the overlay; blocking. Raises
    ChangesRejected, and then nothing was changed."""
    try:
        merge_changes(overlay.copy)
    finally:
        remove_copy(overlay.copy)

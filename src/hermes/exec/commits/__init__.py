"""Lets a confined command change a repository: on an overlay, whose harmless changes are merged."""

# Much in .git makes git run programs for whoever uses it next, outside the sandbox: hooks,
# settings, references to other repositories, plans of a rebase. So a command never writes there. It
# works on a copy mounted over .git; afterwards new objects, branches and the index are read from
# that copy as data, validated, and written by us.

from hermes.exec.commits.merge_back import ChangesRejected, NoRepository, merge_overlay
from hermes.exec.commits.overlay import GitOverlay, OverlayUnavailable, create_overlay

__all__ = [
    "ChangesRejected", "GitOverlay", "NoRepository", "OverlayUnavailable",
    "create_overlay", "merge_overlay",
]  # fmt: skip

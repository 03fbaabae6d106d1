"""Lets a confined command change a repository: on a stand-in, of which only what can do no harm
is taken over."""

# Much in .git makes git run programs for whoever uses it next, outside the sandbox: hooks,
# settings, other repositories it is told to look into, plans of a rebase. So a command never writes
# there. It gets a copy in its place, and afterwards new objects, branches and the index are read
# from that copy as data, looked at, and written by us.

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from hermes.exec.commits import merge_back as taking
from hermes.exec.commits import overlay as copying
from hermes.exec.commits.merge_back import NO_REPOSITORY

__all__ = ["NO_REPOSITORY", "Stand", "stand_in", "take_over"]


class Stand(Struct, frozen=True):
    """A stand-in for one command. `take_over` ends it."""

    copy: copying.Copy
    places: tuple[tuple[Path, Path, bool], ...]
    """For `Policy.instead`."""
    env: Mapping[str, str]
    """For git inside: who the user is, because his own settings are not visible there."""


def stand_in(workspace: Path, home: Path, env: Mapping[str, str]) -> Stand | str:
    """Blocking. The reason when there can be none: .git then stays read-only."""
    made = copying.make(workspace, home)
    if isinstance(made, str):
        return made
    copying.write_identity(made, env)
    return Stand(made, copying.places(made), copying.environment(made))


def take_over(stand: Stand) -> str:
    """Blocking. What the command did becomes part of the repository; or the reason why it does
    not, and then nothing was changed. Empty: done, or there was nothing to do."""
    try:
        return taking.publish(stand.copy)
    finally:
        copying.remove(stand.copy)

"""Decides how each protected path is guarded, given what the file system looks like now."""

# ruff: noqa: PTH115, PTH118, PTH120
import os
import stat
from collections import defaultdict
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from hermes.exec.launcher.placeholders import LINK_TARGET, PLACEHOLDER

_MAX_LINKS = 40
_GuardSets: TypeAlias = defaultdict[str, set[str]]


class PathGuards(Struct, frozen=True):
    """How the protected paths of a workspace are guarded."""

    read_only: tuple[str, ...] = ()
    """Existing files and folders, no links, that are made read-only."""
    placeholders: tuple[str, ...] = ()
    """Missing names that are occupied by placeholder folders, or already are."""
    links: tuple[str, ...] = ()
    """Symbolic links that must not be replaced."""
    pinned: tuple[str, ...] = ()
    """Folders above those, which must not be renamed away."""
    link_placeholders: tuple[str, ...] = ()
    """Missing names that are occupied by dangling links, or already are; also in `links`."""
    barred: tuple[str, ...] = ()
    """Missing names at the top of a workspace in which not even we can create anything."""


def plan_guards(
    workspace: Path, protected: tuple[Path, ...], kept_missing: tuple[Path, ...] = ()
) -> PathGuards:
    """The guards for these paths; links on the way are followed while they stay inside."""
    root = os.path.realpath(workspace)
    found: _GuardSets = defaultdict(set)
    free = {
        full for path in kept_missing if (full := _resolve_inside(root, path)) and _is_free(full)
    }
    for path in (*protected, *kept_missing):
        full = _resolve_inside(root, path)
        if full and full not in free:
            _guard_path(root, full[len(root) + 1 :].split("/"), found, _MAX_LINKS)
    return PathGuards(
        read_only=tuple(sorted(found["read_only"])),
        placeholders=tuple(sorted(found["placeholders"])),
        links=tuple(sorted(found["links"] | free)),
        pinned=tuple(sorted(found["pinned"] - found["read_only"] - found["placeholders"])),
        link_placeholders=tuple(sorted(free)),
        barred=tuple(sorted(found["barred"])),
    )


def _resolve_inside(root: str, path: Path) -> str:
    """The absolute path, or empty when it is not inside the workspace."""
    full = os.path.normpath(os.path.join(root, path))
    return full if full.startswith(root + "/") else ""


def _is_free(path: str) -> bool:
    """Whether nothing is there but our dangling link, in a folder we can write to."""
    try:
        return os.readlink(path) == LINK_TARGET
    except FileNotFoundError:
        return os.access(os.path.dirname(path), os.W_OK)
    except OSError:
        return False


def _guard_path(root: str, names: list[str], found: _GuardSets, links: int) -> None:
    """Add the guards for the path made of `names`; at most `links` more links are followed."""
    here = root
    for position, name in enumerate(names):
        above, here = here, f"{here}/{name}"
        if above != root:
            found["pinned"].add(above)
        try:
            mode = os.lstat(here).st_mode
        except OSError:
            mode = PLACEHOLDER
        if mode == PLACEHOLDER:
            if os.access(above, os.W_OK):
                found["placeholders"].add(here)
            elif above == root:
                found["barred"].add(here)
            else:  # its owner could make the folder writable and then create the name
                found["read_only"].add(above)
            return
        if stat.S_ISLNK(mode):
            found["links"].add(here)
            target = os.path.normpath(os.path.join(above, os.readlink(here)))
            remaining = [*target[len(root) + 1 :].split("/"), *names[position + 1 :]]
            if target.startswith(root + "/") and links:
                _guard_path(root, remaining, found, links - 1)
            return
        if not stat.S_ISDIR(mode) and position < len(names) - 1:
            break
    found["read_only"].add(here)

"""Where protection has to be put, given what the file system looks like now."""

# ruff: noqa: PTH115, PTH118, PTH123
from __future__ import annotations

import os
import stat
from pathlib import Path

from msgspec import Struct

from hermes.exec.confine import PLACEHOLDER

_LINKS = 40


class Guards(Struct, frozen=True):
    """How the protected paths of a workspace are kept."""

    keep: tuple[str, ...]
    """Existing things, no links, to be made read-only."""
    make: tuple[str, ...]
    """Missing names, to be held by placeholders, or held already."""
    cover: tuple[str, ...]
    """Symbolic links, to be kept from being replaced."""
    pin: tuple[str, ...]
    """Folders above those, which must not be renamed away."""


def guards(workspace: Path, protected: tuple[Path, ...]) -> Guards:
    """Every link on the way is followed as far as it stays inside the workspace."""
    root = os.path.realpath(workspace)
    found: dict[str, set[str]] = {"keep": set(), "make": set(), "cover": set(), "pin": set()}
    for path in protected:
        full = os.path.normpath(os.path.join(root, path))
        if full.startswith(root + "/"):
            _walk(root, full[len(root) + 1 :].split("/"), found, _LINKS)
    pin = found["pin"] - found["keep"] - found["make"]
    return Guards(
        *(tuple(sorted(part)) for part in (found["keep"], found["make"], found["cover"], pin))
    )


def _walk(root: str, names: list[str], found: dict[str, set[str]], links: int) -> None:
    here = root
    for position, name in enumerate(names):
        above, here = here, f"{here}/{name}"
        if above != root:
            found["pin"].add(above)
        try:
            mode = os.lstat(here).st_mode
        except OSError:
            mode = PLACEHOLDER
        if mode == PLACEHOLDER:
            found["make"].add(here)
            return
        if stat.S_ISLNK(mode):
            found["cover"].add(here)
            target = os.path.normpath(os.path.join(above, os.readlink(here)))
            rest = [*target[len(root) + 1 :].split("/"), *names[position + 1 :]]
            if target.startswith(root + "/") and links:
                _walk(root, rest, found, links - 1)
            return
        if not stat.S_ISDIR(mode) and position < len(names) - 1:
            break
    found["keep"].add(here)


def bound_sockets() -> list[str]:
    """Unix sockets that processes of this machine listen on: a way out of any mount namespace."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()[1:]
    except OSError:
        return []
    named = {line.partition(" /")[2] for line in lines}
    return sorted(f"/{path}" for path in named if path)

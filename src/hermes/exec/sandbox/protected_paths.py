"""Where protection has to be put, given what the file system looks like now."""

# ruff: noqa: PTH115, PTH118, PTH120, PTH123, PTH208
from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from hermes.exec.launcher.placeholders import NOWHERE, PLACEHOLDER

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
    link: tuple[str, ...] = ()
    """Missing names, to be held by links to nowhere, or held already; they are covered too."""
    barred: tuple[str, ...] = ()
    """Missing names at the top of a workspace where nothing can be made, not even by us."""


def guards(workspace: Path, protected: tuple[Path, ...], unmade: tuple[Path, ...] = ()) -> Guards:
    """Every link on the way is followed as far as it stays inside the workspace."""
    root = os.path.realpath(workspace)
    found: dict[str, set[str]] = {
        name: set() for name in ("keep", "make", "cover", "barred", "pin")
    }
    links = {full for path in unmade if (full := _full(root, path)) and _is_free(full)}
    for path in (*protected, *unmade):
        full = _full(root, path)
        if full and full not in links:
            _walk(root, full[len(root) + 1 :].split("/"), found, _LINKS)
    found["cover"] |= links
    pin = found["pin"] - found["keep"] - found["make"]
    parts = {
        name: tuple(sorted(part)) for name, part in (found | {"pin": pin, "link": links}).items()
    }
    return Guards(**parts)


def _full(root: str, path: Path) -> str:
    """Empty when it is not inside."""
    full = os.path.normpath(os.path.join(root, path))
    return full if full.startswith(root + "/") else ""


def _is_free(path: str) -> bool:
    """Whether nothing is there but what holds its place, in a folder that is."""
    try:
        return os.readlink(path) == NOWHERE
    except FileNotFoundError:
        return os.access(os.path.dirname(path), os.W_OK)
    except OSError:
        return False


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
            if os.access(above, os.W_OK):
                found["make"].add(here)
            else:  # its owner might make the folder writable, and then the name
                found["barred" if above == root else "keep"].add(here if above == root else above)
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
    named = {f"/{path}" for line in lines if (path := line.partition(" /")[2])}
    for line in lines:
        _, _, name = line.partition(" 01 ")  # listening
        inode, _, path = name.strip().partition(" ")
        if path and path[0] not in "/@":
            named.update(_from_where(inode, path))
    return sorted(named)


@lru_cache(maxsize=64)
def _from_where(inode: str, path: str) -> tuple[str, ...]:
    """A socket bound to a relative name is where its process was then, and probably still is."""
    found = set()
    with os.scandir("/proc") as entries:
        for process in (entry.path for entry in entries if entry.name.isdigit()):
            with suppress(OSError):
                mine = (os.readlink(f"{process}/fd/{fd}") for fd in os.listdir(f"{process}/fd"))
                if f"socket:[{inode}]" in mine:
                    found.add(os.path.join(os.readlink(f"{process}/cwd"), path))
    return tuple(found)

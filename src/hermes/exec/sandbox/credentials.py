"""Finds credentials inside the folders that commands are given."""

# ruff: noqa: PTH110, PTH120, PTH123 - many names are looked at before a command starts
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from hermes.exec.path_rules import list_names
from hermes.exec.sandbox.planted_files import recall_folders, scan_folders

_NAMES = list_names("hide", scope="anywhere")
_FIRST_PARTS = frozenset(name.partition("/")[0] for name in _NAMES)
_MAX_INDEX = 64 * 1024 * 1024


def find_credentials(folder: Path, *, anew: bool = False) -> list[Path]:
    """The credentials in a folder, and in those below it which were there when we first looked,
    or which are there now.

    What its repository had then is none: hidden, it would look to git as if it were deleted.

    """
    root = os.fspath(folder)
    folders = scan_folders(root) if anew else recall_folders(root)
    below = (f for f, names in folders if not _FIRST_PARTS.isdisjoint(names))
    paths = dict.fromkeys(path for f in (root, *below) for path in _find_in_folder(f))
    return [Path(path) for path in paths if os.path.exists(path) and not _is_tracked(path)]


def _find_in_folder(folder: str) -> Iterator[str]:
    return (f"{folder}/{name}" for name in _NAMES if os.path.exists(f"{folder}/{name}"))


@lru_cache(maxsize=1024)
def _is_tracked(path: str) -> bool:
    """Whether a file, or one in a folder, is in the index of the repository around it."""
    top = os.path.dirname(path)
    while not os.path.exists(f"{top}/.git/index"):
        if top == "/":
            return False
        top = os.path.dirname(top)
    with suppress(OSError), open(f"{top}/.git/index", "rb") as file:
        name = re.escape(os.fsencode(os.path.relpath(path, top)))
        # Before each name stand two bytes with its length in the lower twelve bits.
        entries = re.finditer(rb"(?s)(..)(" + name + rb"(?:/[^\0]*)?)\0", file.read(_MAX_INDEX))
        return any(int.from_bytes(e[1]) & 0xFFF == len(e[2]) for e in entries)
    return False

"""Finds credentials inside the folders that commands are given."""

# ruff: noqa: PTH110, PTH120, PTH123 - many names are looked at before a command starts
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from hermes.exec.path_rules import list_names

_NAMES = list_names("hide", scope="anywhere")
_FIRST_PARTS = frozenset(name.partition("/")[0] for name in _NAMES)
_SKIPPED_FOLDERS = frozenset("node_modules __pycache__ site-packages .venv venv .tox .git".split())
_MAX_FOLDERS = 600
_MAX_DEPTH = 4
_MAX_INDEX = 64 * 1024 * 1024


def find_credentials(folder: Path) -> list[Path]:
    """The credentials in a folder, and in those below it which were there when we first looked.

    What its repository had then is none: hidden, it would look to git as if it were deleted.

    """
    root = os.fspath(folder)
    paths = dict.fromkeys((*_find_in_folder(root), *_find_below(root)))
    return [Path(path) for path in paths if os.path.exists(path) and not _is_tracked(path)]


def _find_in_folder(folder: str) -> Iterator[str]:
    return (f"{folder}/{name}" for name in _NAMES if os.path.exists(f"{folder}/{name}"))


@lru_cache(maxsize=256)
def _find_below(root: str) -> tuple[str, ...]:
    found: list[str] = []
    waiting, looked = [(root, 0)], 0
    while waiting and looked < _MAX_FOLDERS:
        folder, depth = waiting.pop(0)
        looked += 1
        with suppress(OSError), os.scandir(folder) as entries:
            inner = [entry for entry in entries if not entry.is_symlink()]
            if any(entry.name in _FIRST_PARTS for entry in inner):
                found += _find_in_folder(folder)
            if depth < _MAX_DEPTH:
                folders = (e for e in inner if e.is_dir() and e.name not in _SKIPPED_FOLDERS)
                waiting += [(e.path, depth + 1) for e in sorted(folders, key=lambda e: e.name)]
    return tuple(found)


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

"""Finds the files of a workspace that belong into a checkpoint, and records them in the index."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from hermes.exec.launcher.placeholders import NOWHERE, PLACEHOLDER
from hermes.exec.snapshots.shadow_repo import Shadow, ShadowError

LARGEST_FILE = 5 * 1024 * 1024
LARGEST = 500 * 1024 * 1024
MOST_FILES = 100_000
_MANY = 500


class Survey(Struct):
    """Paths are relative to the workspace."""

    files: list[str] = []
    bytes: int = 0
    modes: dict[str, int] = {}
    """Permissions git has no word for."""
    folders: dict[str, int] = {}
    """All that hold files of ours or nothing at all, with their permissions."""
    skipped: dict[str, str] = {}
    """Path -> why."""


def survey(shadow: Shadow, extra: Collection[str] = ()) -> Survey:
    """Bring the index to the present state: all files that are not ignored, and `extra`."""
    find = ("ls-files", "-z", "--others", "--exclude-standard")
    listed = shadow.run(*find, env=shadow.without_index()).split(b"\0")
    names = {os.fsdecode(name) for name in listed if name}
    names |= {name for name in extra if not _below_link(shadow.workspace, name)}
    seen = _look(shadow.workspace, sorted(names))
    _walk_folders(shadow.workspace, seen)
    known = shadow.run("ls-files", "-z", "--cached").split(b"\0")
    new = [os.fsencode(name) for name in seen.files]
    kept = set(new)
    if gone := [name for name in known if name and name not in kept]:
        shadow.run("update-index", "-z", "--force-remove", "--stdin", data=b"\0".join(gone))
    if new:
        add = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
        many = len(kept.difference(known)) > _MANY
        shadow.run(*add, data=b"\0".join(new), env=shadow.in_bulk() if many else None)
    return seen


def _look(root: Path, names: list[str]) -> Survey:
    seen = Survey()
    for name in names:
        if name.endswith("/"):
            seen.skipped[name] = "a repository of its own"
            continue
        path = f"{root}/{name}"
        try:
            found = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            if found.st_size > LARGEST_FILE:
                seen.skipped[name] = f"larger than {LARGEST_FILE >> 20} MB"
                continue
            if not os.access(path, os.R_OK):
                seen.skipped[name] = "not readable"
                continue
            _note_mode(seen, name, found.st_mode)
            seen.bytes += found.st_size
        elif not stat.S_ISLNK(found.st_mode) or _holds_a_place(path):
            continue
        seen.files.append(name)
    if len(seen.files) > MOST_FILES or seen.bytes > LARGEST:
        raise ShadowError(
            f"{root} is too large: {len(seen.files)} files, {seen.bytes >> 20} MB that are not "
            f"ignored (at most {MOST_FILES} and {LARGEST >> 20} MB)."
        )
    return seen


def _holds_a_place(path: str) -> bool:
    """Whether it is ours, there for as long as a command runs, or gone."""
    try:
        mode = os.lstat(path).st_mode
        return mode == PLACEHOLDER or (stat.S_ISLNK(mode) and os.readlink(path) == NOWHERE)  # noqa: PTH115
    except OSError:
        return True


def _note_mode(seen: Survey, name: str, mode: int) -> None:
    usual = 0o755 if mode & stat.S_IXUSR else 0o644
    if (exact := stat.S_IMODE(mode) & 0o777) != usual:
        seen.modes[name] = exact


def _below_link(root: Path, name: str) -> bool:
    """Whether a folder on the way is a symbolic link now: then it is somebody else's file."""
    folder = name.rpartition("/")[0]
    while folder:
        if os.path.islink(f"{root}/{folder}"):  # noqa: PTH114
            return True
        folder = folder.rpartition("/")[0]
    return False


def _walk_folders(root: Path, seen: Survey) -> None:
    ours: set[str] = {""}
    for name in seen.files:
        folder = name.rpartition("/")[0]
        while folder not in ours:
            ours.add(folder)
            folder = folder.rpartition("/")[0]
    for folder in ours:
        if folder:
            seen.folders[folder] = _mode(root, folder)
        for inner in _subfolders(root, folder):
            if inner not in ours and not _holds_a_place(f"{root}/{inner}"):
                seen.folders.update((empty, _mode(root, empty)) for empty in _hollow(root, inner))


def _subfolders(root: Path, folder: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(root / folder) as entries:
        for entry in entries:
            if entry.name != ".git" and entry.is_dir(follow_symlinks=False):
                yield f"{folder}/{entry.name}" if folder else entry.name


def _hollow(root: Path, folder: str) -> list[str]:
    """The folder and those in it when there is no file in any of them; else nothing."""
    found = [folder]
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(root / here) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        return []
                    found.append(f"{here}/{entry.name}")
                    waiting.append(found[-1])
        except OSError:
            return []
    return found


def _mode(root: Path, folder: str) -> int:
    return stat.S_IMODE(os.lstat(root / folder).st_mode) & 0o777

"""Finds the files of a workspace that belong in a checkpoint and records them in the index."""

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from hermes.exec.launcher.placeholders import LINK_TARGET, PLACEHOLDER
from hermes.exec.snapshots.shadow_repo import ShadowError, ShadowRepository

MAX_FILE_BYTES = 5 * 1024 * 1024
MAX_BYTES = 500 * 1024 * 1024
MAX_FILES = 100_000
_BULK_FILES = 500


class FileIndex(Struct):
    """The files of a checkpoint; paths are relative to the workspace."""

    files: list[str] = []
    bytes: int = 0
    modes: dict[str, int] = {}
    """Permissions that git cannot represent."""
    folders: dict[str, int] = {}
    """Folders that hold saved files or nothing at all, with their permissions."""
    skipped: dict[str, str] = {}
    """Path -> why it was not saved."""


def update_index(repository: ShadowRepository, extra: Collection[str] = ()) -> FileIndex:
    """Update the index to the present state: all files that are not ignored, and `extra`."""
    find = ("ls-files", "-z", "--others", "--exclude-standard")
    listed = repository.run_git(*find, env=repository.empty_index_environment()).split(b"\0")
    names = {os.fsdecode(name) for name in listed if name}
    names |= {name for name in extra if not _is_below_link(repository.workspace, name)}
    index = _inspect_files(repository.workspace, sorted(names))
    _record_folders(repository.workspace, index)
    known = repository.run_git("ls-files", "-z", "--cached").split(b"\0")
    new = [os.fsencode(name) for name in index.files]
    kept = set(new)
    if gone := [name for name in known if name and name not in kept]:
        repository.run_git("update-index", "-z", "--force-remove", "--stdin", data=b"\0".join(gone))
    if new:
        add = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
        many = len(kept.difference(known)) > _BULK_FILES
        env = repository.bulk_environment() if many else None
        repository.run_git(*add, data=b"\0".join(new), env=env)
    return index


def _inspect_files(root: Path, names: list[str]) -> FileIndex:
    index = FileIndex()
    for name in names:
        if name.endswith("/"):
            index.skipped[name] = "a repository of its own"
            continue
        path = f"{root}/{name}"
        try:
            found = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            if found.st_size > MAX_FILE_BYTES:
                index.skipped[name] = f"larger than {MAX_FILE_BYTES >> 20} MB"
                continue
            if not os.access(path, os.R_OK):
                index.skipped[name] = "not readable"
                continue
            usual = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
            if (exact := stat.S_IMODE(found.st_mode) & 0o777) != usual:
                index.modes[name] = exact
            index.bytes += found.st_size
        elif not stat.S_ISLNK(found.st_mode) or _is_placeholder(path):
            continue
        index.files.append(name)
    if len(index.files) > MAX_FILES or index.bytes > MAX_BYTES:
        raise ShadowError(
            f"{root} is too large: {len(index.files)} files, {index.bytes >> 20} MB that are not "
            f"ignored (at most {MAX_FILES} and {MAX_BYTES >> 20} MB)."
        )
    return index


def _is_placeholder(path: str) -> bool:
    """Whether it is our placeholder, which exists while a command runs, or missing."""
    try:
        mode = os.lstat(path).st_mode
        return mode == PLACEHOLDER or (stat.S_ISLNK(mode) and os.readlink(path) == LINK_TARGET)  # noqa: PTH115
    except OSError:
        return True


def list_parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _is_below_link(root: Path, name: str) -> bool:
    """Whether a folder on the way is a symbolic link now, so that the file is another one."""
    return any(os.path.islink(f"{root}/{folder}") for folder in list_parents(name))  # noqa: PTH114


def _record_folders(root: Path, index: FileIndex) -> None:
    saved = {"", *(folder for name in index.files for folder in list_parents(name))}
    for folder in saved:
        if folder:
            index.folders[folder] = _folder_mode(root, folder)
        for inner in _list_subfolders(root, folder):
            if inner not in saved and not _is_placeholder(f"{root}/{inner}"):
                index.folders.update(
                    (empty, _folder_mode(root, empty)) for empty in _list_empty_tree(root, inner)
                )


def _list_subfolders(root: Path, folder: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(root / folder) as entries:
        for entry in entries:
            if entry.name != ".git" and entry.is_dir(follow_symlinks=False):
                yield f"{folder}/{entry.name}" if folder else entry.name


def _list_empty_tree(root: Path, folder: str) -> list[str]:
    """The folder and all folders in it, if none of them holds anything else; else nothing."""
    found = [folder]
    for here in found:
        inner = list(_list_subfolders(root, here))
        try:
            if len(inner) < len(os.listdir(root / here)):  # noqa: PTH208
                return []
        except OSError:
            return []
        found += inner
    return found


def _folder_mode(root: Path, folder: str) -> int:
    return stat.S_IMODE(os.lstat(root / folder).st_mode) & 0o777

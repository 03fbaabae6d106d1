"""A folder as one compressed file, without anything that leads out of it."""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_NAMED = 20


class FolderArchive(Struct, frozen=True):
    body: bytes
    missing: tuple[str, ...]
    """Files that were left out because all together were too large, the first of them."""


class _FolderEntry(Struct, frozen=True):
    path: str
    info: os.stat_result


def hash_folder(folder: Path) -> str:
    """Changes when a file of the folder does; empty for an empty folder."""
    digest, found = blake2b(digest_size=16), False
    for entry, _ in _walk_entries(folder):
        info, found = entry.info, True
        digest.update(f"{entry.path}\0{info.st_mode}\0{info.st_size}\0".encode(errors="replace"))
        digest.update(str(info.st_mtime_ns).encode())
    return digest.hexdigest() if found else ""


def pack_folder(folder: Path, limit: int) -> FolderArchive:
    """The folder with files of `limit` bytes at most, the smallest first."""
    sizes = [(e.info.st_size, e.path) for e, _ in _walk_entries(folder) if _is_file(e)]
    missing, total = [], 0
    for size, path in sorted(sizes):
        total += size
        if total > limit:
            missing.append(path)
    left_out = set(missing)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=1) as archive:
        for entry, parent in _walk_entries(folder):
            if entry.path not in left_out:
                _add_entry(archive, entry, parent)
    return FolderArchive(made.getvalue(), tuple(missing[:_MAX_NAMED]))


def unpack_folder(body: bytes, folder: Path) -> None:
    """Replace the content of the folder."""
    fresh = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True, mode=0o700)
    with tarfile.open(fileobj=io.BytesIO(body), mode="r:gz") as archive:
        archive.extractall(fresh, filter=_skip_unsafe)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def _is_file(entry: _FolderEntry) -> bool:
    return stat.S_ISREG(entry.info.st_mode)


def _walk_entries(folder: Path) -> Iterator[tuple[_FolderEntry, int]]:
    """Everything below the folder with the descriptor of its parent; links are not followed."""
    for root, folders, files, handle in os.fwalk(folder, follow_symlinks=False):
        folders.sort()
        for name in sorted((*folders, *files)):
            path = os.path.relpath(os.path.join(root, name), folder)  # noqa: PTH118
            try:
                info = os.stat(name, dir_fd=handle, follow_symlinks=False)
            except OSError:  # it is gone
                continue
            yield _FolderEntry(path, info), handle


def _add_entry(archive: tarfile.TarFile, entry: _FolderEntry, parent: int) -> None:
    member = tarfile.TarInfo(entry.path)
    member.mode, member.mtime = stat.S_IMODE(entry.info.st_mode), entry.info.st_mtime
    name = os.path.basename(entry.path)  # noqa: PTH119
    try:
        if stat.S_ISDIR(entry.info.st_mode):
            member.type = tarfile.DIRTYPE
            archive.addfile(member)
        elif stat.S_ISLNK(entry.info.st_mode):
            member.type, member.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=parent)
            archive.addfile(member)
        elif _is_file(entry):
            with open(os.open(name, _FLAGS, dir_fd=parent), "rb") as file:  # noqa: PTH123
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    content = file.read(entry.info.st_size)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    except OSError:  # it is gone, or may not be read
        return


def _skip_unsafe(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None

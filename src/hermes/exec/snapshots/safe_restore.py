"""Writes and removes files below one folder without ever following a symbolic link."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class SafeTree:
    """Paths are relative, with slashes. A file is replaced completely or not at all."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def _open_folder(self, path: str, *, make: bool = False) -> Iterator[int]:
        """Open the folder at `path`; "" is the root."""
        handle = os.open(self._root, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
        try:
            for part in path.split("/") if path else ():
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=handle)
                inner = os.open(part, _FOLDER_FLAGS, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    def write_file(self, path: str, data: bytes, mode: int) -> None:
        with self._replace_entry(path) as (parent, temporary):
            handle = os.open(temporary, _NEW_FILE_FLAGS, 0o600, dir_fd=parent)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)

    def write_link(self, path: str, target: bytes) -> None:
        with self._replace_entry(path) as (parent, temporary):
            os.symlink(target, temporary, dir_fd=parent)

    @contextmanager
    def _replace_entry(self, path: str) -> Iterator[tuple[int, str]]:
        """The open folder of `path`, and a name; what the block makes there takes its place."""
        folder, _, name = path.rpartition("/")
        temporary = f".hermes-{os.urandom(8).hex()}"
        with self._open_folder(folder, make=True) as parent:
            try:
                yield parent, temporary
                rename = partial(os.rename, temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
                try:
                    rename()
                except IsADirectoryError:
                    os.rmdir(name, dir_fd=parent)
                    rename()
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent)
                raise

    def remove_file(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        with self._open_folder(folder) as parent:
            os.unlink(name, dir_fd=parent)

    def remove_folder(self, path: str) -> bool:
        """Remove a folder if it is empty; True when it was."""
        folder, _, name = path.rpartition("/")
        with suppress(OSError), self._open_folder(folder) as parent:
            os.rmdir(name, dir_fd=parent)
            return True
        return False

    def make_folder(self, path: str, mode: int) -> None:
        with self._open_folder(path, make=True) as handle:
            if stat.S_IMODE(os.fstat(handle).st_mode) != mode:
                os.fchmod(handle, mode)

    def exists(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        with suppress(OSError), self._open_folder(folder) as parent:
            os.stat(name, dir_fd=parent, follow_symlinks=False)
            return True
        return False

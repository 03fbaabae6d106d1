"""Files put, removed and given modes below one folder, without ever following a symbolic link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Place:
    """Paths are relative, with slashes. Errors are OSErrors; a file is replaced whole or not."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def _folder(self, path: str, *, make: bool = False) -> Iterator[int]:
        """The open folder at `path`; "" is the root."""
        handle = os.open(self._root, _FOLDER & ~os.O_NOFOLLOW)
        try:
            for part in path.split("/") if path else ():
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=handle)
                inner = os.open(part, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    def file(self, path: str, data: bytes, mode: int) -> None:
        folder, _, name = path.rpartition("/")
        with self._folder(folder, make=True) as parent:
            temporary = _temporary()
            handle = os.open(temporary, _NEW, 0o600, dir_fd=parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fchmod(file.fileno(), mode)
                _move(temporary, name, parent)
            except BaseException:
                os.unlink(temporary, dir_fd=parent)
                raise

    def link(self, path: str, target: bytes) -> None:
        folder, _, name = path.rpartition("/")
        with self._folder(folder, make=True) as parent:
            temporary = _temporary()
            os.symlink(target, temporary, dir_fd=parent)
            try:
                _move(temporary, name, parent)
            except BaseException:
                os.unlink(temporary, dir_fd=parent)
                raise

    def remove(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        with self._folder(folder) as parent:
            os.unlink(name, dir_fd=parent)

    def remove_folder(self, path: str) -> bool:
        """Only an empty one."""
        folder, _, name = path.rpartition("/")
        with suppress(OSError), self._folder(folder) as parent:
            os.rmdir(name, dir_fd=parent)
            return True
        return False

    def make_folder(self, path: str, mode: int) -> None:
        with self._folder(path, make=True) as handle:
            if stat.S_IMODE(os.fstat(handle).st_mode) != mode:
                os.fchmod(handle, mode)

    def exists(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        with suppress(OSError), self._folder(folder) as parent:
            os.stat(name, dir_fd=parent, follow_symlinks=False)
            return True
        return False


def _move(source: str, name: str, parent: int) -> None:
    try:
        os.rename(source, name, src_dir_fd=parent, dst_dir_fd=parent)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=parent)
        os.rename(source, name, src_dir_fd=parent, dst_dir_fd=parent)


def _temporary() -> str:
    return f".hermes-{os.urandom(8).hex()}"

"""Writes files atomically: a draft is complete on disk before it replaces a file."""

import contextlib
import errno
import os
import re
import stat
from pathlib import Path

from hermes.core.errors import ToolError
from hermes.core.tool import Workspace
from hermes.tools._files.descriptors import make_folders, remove_folders
from hermes.tools._files.paths import (
    check_access,
    find_real_path,
    interpret_path,
    is_inside,
    is_regular,
)

_REDACTION_MARK = re.compile(rb"\[redacted(?::[^\]\n]{1,60})?\]")
"""What the redactor puts in place of a secret."""


def reject_link_outside(raw: str, path: Path, cwd: Path) -> None:
    """Raise ToolError when a path inside the working folder leads out of it through a link."""
    root = find_real_path(cwd)
    if is_inside(path, root):
        return
    written = Path(os.path.normpath(interpret_path(raw, root)))
    if is_inside(written, root):
        raise ToolError(
            f"{written} leads through a link to {path}. Nothing was changed. If you mean that "
            "file, give its path."
        )


def reject_redaction_marks(path: Path, new: bytes, old: bytes | None) -> None:
    """Raise ToolError when the new content has a redaction mark that the old content does not
    have: it would overwrite a secret. `old` is None when there is no file."""
    lost = find_redaction_marks(new) - find_redaction_marks(old or b"")
    if old is None:  # no secret can be lost, but the longer form is never meant literally
        lost = {mark for mark in lost if b":" in mark}
    if lost:
        shown = min(lost).decode("ascii", "replace")
        raise ToolError(
            f"The text for {path} contains {shown}, which stands for a secret you were not shown: "
            "writing it would destroy the secret. Nothing was changed. Change the other places "
            "with patch."
        )


def find_redaction_marks(data: bytes) -> set[bytes]:
    return set(_REDACTION_MARK.findall(data.replace(b"\0", b"")))  # UTF-16 too


class Draft:
    """The next content of one file, or its deletion (`data` is None). Ended by exactly one of
    `commit` and `discard`; nothing is visible before `commit`."""

    def __init__(
        self,
        path: Path,
        data: bytes | None,
        workspace: Workspace,
        like: os.stat_result | None = None,
        *,
        in_place: bool = False,
    ) -> None:
        """`like`: the file whose mode and owner a new file gets. `in_place`: running commands are
        kept from changing the file by a mount on it, which the kernel removes when another file
        takes its place. A file with a second name is replaced all the same: the other one may be
        anywhere."""
        self.path = path
        self._data = data
        self._temporary_name = ""
        self._created_folders: list[Path] = []
        self._folder_fd = -1
        check_access(path, workspace, write=True)
        try:
            self._folder_fd, self._created_folders = make_folders(path.parent)
            self.existing = _stat_target(path, self._folder_fd)
            if data is not None:
                self._write_temporary(data, self.existing or like)
            self._keeps_file = (
                in_place and self.existing is not None and self.existing.st_nlink == 1
            )
        except BaseException:
            self.discard()
            raise

    def commit(self) -> None:
        if self._temporary_name and self._keeps_file:
            self._rewrite_file()
        elif self._temporary_name:
            os.rename(
                self._temporary_name,
                self.path.name,
                src_dir_fd=self._folder_fd,
                dst_dir_fd=self._folder_fd,
            )
            self._temporary_name = ""
        else:
            os.unlink(self.path.name, dir_fd=self._folder_fd)
        with contextlib.suppress(OSError):  # the change is made, whether or not it is on disk yet
            os.fsync(self._folder_fd)
        self._close_folder()

    def discard(self) -> None:
        if self._temporary_name:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary_name, dir_fd=self._folder_fd)
            self._temporary_name = ""
        self._close_folder()
        self.remove_empty_folders()

    def remove_empty_folders(self) -> None:
        """Remove the folders created for the file, as far as they are empty."""
        remove_folders(self._created_folders)

    def _rewrite_file(self) -> None:
        fd = os.open(self.path.name, os.O_WRONLY | os.O_NOFOLLOW, dir_fd=self._folder_fd)
        try:
            if self.existing is None or not os.path.samestat(self.existing, os.fstat(fd)):
                raise OSError(errno.ESTALE, "it was just replaced")
            _write_to_disk(fd, self._data or b"")
        finally:
            os.close(fd)
        os.unlink(self._temporary_name, dir_fd=self._folder_fd)
        self._temporary_name = ""

    def _close_folder(self) -> None:
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
            self._folder_fd = -1

    def _write_temporary(self, data: bytes, like: os.stat_result | None) -> None:
        name = f".hermes-{os.urandom(8).hex()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o666, dir_fd=self._folder_fd)
        self._temporary_name = name
        try:
            if like:
                with contextlib.suppress(PermissionError):
                    os.fchown(fd, like.st_uid, like.st_gid)
                os.fchmod(fd, stat.S_IMODE(like.st_mode))
            _write_to_disk(fd, data)
        finally:
            os.close(fd)


def _write_to_disk(fd: int, data: bytes) -> None:
    """Make `data` all that is in the file."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.ftruncate(fd, len(data))
    os.fsync(fd)


def _stat_target(path: Path, folder: int) -> os.stat_result | None:
    try:
        old = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(old.st_mode):
        raise ToolError(f"{path} is a directory; nothing was changed. Give the path of a file.")
    if not is_regular(old):
        raise ToolError(f"{path} is a link, device, pipe or socket; nothing was changed.")
    if not os.access(path.name, os.W_OK, dir_fd=folder):
        raise ToolError(f"{path} is write-protected. Nothing was changed.")
    return old

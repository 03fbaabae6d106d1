"""Files that come with messages, and files that answers send along."""

import os
import re
import secrets
import stat
import time
from pathlib import Path
from typing import BinaryIO

from hermes.config import paths
from hermes.core.errors import ToolError
from hermes.core.message import Media
from hermes.core.tool import Workspace
from hermes.gateway import texts
from hermes.gateway.adapter import Attachment, Platform, SendFailure
from hermes.tools._files.descriptors import open_exact
from hermes.tools._files.paths import check_listed_file

_MEDIA_LINE = re.compile(r"^MEDIA:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
_LARGEST_IMAGE = 5_000_000
_LONGEST_NAME = 100
LARGEST_SENT = 100_000_000
"""No messenger takes larger files of programs, and a file is held in memory while it is sent."""


def media_folder(home: Path) -> Path:
    return paths.cache_folder(home) / "media"


def clean_name(name: str) -> str:
    """A file name as text for the agent: one line, no brackets; it never becomes a path."""
    plain = "".join(c if c.isprintable() and c not in "[]" else "_" for c in name)
    return plain[:_LONGEST_NAME] or "unnamed"


class MediaCache:
    """Stores attachments under random names, readable by the owner only."""

    def __init__(self, home: Path, max_bytes: int, days: float) -> None:
        self.folder = media_folder(home)
        self._max_bytes = max_bytes
        self._days = days

    async def fetch(self, platform: Platform, attachment: Attachment) -> tuple[str, Path | None]:
        """The line that tells the agent about the attachment, and the file if there is one."""
        name = clean_name(attachment.name)
        paths.make_private_folder(self.folder)
        path = self.folder / secrets.token_hex(16)
        try:
            size = await self._download(platform, attachment, path)
        except (SendFailure, OSError) as error:
            path.unlink(missing_ok=True)
            return texts.ATTACHMENT_MISSING.format(name=name, why=str(error).rstrip(".")), None
        kind = clean_name(attachment.type or "unknown type")
        line = texts.ATTACHMENT.format(path=path, type=kind, size=size, name=name)
        return line, path

    def store(self, data: bytes, suffix: str) -> Path:
        """A new file with what is sent; its path leads over no link."""
        paths.make_private_folder(self.folder)
        path = self.folder / (secrets.token_hex(16) + suffix)
        with _create_private(path) as file:
            file.write(data)
        return path.resolve()

    async def _download(self, platform: Platform, attachment: Attachment, path: Path) -> int:
        if attachment.size > self._max_bytes:
            raise self._too_large()
        size = 0
        with _create_private(path) as file:

            def write_piece(piece: bytes) -> None:
                nonlocal size
                size += len(piece)
                if size > self._max_bytes:
                    raise self._too_large()
                file.write(piece)

            await platform.fetch_attachment(attachment, write_piece, self._max_bytes)
        return size

    def _too_large(self) -> SendFailure:
        return SendFailure("rejected", f"it is larger than {self._max_bytes:,} bytes")

    def remove_old_files(self) -> None:
        limit = time.time() - self._days * 86400
        if self.folder.is_dir():
            for file in self.folder.iterdir():
                if file.stat().st_mtime < limit:
                    file.unlink(missing_ok=True)


def _create_private(path: Path) -> BinaryIO:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return os.fdopen(handle, "wb")


def read_image(path: Path) -> Media | None:
    """The picture in a file, if it is one that models take."""
    if path.stat().st_size > _LARGEST_IMAGE:
        return None
    data = path.read_bytes()
    for start, kind in _IMAGES.items():
        if data.startswith(start) and (start != b"RIFF" or data[8:12] == b"WEBP"):
            return Media(kind, data)
    return None


def extract_files(text: str, workspace: Workspace, cache: Path) -> tuple[str, tuple[str, ...]]:
    """The text without its `MEDIA:PATH` lines, and the files to send: from the workspace what file
    tools may read, and attachments. Instead of any other the text says that it was not sent."""
    files: list[str] = []

    def replace_line(found: re.Match[str]) -> str:
        real = _find_file(found[1], (workspace.cwd, cache))
        if real is None:
            return texts.NOT_SENT.format(path=found[1])
        if not real.is_relative_to(cache.resolve()) and not _may_send(real, workspace):
            return texts.FILE_NOT_SENT.format(name=found[1], why="the agent may not read it")
        files.append(str(real))
        return ""

    plain = _MEDIA_LINE.sub(replace_line, text)
    return (re.sub(r"\n{3,}", "\n\n", plain).strip("\n") if files else plain), tuple(files)


def _find_file(name: str, folders: tuple[Path, ...]) -> Path | None:
    """The real path of a file, relative to the first folder; None outside of all of them."""
    try:
        real = (folders[0] / Path(name)).resolve(strict=True)
        inside = any(real.is_relative_to(folder.resolve()) for folder in folders)
    except (OSError, ValueError, RuntimeError):
        return None
    return real if inside and real.is_file() else None


def _may_send(path: Path, workspace: Workspace) -> bool:
    """Whether file tools may read it: a workspace can hold keys, and the agent's own home."""
    try:
        check_listed_file(path, workspace)
    except (OSError, ToolError):
        return False
    return True


def read_sent_file(path: str) -> bytes:
    """The content of a file that `extract_files` has found; SendFailure. A link that a command has
    put in its place meanwhile, or in that of a folder, is not followed."""
    try:
        handle = open_exact(Path(path), os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise SendFailure("rejected", "it is no longer a file")
            if found.st_size > LARGEST_SENT:
                raise SendFailure("rejected", f"it is larger than {LARGEST_SENT:,} bytes")
            return file.read(LARGEST_SENT)
    except (OSError, ValueError, ToolError):
        raise SendFailure("rejected", "it is no longer there") from None

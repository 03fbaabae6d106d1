"""Files that people attach: kept under random names until a message takes them."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from hermes.config.paths import make_private_folder

KEEP_SECONDS = 86_400.0
MAX_PER_TURN = 10


class Upload(Struct, frozen=True):
    id: str
    name: str
    """As the person called it; never a path."""
    mime: str
    bytes: int
    owner: str
    file: Path
    created: float


class Uploads:
    """The attached files that no message has taken yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Upload] = {}

    def save_file(self, owner: str, name: str, mime: str, body: bytes) -> Upload:
        self.remove_old()
        make_private_folder(self._folder)
        upload_id = secrets.token_hex(16)
        file = self._folder / upload_id
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(body)
        saved = Upload(upload_id, name, mime, len(body), owner, file, time.time())
        self._files[upload_id] = saved
        return saved

    def find_file(self, owner: str, upload_id: str) -> Upload | None:
        """None when the owner has no such file, or no longer."""
        found = self._files.get(upload_id)
        if found is None or found.owner != owner:
            return None
        return found if found.file.exists() else None

    def remove_files(self, taken: Iterable[Upload]) -> None:
        """What a message has taken."""
        for upload in taken:
            self._files.pop(upload.id, None)
            upload.file.unlink(missing_ok=True)

    def remove_old(self) -> None:
        """Remove what no message has taken in time, also what another process of this home left."""
        limit = time.time() - KEEP_SECONDS
        for file in self._folder.glob("*") if self._folder.is_dir() else ():
            with suppress(FileNotFoundError):
                if file.stat().st_mtime < limit:
                    file.unlink()
                    self._files.pop(file.name, None)

"""What a server writes to its error output, kept in a file of limited size."""

import os
from contextlib import suppress
from pathlib import Path

from hermes.config.paths import make_private_folder

_MAX_BYTES = 1024 * 1024


class ServerLog:
    """`logs/mcp-NAME.log`; at 1 MB it becomes `.log.1`, and a new one begins. A disk that cannot be
    written loses the log, not the server."""

    def __init__(self, home: Path, name: str) -> None:
        self.file = home / "logs" / f"mcp-{name}.log"
        self._handle = -1
        self._size = 0

    def write(self, data: bytes) -> None:
        with suppress(OSError):
            if self._handle < 0:
                self._open_file()
            elif self._size > _MAX_BYTES:
                self.close()
                self.file.replace(self.file.with_suffix(".log.1"))
                self._open_file()
            self._size += os.write(self._handle, data)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _open_file(self) -> None:
        make_private_folder(self.file.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(self.file, flags, 0o600)
        self._size = os.fstat(self._handle).st_size

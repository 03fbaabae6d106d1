"""The input history across sessions: a private file with a line of JSON per message."""

import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import History

from hermes.config.paths import make_private_folder

_READ_BYTES = 1 << 20
_MAX_ENTRIES = 2000
_MAX_FILE_BYTES = 4 << 20
_MAX_ENTRY_CHARS = 100_000


class InputHistory(History):
    """Newest first, from the last megabyte. Entries that begin with a space are not kept."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        import orjson

        try:
            with self._file.open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(0, size - _READ_BYTES))
                lines = stream.read().split(b"\n")
        except OSError:
            return
        for line in lines[: -_MAX_ENTRIES - 1 : -1]:
            try:
                text = orjson.loads(line)
            except ValueError:
                continue
            if isinstance(text, str) and text:
                yield text

    def store_string(self, string: str) -> None:
        if string.startswith(" ") or len(string) > _MAX_ENTRY_CHARS:
            return
        import orjson

        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            make_private_folder(self._file.parent)
            if self._file.exists() and self._file.stat().st_size > _MAX_FILE_BYTES:
                self._file.replace(self._file.with_suffix(".1"))
            with os.fdopen(os.open(self._file, flags, 0o600), "ab", buffering=0) as out:
                out.write(orjson.dumps(string.encode("utf-8", "replace").decode()) + b"\n")
        except OSError:
            return

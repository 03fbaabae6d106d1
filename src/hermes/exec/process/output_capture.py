"""Captures an output in bounded memory: its beginning and end, and all of it in a file if long."""

import os
from codecs import getincrementaldecoder
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from hermes.exec.process.ansi import to_plain_text

FILE_LIMIT = 256 * 1024 * 1024
"""Most bytes of one output that are saved, so that an endless one does not fill the disk."""

_MAX_WORD = 2048
"""Bytes within which a space is searched where there is no line break."""


class OutputCapture:
    """Holds at most `limit` bytes (and one chunk) in memory, however much is fed."""

    def __init__(
        self,
        limit: int,
        folder: Path,
        *,
        name: str = "output",
        watch: Callable[[bytes], None] | None = None,
    ) -> None:
        self.size = 0
        self.saved = ""
        """Where the complete output was saved, or why it was not; empty while it fits in memory."""
        self._limit = limit
        self._folder = folder
        self._name = name
        self._watch = watch
        self._chunks: list[bytes] = []
        self._head = b""
        self._tail = bytearray()
        self._file: BinaryIO | None = None
        self._room = FILE_LIMIT

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        if self._watch:
            self._watch(data)
        if self.size <= self._limit:
            self._chunks.append(data)
            return
        if not self.saved:
            data = b"".join([*self._chunks, data])
            self._chunks = []
            self._head = data[: self._limit // 2]
            self._open_file()
        self._save_data(data)
        half = self._limit - self._limit // 2
        if len(data) < half:
            self._tail += data
            del self._tail[: len(self._tail) - half]
        else:
            self._tail[:] = data[-half:]

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None

    def text(self) -> str:
        """The output as plain text; the middle of a long one is replaced by where it was saved."""
        if not self.saved:
            return to_plain_text(b"".join(self._chunks).decode("utf-8", "replace"))
        head, tail = trim_to_lines(self._head, bytes(self._tail))
        return f"{head}\n\n[… cut: {self.size} bytes in all; {self.saved} …]\n\n{tail}"

    def _open_file(self) -> None:
        path = self._folder / f"{self._name}-{os.urandom(6).hex()}.txt"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0)
        except OSError as error:
            self.saved = f"the rest could not be saved ({error.strerror})"
        else:
            self.saved = f"full output: {path}"

    def _save_data(self, data: bytes) -> None:
        if not self._file:
            return
        try:
            self._file.write(data[: self._room])
        except OSError as error:
            self.saved += f" (incomplete: {error.strerror})"
            self.close()
            return
        self._room -= len(data)
        if self._room < 0:
            self.saved += f" (its first {FILE_LIMIT // 2**20} MB)"
            self.close()


def trim_to_lines(head: bytes, tail: bytes) -> tuple[str, str]:
    """Both parts as text, trimmed to a line break near the cut, else to a space (half a secret
    would not be recognised), else to a whole character."""
    last, first = len(head) * 3 // 4, len(tail) // 4
    end = head.rfind(b"\n", last) + 1 or head.rfind(b" ", max(last, len(head) - _MAX_WORD)) + 1
    start = tail.find(b"\n", 0, first) + 1 or tail.find(b" ", 0, min(first, _MAX_WORD)) + 1
    while not start and tail[:1] and tail[0] & 0xC0 == 0x80:
        tail = tail[1:]
    before = getincrementaldecoder("utf-8")("replace").decode(head[: end or None])
    return to_plain_text(before), to_plain_text(tail[start:].decode("utf-8", "replace"))

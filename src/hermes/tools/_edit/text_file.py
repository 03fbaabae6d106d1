"""A file as text that can be written back byte for byte: encoding, byte order mark, line ends."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
from collections import Counter
from pathlib import Path

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import Workspace
from hermes.tools._files.paths import check_open_file, check_unopened_file, is_regular

MAX_BYTES = 16 * 1024 * 1024
"""Bytes of a file that can be edited."""
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ENCODING_NAMES = {"utf-8": "UTF-8", "latin-1": "Latin-1"}


class Encoding(Struct, frozen=True):
    name: str = "utf-8"
    mark: bytes = b""

    def encode(self, text: str, path: Path) -> bytes:
        try:
            data = self.mark + text.encode(self.name)
        except UnicodeEncodeError as error:
            name = _ENCODING_NAMES.get(self.name, "UTF-16")
            raise ToolError(
                f"{path} is {name}, which cannot hold {error.object[error.start]!a}; nothing was "
                "changed."
            ) from None
        if "\0" in text:
            raise ToolError(f"A NUL character would make {path} binary; nothing was changed.")
        return data


def read_bytes(path: Path, workspace: Workspace) -> tuple[bytes, os.stat_result]:
    """The content of a file that may be read, and what the system says about it."""
    check_unopened_file(path, workspace)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with contextlib.ExitStack() as held:
        held.callback(os.close, fd)
        found = check_open_file(fd, path, workspace)
        if not is_regular(found):
            raise ToolError(f"{path} is a directory, device, pipe or socket, not a file.")
        if found.st_size > MAX_BYTES:
            raise ToolError(f"{path} is larger than {MAX_BYTES >> 20} MB; edit it with terminal.")
        file = held.enter_context(os.fdopen(fd, "rb", closefd=False))
        return file.read(), found


def decode_text(data: bytes, path: Path) -> tuple[str, Encoding]:
    """The text, and how to get back to these very bytes. Raises ToolError when it is no text."""
    mark, name = next((m for m in _BYTE_ORDER_MARKS if data.startswith(m[0])), (b"", "utf-8"))
    body = data[len(mark) :]
    try:
        text = body.decode(name)
    except UnicodeDecodeError:
        if mark or b"\0" in data:
            raise ToolError(f"{path} is binary data, not text; it is not edited.") from None
        text, name = body.decode("latin-1"), "latin-1"
    if "\0" in text:
        raise ToolError(f"{path} is binary data, not text; it is not edited.")
    return text, Encoding(name, mark)


_LINE_END = re.compile(r"\r?\n")
_CARRIAGE_RETURN = re.compile(r"\r")


class Lines(Struct, frozen=True):
    """Text cut into lines. `ends[i]` ends line i; the last line has none when it is unfinished,
    and an empty text has no lines."""

    rows: list[str]
    ends: list[str]

    @classmethod
    def split(cls, text: str) -> Lines:
        end = _LINE_END if "\n" in text else _CARRIAGE_RETURN
        ends = end.findall(text)
        rows = end.split(text)
        if not rows[-1]:
            rows.pop()
        return cls(rows, ends)

    @property
    def has_final_end(self) -> bool:
        return len(self.ends) == len(self.rows)

    @property
    def common_end(self) -> str:
        """The line end most lines have; empty when no line has one."""
        return Counter(self.ends).most_common(1)[0][0] if self.ends else ""

    @property
    def has_mixed_ends(self) -> bool:
        return len(set(self.ends)) > 1

    @property
    def plain_text(self) -> str:
        """The text with every line end as a line feed."""
        text = "\n".join(self.rows)
        return text + "\n" if self.has_final_end and self.rows else text

    def join(self) -> str:
        ends = self.ends if not self.rows or self.has_final_end else [*self.ends, ""]
        return "".join([part for pair in zip(self.rows, ends, strict=True) for part in pair])

"""Reads a file as text that can be written back byte for byte: encoding, mark, line ends."""

import codecs
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import Workspace
from hermes.tools._files.paths import open_file

MAX_BYTES = 16 * 1024 * 1024
"""Larger files cannot be edited."""
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
    """The content and status of a file. Raises ToolError when file tools may not read it."""
    with open_file(path, workspace) as (file, status):
        if status.st_size > MAX_BYTES:
            raise ToolError(f"{path} is larger than {MAX_BYTES >> 20} MB; edit it with terminal.")
        return file.read(), status


def decode_text(data: bytes, path: Path) -> tuple[str, Encoding]:
    """The text and its encoding. Raises ToolError when the data is not text."""
    mark, name = next((m for m in _BYTE_ORDER_MARKS if data.startswith(m[0])), (b"", "utf-8"))
    body = data[len(mark) :]
    try:
        text = body.decode(name)
    except UnicodeDecodeError:
        if mark or b"\0" in data:
            raise ToolError(f"{path} is binary data, not text; nothing was changed.") from None
        text, name = body.decode("latin-1"), "latin-1"
    if "\0" in text:
        raise ToolError(f"{path} is binary data, not text; nothing was changed.")
    return text, Encoding(name, mark)


NO_NEWLINE = "\\ No newline at end of file"
_LINE_END = re.compile(r"\r?\n")
_CARRIAGE_RETURN = re.compile(r"\r")


class Lines(Struct, frozen=True):
    """Text split into lines. `ends[i]` ends line i; the last line may have no end, and an empty
    text has no lines."""

    rows: list[str]
    ends: list[str]

    @classmethod
    def split(cls, text: str) -> "Lines":
        if "\r" not in text:
            rows = text.split("\n")
            return cls(rows if rows[-1] else rows[:-1], ["\n"] * (len(rows) - 1))
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
        """The most frequent line end; empty when there is none."""
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


def sign_rows(
    opcodes: Iterable[tuple[str, int, int, int, int]], old: Sequence[str], new: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """The lines of a comparison: " " is in both, "-" only in the old text, "+" only in the new."""
    for tag, i, ii, j, jj in opcodes:
        yield from ((" " if tag == "equal" else "-", row) for row in old[i:ii])
        yield from (("+", row) for row in new[j:jj] if tag != "equal")


def count_common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines or characters both begin with."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)

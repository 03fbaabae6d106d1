"""Reads a text file or a notebook by lines, or an image."""

from __future__ import annotations

import asyncio
import codecs
import io
import os
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.image_size import is_oversized
from hermes.core.message import Media, Text
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools._files.images import MAX_IMAGE, image_type
from hermes.tools._files.paths import (
    check,
    check_open,
    check_unopened,
    describe_missing,
    is_regular,
    resolve,
)

LIMIT = 48_000
"""Bytes of one answer, line numbers included: below the cap of results, which cuts blindly."""
LINE = 2000
"""Characters of a line that are shown."""
_WIDEST = 4 * LINE + 2
"""The most bytes these can be, with their end."""
_CR = "\r"
_WIDE = (
    ((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32"),
    ((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"),
)
_INLINE = 256 * 1024
_COUNTABLE = 32 * 1024 * 1024
_BLOCK = 1024 * 1024
_REACH = 2 * 1024**3
"""How far into a file one may read: a thread that counts lines cannot be interrupted."""
_BINARIES = {
    b"%PDF-": "a PDF",
    b"PK\x03\x04": "a ZIP archive or office document",
    b"\x1f\x8b": "gzip data",
    b"\x7fELF": "a program",
    b"SQLite format 3": "an SQLite database",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ": "xz data",
    b"(\xb5/\xfd": "zstd data",
}


class Params(Struct, frozen=True):
    path: str
    offset: int = 1
    limit: int = 2000


@tool(
    "Read a text file as `number|line` (offset: first line, from 1; negative: from the end), or "
    "an image."
)
async def read_file(p: Params, ctx: ToolContext) -> ToolResult:
    if p.limit < 1:
        raise ToolError("limit must be at least 1.")
    path = resolve(p.path, ctx.workspace.cwd)
    check(path, ctx.workspace, write=False)
    try:
        size = _size(path)
        if size <= _INLINE:
            return _read(path, p, ctx)
        return await asyncio.to_thread(_read, path, p, ctx)
    except FileNotFoundError:
        raise ToolError(describe_missing(path)) from None
    except OSError as error:
        raise ToolError(f"Cannot read {path}: {error.strerror}.") from None


def _size(path: Path) -> int:
    found = path.stat()
    if path.is_dir():
        names = sorted(e.name + "/" * e.is_dir() for e in path.iterdir())
        listed = ", ".join(names[:50]) + (", …" if len(names) > 50 else "")
        raise ToolError(f"{path} is a directory of {len(names)}: {listed}")
    if not is_regular(found):
        raise ToolError(f"{path} is a device, pipe or socket, not a file.")
    return found.st_size


def _read(path: Path, p: Params, ctx: ToolContext) -> ToolResult:
    check_unopened(path, ctx.workspace)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        found = check_open(fd, path, ctx.workspace)
        if not is_regular(found):
            raise ToolError(f"{path} is a device, pipe or socket, not a file.")
        start = file.read(8192) or b""  # None: a file of the kernel that has nothing to say now
        if mime := image_type(start):
            return _show(path, file, start, mime=mime)
        text, note = _as_utf8(file, start, path, found.st_size)
        if path.suffix == ".ipynb" and found.st_size <= _COUNTABLE:
            text, note = _cells(text, note)
        return ToolResult(_lines(text, p, note))


def _show(path: Path, file: BinaryIO, start: bytes, *, mime: str) -> ToolResult:
    data = start + file.read(MAX_IMAGE + 1 - len(start))
    if len(data) > MAX_IMAGE:
        raise ToolError(f"{path} is an {mime} of more than {MAX_IMAGE} bytes; make it smaller.")
    if is_oversized(data):
        raise ToolError(f"{path} is an {mime} of too many pixels to be shown; make it smaller.")
    label = f"{path} ({mime}, {len(data)} bytes)"
    return ToolResult((Text(label), Media(mime, data, name=path.name)), display=label)


def _as_utf8(file: BinaryIO, start: bytes, path: Path, size: int) -> tuple[BinaryIO, str]:
    """The file at its first character, as UTF-8 or unmarked bytes; and what to say about it."""
    if start.startswith(codecs.BOM_UTF8):
        file.seek(len(codecs.BOM_UTF8))
        return file, "UTF-8 with BOM"
    for marks, name in _WIDE:
        if start.startswith(marks) and size <= _COUNTABLE:
            text = (start + file.read()).decode(name, "replace")
            return io.BytesIO(text.encode("utf-8", "replace")), name.upper()
    kind = next((k for magic, k in _BINARIES.items() if start.startswith(magic)), "")
    if kind or b"\0" in start:
        raise ToolError(f"{path} is {kind or 'binary data'} ({size} bytes), not text.")
    file.seek(0)
    if b"\r" in start and b"\n" not in start and 0 < size <= _COUNTABLE:
        data = file.read()
        if b"\n" not in data:
            return io.BytesIO(data.replace(b"\r", b"\n")), "lines end in CR"
        file.seek(0)
    return file, ""


def _cells(file: BinaryIO, note: str) -> tuple[BinaryIO, str]:
    """A notebook as the text of its cells; what only bears the name, as it is."""
    from hermes.tools._files.notebook import as_text

    begin = file.tell()
    text = as_text(file.read())
    if text is None:
        file.seek(begin)
        return file, note
    return io.BytesIO(text.encode("utf-8", "replace")), "the cells of a notebook; the file is JSON"


def _lines(file: BinaryIO, p: Params, encoding: str) -> str:
    begin = file.tell()
    first = max(p.offset, 1)
    if p.offset < 0:
        first = max(_skip(file, None) + p.offset + 1, 1)
        file.seek(begin)
    passed = _skip(file, first - 1)
    rows, cut = _take(file, first, p.limit)
    if passed < first - 1 or (not rows and first > 1):
        return f"[nothing at line {first}: the file has {passed} lines]"
    if not rows:
        return "[empty file]"
    notes = [encoding] if encoding else []
    text, latin = _decoded(rows)
    cut.update(number for number, row in enumerate(text, first) if len(row) > LINE)
    if cut:
        notes.append(_cut_note(sorted(cut)))
    if latin:
        notes.append("not UTF-8, read as Latin-1")
    if any(row.endswith("\r") for row in text):
        all_do = all(row.endswith("\r") for row in text[:-1])  # the last may have no end
        notes.append("lines end in CRLF" if all_do else "some lines end in CRLF")
    shown = [f"{n}|{row.removesuffix(_CR)[:LINE]}" for n, row in enumerate(text, first)]
    last = first + len(shown) - 1
    if file.read(1):
        file.seek(begin)
        of = f" of {_skip(file, None)}" if _length(file) <= _COUNTABLE else ""
        notes.append(f"lines {first}-{last}{of}; go on with offset={last + 1}")
    if notes:
        shown.append(f"[{'; '.join(notes)}]")
    return "\n".join(shown)


def _take(file: BinaryIO, first: int, limit: int) -> tuple[list[bytes], set[int]]:
    """So many lines, as far as there is room; and which of them were too long."""
    rows: list[bytes] = []
    cut: set[int] = set()
    room = LIMIT
    while len(rows) < limit:
        begin = file.tell()
        row = file.readline(_WIDEST)
        room -= min(len(row), _WIDEST) + len(str(first + len(rows))) + 1
        if not row or (room < 0 and rows):
            file.seek(begin)
            break
        if len(row) == _WIDEST and not row.endswith(b"\n"):
            cut.add(first + len(rows))
            _skip(file, 1)
        rows.append(row.removesuffix(b"\n"))
    return rows, cut


def _cut_note(numbers: list[int]) -> str:
    named = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
    if len(numbers) == 1:
        return f"line {named} is too long and cut here"
    return f"lines {named} are too long and cut here"


def _skip(file: BinaryIO, lines: int | None) -> int:
    """Move past this many lines (None: all); how many there were."""
    passed = 0
    begins = True
    while lines is None or passed < lines:
        at = file.tell()
        if at > _REACH:
            raise ToolError("That is too far into a large file; use terminal (tail, sed -n).")
        block = file.read(_BLOCK)
        if not block:
            return passed + (not begins)
        begins = block.endswith(b"\n")
        count = block.count(b"\n")
        if lines is None or passed + count < lines:
            passed += count
            continue
        end = 0
        while passed < lines:
            end = block.index(b"\n", end) + 1
            passed += 1
        file.seek(at + end)
    return passed


def _length(file: BinaryIO) -> int:
    here = file.tell()
    try:
        end = file.seek(0, os.SEEK_END)
    except OSError:  # a file of the kernel that has no end to go to
        return _COUNTABLE + 1
    file.seek(here)
    return end


def _decoded(rows: list[bytes]) -> tuple[list[str], bool]:
    """A row that was cut may end inside a character."""
    try:
        return [_whole(row).decode() for row in rows], False
    except UnicodeDecodeError:
        return [row.decode("latin-1") for row in rows], True


def _whole(row: bytes) -> bytes:
    if len(row) < _WIDEST:
        return row
    end = next((at for at in range(1, 4) if row[-at] & 0xC0 == 0xC0), 0)
    return row[:-end] if end else row

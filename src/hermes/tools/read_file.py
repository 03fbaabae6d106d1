"""Reads a text file or a notebook by lines, or an image."""

import asyncio
import codecs
import io
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.image_size import is_oversized
from hermes.core.message import Media, Text
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools._files.boundary import require_readable
from hermes.tools._files.descriptors import list_folder, stat_exact
from hermes.tools._files.images import MAX_IMAGE_BYTES, detect_image_type
from hermes.tools._files.paths import (
    describe_missing,
    is_regular,
    open_file,
    resolve_path,
)
from hermes.tools._services import CLIENT_FILES

MAX_RESULT_BYTES = 48_000
"""Bytes of one result with line numbers: below the general cap, which cuts anywhere."""
MAX_LINE_CHARS = 2000
"""The rest of a longer line is not shown."""
_MAX_LINE_BYTES = 4 * MAX_LINE_CHARS + 2
"""The most bytes that these characters and a line end can take."""
_CR = "\r"
_WIDE_ENCODINGS = (
    ((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32"),
    ((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"),
)
_MAX_INLINE_BYTES = 256 * 1024
_MAX_LOADED_BYTES = 32 * 1024 * 1024
_BLOCK_SIZE = 1024 * 1024
_MAX_OFFSET = 2 * 1024**3
"""How far into a file lines are counted: a thread cannot be interrupted."""
_KEY_ROWS = re.compile(
    rb"(-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY[A-Z ]{0,7}-----\r?\n)"
    rb"((?:(?!-----)[A-Za-z0-9+/=:, -]{0,200}\r?(?:\n|\Z))*+)"
)
_KEY_MARK = b"[redacted:private-key]"
_BINARY_KINDS = {
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
    path = resolve_path(p.path, ctx.workspace.cwd)
    await require_readable(path, ctx)
    try:
        size = _measure_file(path)
        client = ctx.services.get(CLIENT_FILES)
        if client is not None and size <= _MAX_LOADED_BYTES and path.suffix != ".ipynb":
            text = await client.read_text(path)
            if text is not None:
                return ToolResult(_format_lines(io.BytesIO(text.encode()), p, ""))
        if size <= _MAX_INLINE_BYTES:
            return _read_content(path, p, ctx)
        return await asyncio.to_thread(_read_content, path, p, ctx)
    except FileNotFoundError:
        raise ToolError(describe_missing(path)) from None
    except OSError as error:
        raise ToolError(f"Cannot read {path}: {error.strerror}.") from None


def _measure_file(path: Path) -> int:
    """The size of a file. Raises ToolError when it is a directory or no regular file."""
    status = stat_exact(path)
    if stat.S_ISDIR(status.st_mode):
        names = sorted(list_folder(path))
        listed = ", ".join(names[:50]) + (", …" if len(names) > 50 else "")
        raise ToolError(f"{path} is a directory with {len(names)} entries: {listed}")
    if not is_regular(status):
        raise ToolError(f"{path} is a device, pipe or socket, not a file.")
    return status.st_size


def _read_content(path: Path, p: Params, ctx: ToolContext) -> ToolResult:
    with open_file(path, ctx.workspace) as (file, status):
        start = file.read(8192) or b""  # None: a kernel file that has no data at the moment
        if mime := detect_image_type(start):
            return _read_image(path, file, start, mime=mime)
        text, note = _open_as_utf8(file, start, path, status.st_size)
        if path.suffix == ".ipynb" and status.st_size <= _MAX_LOADED_BYTES:
            text, note = _convert_notebook(text, note)
        return ToolResult(_format_lines(text, p, note))


def _read_image(path: Path, file: BinaryIO, start: bytes, *, mime: str) -> ToolResult:
    data = start + file.read(MAX_IMAGE_BYTES + 1 - len(start))
    if len(data) > MAX_IMAGE_BYTES:
        raise ToolError(
            f"{path} is an {mime} of more than {MAX_IMAGE_BYTES} bytes; make it smaller."
        )
    if is_oversized(data):
        raise ToolError(f"{path} ({mime}) has too many pixels to be shown; make it smaller.")
    label = f"{path} ({mime}, {len(data)} bytes)"
    return ToolResult((Text(label), Media(mime, data, name=path.name)), display=label)


def _open_as_utf8(file: BinaryIO, start: bytes, path: Path, size: int) -> tuple[BinaryIO, str]:
    """The file positioned after its byte order mark, as UTF-8 or unknown bytes, and a note about
    its encoding."""
    if start.startswith(codecs.BOM_UTF8):
        file.seek(len(codecs.BOM_UTF8))
        return file, "UTF-8 with BOM"
    for marks, name in _WIDE_ENCODINGS:
        if start.startswith(marks) and size <= _MAX_LOADED_BYTES:
            text = (start + file.read()).decode(name, "replace")
            return io.BytesIO(text.encode("utf-8", "replace")), name.upper()
    kind = next((k for magic, k in _BINARY_KINDS.items() if start.startswith(magic)), "")
    if kind or b"\0" in start:
        raise ToolError(f"{path} is {kind or 'binary data'} ({size} bytes), not text.")
    file.seek(0)
    if b"\r" in start and b"\n" not in start and 0 < size <= _MAX_LOADED_BYTES:
        data = file.read()
        if b"\n" not in data:
            return io.BytesIO(data.replace(b"\r", b"\n")), "lines end in CR"
        file.seek(0)
    return file, ""


def _convert_notebook(file: BinaryIO, note: str) -> tuple[BinaryIO, str]:
    """A notebook as the text of its cells; any other file as it is."""
    from hermes.tools._files.notebook import render_notebook

    begin = file.tell()
    text = render_notebook(file.read())
    if text is None:
        file.seek(begin)
        return file, note
    return io.BytesIO(text.encode("utf-8", "replace")), "the cells of a notebook; the file is JSON"


def _format_lines(file: BinaryIO, p: Params, encoding: str) -> str:
    if p.offset != 1 and _measure_length(file) <= _MAX_LOADED_BYTES:
        file = _hide_keys(file)
    begin = file.tell()
    first = max(p.offset, 1)
    if p.offset < 0:
        first = max(_skip_lines(file, None) + p.offset + 1, 1)
        file.seek(begin)
    passed = _skip_lines(file, first - 1)
    rows, cut = _take_lines(file, first, p.limit)
    if passed < first - 1 or (not rows and first > 1):
        return f"[nothing at line {first}: the file has {passed} lines]"
    if not rows:
        return "[empty file]"
    notes = [encoding] if encoding else []
    text, latin = _decode_rows(rows)
    cut.update(number for number, row in enumerate(text, first) if len(row) > MAX_LINE_CHARS)
    if cut:
        notes.append(_describe_cut_lines(sorted(cut)))
    if latin:
        notes.append("not UTF-8, read as Latin-1")
    if any(row.endswith("\r") for row in text):
        all_do = all(row.endswith("\r") for row in text[:-1])  # the last may be unfinished
        notes.append("lines end in CRLF" if all_do else "some lines end in CRLF")
    shown = [f"{n}|{row.removesuffix(_CR)[:MAX_LINE_CHARS]}" for n, row in enumerate(text, first)]
    last = first + len(shown) - 1
    if file.read(1):
        file.seek(begin)
        of = f" of {_skip_lines(file, None)}" if _measure_length(file) <= _MAX_LOADED_BYTES else ""
        notes.append(f"lines {first}-{last}{of}; continue with offset={last + 1}")
    if notes:
        shown.append(f"[{'; '.join(notes)}]")
    return "\n".join(shown)


def _hide_keys(file: BinaryIO) -> BinaryIO:
    """The file without the lines of private keys: alone they do not look like a part of one."""
    begin = file.tell()
    data = file.read()
    if b"PRIVATE KEY" in data:
        return io.BytesIO(
            _KEY_ROWS.sub(lambda key: key[1] + re.sub(rb"[^\r\n]+", _KEY_MARK, key[2]), data)
        )
    file.seek(begin)
    return file


def _take_lines(file: BinaryIO, first: int, limit: int) -> tuple[list[bytes], set[int]]:
    """Up to `limit` lines as far as they fit, and the numbers of those that were cut."""
    rows: list[bytes] = []
    cut: set[int] = set()
    room = MAX_RESULT_BYTES
    while len(rows) < limit:
        begin = file.tell()
        row = file.readline(_MAX_LINE_BYTES)
        room -= min(len(row), _MAX_LINE_BYTES) + len(str(first + len(rows))) + 1
        if not row or (room < 0 and rows):
            file.seek(begin)
            break
        if len(row) == _MAX_LINE_BYTES and not row.endswith(b"\n"):
            cut.add(first + len(rows))
            _skip_lines(file, 1)
        rows.append(row.removesuffix(b"\n"))
    return rows, cut


def _describe_cut_lines(numbers: list[int]) -> str:
    named = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
    if len(numbers) == 1:
        return f"line {named} is too long and cut here"
    return f"lines {named} are too long and cut here"


def _skip_lines(file: BinaryIO, lines: int | None) -> int:
    """Move past this many lines (None: all); returns how many there were."""
    passed = 0
    begins = True
    while lines is None or passed < lines:
        at = file.tell()
        if at > _MAX_OFFSET:
            raise ToolError("That line is too far into a large file; use terminal (tail, sed -n).")
        block = file.read(_BLOCK_SIZE)
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


def _measure_length(file: BinaryIO) -> int:
    position = file.tell()
    try:
        end = file.seek(0, os.SEEK_END)
    except OSError:  # a kernel file without an end
        return _MAX_LOADED_BYTES + 1
    file.seek(position)
    return end


def _decode_rows(rows: list[bytes]) -> tuple[list[str], bool]:
    """The rows as text, and whether they are Latin-1. A cut row may end inside a character."""
    try:
        return [_drop_cut_character(row).decode() for row in rows], False
    except UnicodeDecodeError:
        return [row.decode("latin-1") for row in rows], True


def _drop_cut_character(row: bytes) -> bytes:
    if len(row) < _MAX_LINE_BYTES:
        return row
    end = next((at for at in range(1, 4) if row[-at] & 0xC0 == 0xC0), 0)
    return row[:-end] if end else row

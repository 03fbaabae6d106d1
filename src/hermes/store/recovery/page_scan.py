"""Reads the rows of a damaged database page by page, without its schema and its trees."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from hermes.store.connection import database_files

if TYPE_CHECKING:
    from apsw import VFSFile

Value: TypeAlias = int | float | str | bytes | None
_HEADER = 100
_DEFAULT_PAGE = 4096
_WAL_HEADER, _FRAME_HEADER = 32, 24
_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR = 0x0D, 0x0A, 0x02
_INTEGER_SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_MAX_ROW = 1 << 30


class FoundRow(Struct, frozen=True):
    """A row of an unknown table; `rowid` is None in a table without rowids."""

    rowid: int | None
    values: tuple[Value, ...]


class PageScan:
    """The pages of a file and of the committed part of its WAL. They are read through SQLite's
    file layer, because any other close of the file would drop the locks of this process."""

    def __init__(self, path: Path) -> None:
        import apsw

        self._stack = ExitStack()
        main, wal, *_ = database_files(path)
        self._main = self._open_file(main, apsw.SQLITE_OPEN_MAIN_DB)
        header = self._main.xRead(_HEADER, 0) if self._main.xFileSize() >= _HEADER else b""
        self._page_size = _read_page_size(header)
        self._main_pages = self._main.xFileSize() // self._page_size
        self._wal = self._open_file(wal, apsw.SQLITE_OPEN_WAL) if wal.exists() else None
        self._frames = self._index_frames()
        """Page number -> offset of its newest committed content in the WAL."""
        self._page_count = max([self._main_pages, *self._frames])
        self._free_pages: set[int] = set()
        self.has_sound_freelist = self._follow_freelist()
        """Whether every page that holds nothing but deleted rows is known."""

    def close(self) -> None:
        self._stack.close()

    def read_rows(self) -> Iterator[FoundRow]:
        """Every whole row of every page that is in use, in no particular order."""
        for number in range(1, self._page_count + 1):
            if number not in self._free_pages:
                yield from self._read_page_rows(number)

    def _open_file(self, path: Path, kind: int) -> VFSFile:
        import apsw

        file = apsw.VFSFile("", str(path.absolute()), [kind | apsw.SQLITE_OPEN_READONLY, 0])
        self._stack.callback(file.xClose)
        return file

    def _read_page(self, number: int) -> bytes:
        if (offset := self._frames.get(number)) is not None and self._wal is not None:
            return self._wal.xRead(self._page_size, offset)
        if not 0 < number <= self._main_pages:
            return b""
        return self._main.xRead(self._page_size, (number - 1) * self._page_size)

    def _index_frames(self) -> dict[int, int]:
        if self._wal is None or self._wal.xFileSize() < _WAL_HEADER:
            return {}
        size, salts = self._wal.xFileSize(), self._wal.xRead(8, 16)
        committed: dict[int, int] = {}
        pending: dict[int, int] = {}
        for offset in range(_WAL_HEADER, size - self._page_size, _FRAME_HEADER + self._page_size):
            number, page_count = struct.unpack(">II", self._wal.xRead(8, offset))
            if self._wal.xRead(8, offset + 8) != salts:
                break  # left over from before the last checkpoint
            pending[number] = offset + _FRAME_HEADER
            if page_count:
                committed |= pending
                pending = {}
        return committed

    def _follow_freelist(self) -> bool:
        first = self._read_page(1)
        if len(first) < _HEADER or not first.startswith(b"SQLite format 3\0"):
            return False
        trunk, total = struct.unpack(">II", first[32:40])
        while trunk and trunk not in self._free_pages and (page := self._read_page(trunk)):
            self._free_pages.add(trunk)
            trunk, count = struct.unpack(">II", page[:8])
            if count > self._page_size // 4 - 2:
                return False
            self._free_pages.update(struct.unpack(f">{count}I", page[8 : 8 + 4 * count]))
        return bool(len(self._free_pages) == total)

    def _read_page_rows(self, number: int) -> Iterator[FoundRow]:
        page = self._read_page(number)
        start = _HEADER if number == 1 else 0
        kind = page[start] if len(page) > start + 8 else 0
        if kind not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR):
            return
        cells = start + (12 if kind == _INDEX_INTERIOR else 8)
        count = int.from_bytes(page[start + 3 : start + 5], "big")
        for at in range(cells, min(cells + 2 * count, len(page) - 1), 2):
            try:
                yield self._read_cell(page, int.from_bytes(page[at : at + 2], "big"), kind)
            except (ValueError, IndexError, KeyError, struct.error):
                continue  # this cell is damaged

    def _read_cell(self, page: bytes, at: int, kind: int) -> FoundRow:
        if kind == _INDEX_INTERIOR:
            at += 4
        size, at = _read_varint(page, at)
        rowid = None
        if kind == _TABLE_LEAF:
            rowid, at = _read_varint(page, at)
            most_local = self._page_size - 35
        else:
            most_local = (self._page_size - 12) * 64 // 255 - 23
        if size > _MAX_ROW:
            raise ValueError("no row is that large")
        return FoundRow(
            rowid, tuple(_decode_record(self._read_payload(page, at, size, most_local)))
        )

    def _read_payload(self, page: bytes, at: int, size: int, most_local: int) -> bytes:
        """The content of a cell, with what lies in its chain of overflow pages."""
        if size <= most_local:
            local = size
        else:
            least = (self._page_size - 12) * 32 // 255 - 23
            local = least + (size - least) % (self._page_size - 4)
            local = local if local <= most_local else least
        pieces, rest = [page[at : at + local]], size - local
        following = int.from_bytes(page[at + local : at + local + 4], "big") if rest else 0
        while rest > 0:
            more = self._read_page(following)
            if len(more) < self._page_size or following in self._free_pages:
                raise ValueError("the rest of the row is gone")
            pieces.append(more[4 : 4 + rest])
            rest -= self._page_size - 4
            following = int.from_bytes(more[:4], "big")
        payload = b"".join(pieces)
        if len(payload) != size:
            raise ValueError("the row is cut")
        return payload


def _read_page_size(header: bytes) -> int:
    size = int.from_bytes(header[16:18], "big")
    size = 65536 if size == 1 else size
    is_possible = size >= 512 and size & (size - 1) == 0
    return size if header.startswith(b"SQLite format 3\0") and is_possible else _DEFAULT_PAGE


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(9):
        byte = data[at + index]
        if index == 8:
            value = value << 8 | byte
            return value - (1 << 64) if value >> 63 else value, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    raise AssertionError("nine bytes are the longest")


def _decode_record(data: bytes) -> Iterator[Value]:
    header_size, at = _read_varint(data, 0)
    body = header_size
    while at < header_size:
        kind, at = _read_varint(data, at)
        value, body = _decode_value(data, body, kind)
        yield value
    if at != header_size or body != len(data):
        raise ValueError("the header of the row is damaged")


def _decode_value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind >= 12:
        end = at + (kind - 12) // 2
        return (data[at:end].decode() if kind % 2 else data[at:end]), end
    if kind == 7:
        return struct.unpack(">d", data[at : at + 8])[0], at + 8
    if kind in (0, 8, 9):
        return {0: None, 8: 0, 9: 1}[kind], at
    end = at + _INTEGER_SIZES[kind]
    return int.from_bytes(data[at:end], "big", signed=True), end

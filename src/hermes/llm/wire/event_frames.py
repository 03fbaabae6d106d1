"""The binary frames of an AWS event stream."""

import struct
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

from hermes.core.errors import Failure, Kind, ProviderError

_PRELUDE = struct.Struct(">III")
"""Length of the frame, length of its headers, checksum of these two."""
_CHECKSUM_SIZE = 4
_MAX_FRAME = 24 * 1024 * 1024
_FIXED_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Header type -> bytes of its value: booleans, integers, a time, a UUID."""
_BYTES, _STRING = 6, 7


class FrameParser:
    """Parses the frames of an event stream, however the bytes are cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Mapping[str, Any], bytes]]:
        """(headers, payload) of each frame that `data` completes."""
        self._buffer += data
        while len(self._buffer) >= _PRELUDE.size:
            size, header_size, checksum = _PRELUDE.unpack_from(self._buffer)
            if crc32(self._buffer[: _PRELUDE.size - _CHECKSUM_SIZE]) != checksum:
                raise _damage_error("the checksum of a frame's length is wrong")
            end = size - _CHECKSUM_SIZE
            if size > _MAX_FRAME or _PRELUDE.size + header_size > end:
                raise _damage_error(f"a frame of {size} bytes is impossible")
            if len(self._buffer) < size:
                return
            frame = bytes(self._buffer[:size])
            del self._buffer[:size]
            if crc32(frame[:end]) != int.from_bytes(frame[end:], "big"):
                raise _damage_error("the checksum of a frame is wrong")
            start = _PRELUDE.size + header_size
            yield _parse_headers(frame[_PRELUDE.size : start]), frame[start:end]


def _parse_headers(data: bytes) -> dict[str, Any]:
    """Texts and byte strings; the values of other types are raw bytes."""
    headers: dict[str, Any] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name, kind = data[at + 1 : name_end].decode(), data[name_end]
            at = name_end + 1
            if kind in (_BYTES, _STRING):
                size = int.from_bytes(data[at : at + 2], "big")
                at += 2
            else:
                size = _FIXED_SIZES[kind]
            value = data[at : at + size]
            headers[name] = value.decode() if kind == _STRING else value
            at += size
    except (IndexError, KeyError, UnicodeDecodeError):
        raise _damage_error("the headers of a frame cannot be read") from None
    return headers


def _damage_error(why: str) -> ProviderError:
    return ProviderError(Failure(Kind.NETWORK, f"the stream is damaged: {why}"))

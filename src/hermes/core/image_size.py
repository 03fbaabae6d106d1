"""The size of an image once decoded, read from its header alone."""

MOST_PIXELS = 100_000_000
"""A few kilobytes can claim more and exhaust the memory of a decoder."""
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""JPEG markers that are followed by a size."""


def is_oversized(data: bytes) -> bool:
    """Whether it claims too many pixels; a header that does not say counts as none."""
    width, height = _read_size(data)
    return width * height > MOST_PIXELS


def _read_size(data: bytes) -> tuple[int, int]:
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        return _big_endian(data[16:20]), _big_endian(data[20:24])
    if data.startswith(b"GIF8"):
        return _little_endian(data[6:8]), _little_endian(data[8:10])
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _read_webp_size(data[12:16], data[20:30])
    if data.startswith(b"\xff\xd8"):
        return _read_jpeg_size(data)
    return 0, 0


def _read_webp_size(kind: bytes, head: bytes) -> tuple[int, int]:
    if kind == b"VP8X":
        return _little_endian(head[4:7]) + 1, _little_endian(head[7:10]) + 1
    if kind == b"VP8L":
        bits = _little_endian(head[1:5])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return _little_endian(head[6:8]) & 0x3FFF, _little_endian(head[8:10]) & 0x3FFF


def _read_jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _FRAMES:
            return _big_endian(data[at + 7 : at + 9]), _big_endian(data[at + 5 : at + 7])
        # Markers without content, and bytes that only fill.
        at += 1 if marker == 0xFF else 2
        if marker not in (0x01, 0xFF) and not 0xD0 <= marker <= 0xD8:
            at += max(_big_endian(data[at : at + 2]), 2)
    return 0, 0


def _big_endian(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _little_endian(raw: bytes) -> int:
    return int.from_bytes(raw, "little")

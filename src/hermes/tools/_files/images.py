"""Which pictures models take: told by their first bytes, not by their names."""

from __future__ import annotations

MAX_IMAGE_BYTES = 3_900_000
"""Bytes; what is larger is refused by providers once it is base64."""
_TYPES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}


def detect_image_type(start: bytes) -> str:
    """Of content that begins like this; empty: none that a model would take."""
    mime = next((mime for magic, mime in _TYPES.items() if start.startswith(magic)), "")
    return "" if mime == "image/webp" and start[8:12] != b"WEBP" else mime

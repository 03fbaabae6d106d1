"""Detects images that models accept by their first bytes, not by their names."""

from __future__ import annotations

MAX_IMAGE_BYTES = 3_900_000
"""Providers reject larger images once they are base64."""
_TYPES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}


def detect_image_type(start: bytes) -> str:
    """The MIME type of content that begins like this; empty: no image that models accept."""
    mime = next((mime for magic, mime in _TYPES.items() if start.startswith(magic)), "")
    return "" if mime == "image/webp" and start[8:12] != b"WEBP" else mime

"""AWS event-stream frames, written by hand so that the product's reader has an independent peer."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One frame: prelude (total, headers length, CRC), string headers, payload, CRC."""
    head = b"".join(
        struct.pack(">B", len(name.encode()))
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value.encode()))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", 12 + len(head) + len(payload) + 4, len(head))
    start = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return start + struct.pack(">I", zlib.crc32(start))


def event(kind: str, payload: dict[str, Any]) -> bytes:
    headers = {
        ":event-type": kind,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    return frame(headers, json.dumps({**payload, "p": "abcdefghij"}).encode())


def exception(kind: str, message: str) -> bytes:
    headers = {
        ":exception-type": kind,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return frame(headers, json.dumps({"message": message}).encode())

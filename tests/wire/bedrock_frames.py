"""Frames of Bedrock's wire."""

from __future__ import annotations

import struct
from binascii import crc32
from typing import Any

import orjson

WIRE = "bedrock"
SEEDS = range(5)


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One message of an AWS event stream, as the format is documented."""
    packed = b""
    for name, value in headers.items():
        raw = value.encode()
        packed += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(raw)) + raw
    return pack_frame(packed, payload)


def pack_frame(packed: bytes, payload: bytes) -> bytes:
    prelude = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    prelude += struct.pack(">I", crc32(prelude))
    message = prelude + packed + payload
    return message + struct.pack(">I", crc32(message))


def event(kind: str, **payload: Any) -> bytes:
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, orjson.dumps({**payload, "p": "abcdef"}))


def delta(index: int, **inner: Any) -> bytes:
    return event("contentBlockDelta", contentBlockIndex=index, delta=inner)


def begin(index: int, **inner: Any) -> bytes:
    return event("contentBlockStart", contentBlockIndex=index, start=inner)


def stop(index: int) -> bytes:
    return event("contentBlockStop", contentBlockIndex=index)


def ends(reason: str = "end_turn", **usage: int) -> bytes:
    return event("messageStop", stopReason=reason) + event("metadata", usage=usage)


def plain(*content: Any, reason: str = "end_turn", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": list(content)}
    return {"output": {"message": message}, "stopReason": reason, **more}

"""Frames of Anthropic's wire."""

from __future__ import annotations

from typing import Any

import orjson

WIRE = "anthropic"
SEEDS = range(5)


def sse(*events: dict[str, Any], end: bytes = b"\n") -> bytes:
    out = b""
    for event in events:
        out += b"event: %s%sdata: " % (event["type"].encode(), end) + orjson.dumps(event) + end * 2
    return out


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, type: str, **more: Any) -> dict[str, Any]:
    inner = {"type": type, **more}
    return {"type": "content_block_delta", "index": index, "delta": inner}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ends(reason: str | None = "end_turn", **usage: Any) -> list[dict[str, Any]]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    ]


BEGIN = {
    "type": "message_start",
    "message": {
        "type": "message",
        "content": [],
        "usage": {
            "input_tokens": 10,
            "output_tokens": 1,
            "cache_read_input_tokens": 5,
            "cache_creation_input_tokens": 2,
        },
    },
}
PING = {"type": "ping"}

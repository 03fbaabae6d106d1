"""Frames of Google's wire."""

from __future__ import annotations

from typing import Any

import orjson

WIRE = "gemini"
SEEDS = range(5)


def chunk(
    *parts: Any, reason: str = "", message: str = "", usage: dict[str, int] | None = None
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": list(parts)}
    if reason:
        candidate["finishReason"] = reason
    if message:
        candidate["finishMessage"] = message
    out: dict[str, Any] = {"candidates": [candidate]}
    if usage:
        out["usageMetadata"] = usage
    return out


def sse(*chunks: Any, end: bytes = b"\r\n") -> bytes:
    return b"".join(b"data: " + orjson.dumps(c) + end * 2 for c in chunks)


def call(name: str = "read", **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {"path": "é"}, **more}}

"""JSON as providers really send it and as every provider accepts it."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import orjson

from hermes.core.text import clean

__all__ = ["clean", "dumps", "loads", "text"]

_decode = msgspec.json.decode


def loads(data: bytes | str) -> Any:
    """Parse; ValueError when it is no JSON at all. Lone surrogates and bytes that are no UTF-8
    become U+FFFD, NaN and infinities null, raw control characters in strings are let through."""
    try:
        # Not orjson: it turns integers beyond 64 bits into floats without a word.
        return _decode(data)
    except (ValueError, RecursionError):
        return _lenient(data)


def dumps(value: Any) -> bytes:
    """Serialise to what every wire takes: no lone surrogate, no NUL, no NaN."""
    try:
        out = orjson.dumps(value)
        return out if b"\\u0000" not in out else orjson.dumps(_clean(value))
    except (TypeError, RecursionError):
        return json.dumps(_clean(value), ensure_ascii=False, separators=(",", ":")).encode()


def text(value: Any) -> str:
    """A value that should have been a string: objects are written out, null is empty."""
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value).decode()


def _lenient(data: bytes | str) -> Any:
    if isinstance(data, bytes):
        data = data.decode("utf-8-sig", "replace")
    try:
        return _clean(json.loads(data, strict=False, parse_constant=_nothing))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _nothing(_constant: str) -> None:
    """What NaN and the infinities are read as."""


def _clean(value: Any) -> Any:
    match value:
        case str():
            return clean(value)
        case dict():
            return {clean(str(k)): _clean(v) for k, v in value.items()}
        case list() | tuple():
            return [_clean(v) for v in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value

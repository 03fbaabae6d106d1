"""Decodes JSON as providers really send it, and encodes it as every provider accepts it."""

import json
import math
from typing import Any

import msgspec
import orjson

from hermes.core.text import clean_value


def decode_json(data: bytes | str) -> Any:
    """The value; ValueError when it is no JSON at all. Lone surrogates and invalid UTF-8 become
    U+FFFD, NaN and infinities become null, raw control characters in strings are accepted."""
    try:
        # Not orjson: it silently turns integers beyond 64 bits into floats.
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        pass
    if isinstance(data, bytes):
        data = data.decode("utf-8-sig", "replace")
    try:
        value = json.loads(data, strict=False, parse_constant=lambda _constant: None)
        return clean_value(value, _clean_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode_json(value: Any) -> bytes:
    """The JSON without lone surrogates, NUL and NaN."""
    try:
        out = orjson.dumps(value)
        return out if b"\\u0000" not in out else orjson.dumps(clean_value(value, _clean_number))
    except (TypeError, RecursionError):
        clean = clean_value(value, _clean_number)
        return json.dumps(clean, ensure_ascii=False, separators=(",", ":")).encode()


def is_object(text: str) -> bool:
    """Whether the text is a complete JSON object."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (ValueError, RecursionError):
        return False


def to_text(value: Any) -> str:
    """The text of a value that should be a string: objects as JSON, null as empty."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode_json(value).decode()


def _clean_number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value

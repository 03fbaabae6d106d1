"""Decodes JSON as providers really send it, and encodes it as every provider accepts it."""

import json
import math
from typing import Any

import msgspec
import orjson

from hermes.core.text import replace_invalid


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
        return _clean_value(json.loads(data, strict=False, parse_constant=lambda _constant: None))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode_json(value: Any) -> bytes:
    """The JSON without lone surrogates, NUL and NaN."""
    try:
        out = orjson.dumps(value)
        return out if b"\\u0000" not in out else orjson.dumps(_clean_value(value))
    except (TypeError, RecursionError):
        return json.dumps(_clean_value(value), ensure_ascii=False, separators=(",", ":")).encode()


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


def _clean_value(value: Any) -> Any:
    match value:
        case str():
            return replace_invalid(value)
        case dict():
            return {replace_invalid(str(k)): _clean_value(v) for k, v in value.items()}
        case list() | tuple():
            return [_clean_value(v) for v in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value

"""Reads what services send: JSON, also with halves of characters, and secrets in headers."""

import hmac
import json
from typing import Any

import msgspec

MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a payload raises that is not what its service describes."""
_LARGEST_NUMBER = 2.0**53


def decode_json(body: bytes) -> Any:
    """The value of a JSON text; ValueError when it is none. Half a surrogate pair, which programs
    cut out of an emoji, becomes a question mark."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        whole = json.dumps(json.loads(body), ensure_ascii=False, allow_nan=False)
        return msgspec.json.decode(whole.encode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def decode_object(body: bytes) -> dict[str, Any]:
    """The same for an object; ValueError for anything else."""
    found = decode_json(body)
    if not isinstance(found, dict):
        raise ValueError("the JSON is no object")
    return found


def read_number(value: Any) -> float:
    """A size or a time of a payload, also one that is written as text; 0 for what is none."""
    try:
        number = float(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if 0 <= number <= _LARGEST_NUMBER else 0.0


def is_same_secret(given: str, expected: str) -> bool:
    """Whether they are equal, in a time that does not depend on where they differ. What was given
    may hold any bytes."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())

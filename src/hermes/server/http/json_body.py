"""JSON bodies: decoding into Structs with limits on size and depth, and encoding."""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import orjson
from msgspec import Struct

from hermes.server.http.errors import ApiError, bad_request

T = TypeVar("T", bound=Struct)
MAX_DEPTH = 64
_MAX_CONTAINERS = 200_000
_MAX_VALUES = 1_000_000
_CHECKED_FROM_BYTES = 256 * 1024
_DUPLICATES_UP_TO_BYTES = 64 * 1024
"""Larger bodies are not searched for duplicate keys: the search is slow."""
_SYNTAX_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_SCALARS = frozenset({str, bool, float, type(None)})


def encode_json(value: Any) -> bytes:
    """Encode plain data, with Structs anywhere in it."""
    return orjson.dumps(value, default=msgspec.to_builtins)


def decode_json(raw: bytes, kind: type[T]) -> T:
    """Decode a body into a Struct; a 400 says what is wrong with it."""
    if not raw.strip():
        raise bad_request("Invalid JSON: the body is empty.")
    if len(raw) > _CHECKED_FROM_BYTES:
        _check_value_count(raw)
    try:
        value = msgspec.json.decode(raw, type=kind)
        _check_depth(value)
        if len(raw) <= _DUPLICATES_UP_TO_BYTES:
            _check_duplicate_keys(raw)
    except msgspec.ValidationError as error:
        _check_syntax(raw)
        raise bad_request(*_describe_validation_error(str(error))) from None
    except _SYNTAX_ERRORS as error:
        raise _syntax_error(error) from None
    return value


def _check_syntax(raw: bytes) -> None:
    """Report invalid JSON as such, even if a wrong shape was found first."""
    try:
        msgspec.json.decode(raw)
    except _SYNTAX_ERRORS as error:
        raise _syntax_error(error) from None


def _syntax_error(error: Exception) -> ApiError:
    reason = "nested too deeply" if isinstance(error, RecursionError) else error
    return bad_request(f"Invalid JSON: {reason}.")


def _check_value_count(raw: bytes) -> None:
    """Limit the values before decoding: three bytes of JSON can take a hundred in memory."""
    containers = raw.count(b"{") + raw.count(b"[")
    if containers > _MAX_CONTAINERS or containers + raw.count(b",") > _MAX_VALUES:
        raise bad_request("Invalid JSON: too many values.")


def _check_depth(value: Struct) -> None:
    """Reject values that could not be encoded again: nested too deeply, or with huge integers."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        children = (child for parent in level for child in _list_children(parent))
        level = [child for child in children if type(child) not in _SCALARS]
        if not level:
            return
    raise bad_request("Invalid JSON: nested too deeply.")


def _list_children(value: Any) -> Iterable[Any]:
    match value:
        case list():
            return value
        case dict():
            return value.values()
        case Struct():
            return msgspec.structs.astuple(value)
        case int() if value.bit_length() > 63:
            raise bad_request("Invalid JSON: a number is too large.")
        case _:
            return ()


def _check_duplicate_keys(raw: bytes) -> None:
    """Reject duplicate keys: two programs could read such a body differently."""
    import json

    def check_object(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise bad_request(f"Invalid JSON: duplicate key {name[:80]!r}.")
            seen.add(name)

    try:
        json.loads(raw, object_pairs_hook=check_object)
    except ValueError as error:
        raise bad_request(f"Invalid JSON: {error}.") from None


def _describe_validation_error(error: str) -> tuple[str, str | None]:
    """A validation error as a sentence, and the parameter it is about; None: the whole body."""
    message, _, path = error.partition(" - at ")
    param = path.strip("`").removeprefix("$").removeprefix(".")
    if not param and message.startswith("Object missing required field"):
        param = message.rpartition("`")[0].rpartition("`")[2]
        return f"{param} is required.", param
    if param:
        return f"{param}: {message}.", param
    return f"The body has the wrong shape: {message}.", None


def parse_flag(value: bool | str | None, name: str, *, default: bool = False) -> bool:
    """Read a JSON boolean, or the string that some clients send for it."""
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    word = value.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    raise bad_request(f"{name} must be true or false.", name)

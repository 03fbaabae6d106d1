"""`--output-schema FILE`: answers checked against a JSON Schema of the user's."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from hermes.app.structured_output import OutputFormat
from hermes.core.errors import ConfigError
from hermes.server.requests.json_schema import find_mismatch

_TYPE_NAMES = ("object", "array", "string", "number", "integer", "boolean", "null")
_NUMBER = (int, float)
_SCHEMA = (dict, bool)
_KINDS: dict[str, tuple[type, ...]] = {
    "type": (str, list), "enum": (list,), "pattern": (str,), "$ref": (str,), "required": (list,),
    "allOf": (list,), "anyOf": (list,), "oneOf": (list,), "prefixItems": (list,),
    "properties": (dict,), "patternProperties": (dict,), "$defs": (dict,), "definitions": (dict,),
    "items": _SCHEMA, "additionalProperties": _SCHEMA, "propertyNames": _SCHEMA, "not": _SCHEMA,
    "if": _SCHEMA, "then": _SCHEMA, "else": _SCHEMA, "contains": _SCHEMA,
    "minimum": _NUMBER, "maximum": _NUMBER, "exclusiveMinimum": _NUMBER,
    "exclusiveMaximum": _NUMBER, "multipleOf": _NUMBER,
    "minLength": (int,), "maxLength": (int,), "minItems": (int,), "maxItems": (int,),
    "minProperties": (int,), "maxProperties": (int,), "uniqueItems": (bool,),
}  # fmt: skip
_WORDS = {str: "a text", list: "a list", dict: "an object", bool: "true or false", int: "a number"}
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")


def load_format(file: str) -> OutputFormat[Any]:
    """The format that a schema file describes; ConfigError when it is none."""
    try:
        schema = msgspec.json.decode(Path(file).expanduser().read_bytes())
    except OSError as error:
        raise ConfigError(f"--output-schema: cannot read {file}: {error.strerror}.") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"--output-schema: {file} is not JSON: {error}.") from None
    if not isinstance(schema, dict):
        raise ConfigError(f"--output-schema: {file} is not a JSON Schema: it must be an object.")
    if problem := next(_list_mistakes(schema, "$"), ""):
        raise ConfigError(f"--output-schema: {file} is not a JSON Schema: {problem}.")
    return OutputFormat(schema, partial(_decode_checked, schema))


def _decode_checked(schema: dict[str, Any], text: str) -> Any:
    value = msgspec.json.decode(text)
    if problem := find_mismatch(value, schema):
        raise msgspec.ValidationError(problem.removesuffix("."))
    return value


def _list_mistakes(schema: Any, path: str) -> Iterator[str]:
    """What makes a schema mean nothing, so that any answer would fit it."""
    if not isinstance(schema, dict):
        return
    for keyword in (name for name in _KINDS if name in schema):
        value, kinds, place = schema[keyword], _KINDS[keyword], f"{path}.{keyword}"
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            yield f"{place} must be {' or '.join(_WORDS[kind] for kind in kinds if kind in _WORDS)}"
        elif keyword == "type":
            for name in value if isinstance(value, list) else [value]:
                if name not in _TYPE_NAMES:
                    yield f"{place} must be one of {', '.join(_TYPE_NAMES)}, not {name!r}"
        elif keyword == "pattern":
            yield from _list_pattern_mistakes(str(value), place)
        else:
            for part, where in _list_parts(keyword, value):
                yield from _list_mistakes(part, f"{place}{where}")


def _list_pattern_mistakes(pattern: str, place: str) -> Iterator[str]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield f"{place} is no regular expression: {error}"


def _list_parts(keyword: str, value: Any) -> Iterator[tuple[Any, str]]:
    """The schemas in the value of a keyword, and where in it."""
    if _KINDS[keyword] == _SCHEMA:
        yield value, ""
    elif keyword in _BY_NAME:
        yield from ((part, f".{name}") for name, part in value.items())
    elif keyword in _LISTS:
        yield from ((part, f"[{number}]") for number, part in enumerate(value))

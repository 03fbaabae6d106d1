"""`--output-schema FILE`: answers checked against a JSON Schema of the user's."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from hermes.app.structured_output import OutputFormat
from hermes.core.errors import ConfigError

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool)
        and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
}
_LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("is below", lambda value, limit: value < limit),
    "maximum": ("is above", lambda value, limit: value > limit),
    "exclusiveMinimum": ("is not above", lambda value, limit: value <= limit),
    "exclusiveMaximum": ("is not below", lambda value, limit: value >= limit),
}
_SIZES: dict[str, tuple[type[Any], int]] = {
    "minLength": (str, -1), "maxLength": (str, 1), "minItems": (list, -1), "maxItems": (list, 1),
    "minProperties": (dict, -1), "maxProperties": (dict, 1),
}  # fmt: skip
_MAX_DEPTH = 60


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
    return OutputFormat(schema, partial(_decode_checked, schema))


def _decode_checked(schema: dict[str, Any], text: str) -> Any:
    value = msgspec.json.decode(text)
    if problem := next(find_problems(value, schema, schema), ""):
        raise msgspec.ValidationError(problem)
    return value


def find_problems(
    value: Any, schema: Any, root: Any, path: str = "$", depth: int = 0
) -> Iterator[str]:
    """What does not fit the schema, in words. Keywords that are not known are not checked."""
    if schema is False:
        yield f"{path} is not allowed"
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    check = partial(find_problems, root=root, depth=depth + 1)
    if isinstance(ref := schema.get("$ref"), str) and ref.startswith("#"):
        yield from check(value, _resolve_reference(root, ref), path=path)
    types = schema.get("type", [])
    types = types if isinstance(types, list) else [types]
    if types and not any(_TYPES.get(name, lambda _: True)(value) for name in types):
        yield f"{path} is not of type {' or '.join(map(str, types))}"
        return
    yield from _check_alternatives(value, schema, check, path)
    if isinstance(value, dict):
        yield from _check_object(value, schema, check, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from check(item, schema.get("items", True), path=f"{path}[{index}]")
    yield from _check_limits(value, schema, path)


def _check_alternatives(value: Any, schema: dict[str, Any], check: Any, path: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path} is not one of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{path} is not {schema['const']!r}"
    for part in schema.get("allOf", ()):
        yield from check(value, part, path=path)
    for keyword in ("anyOf", "oneOf"):
        parts = schema.get(keyword, ())
        fitting = sum(not any(check(value, part, path=path)) for part in parts)
        if parts and (not fitting or (keyword == "oneOf" and fitting > 1)):
            yield f"{path} fits {'more than one' if fitting else 'none'} of the alternatives"


def _check_object(
    value: dict[str, Any], schema: dict[str, Any], check: Any, path: str
) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path} has no {name!r}"
    for name, item in value.items():
        known = properties.get(name, schema.get("additionalProperties", True))
        yield from check(item, known, path=f"{path}.{name}")


def _check_limits(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        for keyword, (words, exceeds) in _LIMITS.items():
            if keyword in schema and exceeds(value, schema[keyword]):
                yield f"{path} {words} {schema[keyword]}"
    for keyword, (kind, sign) in _SIZES.items():
        counts = keyword in schema and isinstance(value, kind)
        if counts and (len(value) - schema[keyword]) * sign > 0:
            yield f"{path} breaks {keyword} {schema[keyword]}"
    pattern = schema.get("pattern")
    if isinstance(value, str) and isinstance(pattern, str) and not re.search(pattern, value):
        yield f"{path} does not match {pattern}"


def _resolve_reference(root: Any, reference: str) -> Any:
    """The part of the schema that a reference names; anything fits what does not exist."""
    found = root
    for word in reference.removeprefix("#").strip("/").split("/"):
        name = word.replace("~1", "/").replace("~0", "~")
        if name and isinstance(found, dict):
            found = found.get(name, True)
    return found

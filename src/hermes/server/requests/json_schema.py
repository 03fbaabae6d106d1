"""Checks a value against a JSON Schema, as far as structured output uses it."""

import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import orjson

_MAX_DEPTH = 64
_MAX_CHECKS = 50_000
"""A schema whose branches refer to itself can multiply without end."""
_SLOW_PATTERN = re.compile(r"\)\s*[*+{]|.{200}", re.DOTALL)
"""A repeated group can take for ever to match; such patterns are not checked."""
_MAX_PATTERN_STEPS = 1_000_000
_ATOM = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""An escaped character or a class of characters."""
_CHOICE = re.compile(r"[*+?|]|\{(\d*),?(\d*)\}")
"""What a pattern can match in more than one way."""
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def find_mismatch(value: Any, schema: Any) -> str:
    """The first way in which the value does not fit the schema, as a sentence; empty: it fits."""
    checker = _SchemaChecker(schema)
    try:
        return next(checker.list_mismatches(value, schema, "the answer", _MAX_DEPTH), "")
    except _TooComplex:
        return "it takes too long to check against this schema."


class _TooComplex(Exception):
    pass


class _SchemaChecker:
    """Checks against one schema; `$ref` points into it."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._checks_left = _MAX_CHECKS

    def list_mismatches(self, value: Any, schema: Any, where: str, depth: int) -> Iterator[str]:
        if schema is False:
            yield f"{where} is not allowed."
        if not isinstance(schema, dict):
            return
        self._checks_left -= 1
        if self._checks_left < 0:
            raise _TooComplex
        if not depth:
            yield f"{where} is nested too deeply."
            return
        if isinstance(reference := schema.get("$ref"), str):
            yield from self.list_mismatches(value, self._resolve(reference), where, depth - 1)
        yield from _check_kind(value, schema, where)
        yield from self._check_branches(value, schema, where, depth - 1)
        match value:
            case dict():
                yield from self._check_object(value, schema, where, depth - 1)
            case list():
                yield from self._check_array(value, schema, where, depth - 1)
            case str():
                yield from _check_string(value, schema, where)
            case int() | float() if not isinstance(value, bool):
                yield from _check_number(value, schema, where)

    def _resolve(self, reference: str) -> Any:
        found = self._root
        for name in reference.removeprefix("#").split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def _fits(self, value: Any, schema: Any, depth: int) -> bool:
        return next(self.list_mismatches(value, schema, "", depth), None) is None

    def _check_branches(
        self, value: Any, schema: dict[str, Any], where: str, depth: int
    ) -> Iterator[str]:
        for branch in _as_list(schema.get("allOf")):
            yield from self.list_mismatches(value, branch, where, depth)
        for name in ("anyOf", "oneOf"):
            branches = _as_list(schema.get(name))
            fitting = sum(self._fits(value, branch, depth) for branch in branches)
            if branches and not fitting:
                yield f"{where} fits none of the allowed forms."
            elif name == "oneOf" and fitting > 1:
                yield f"{where} fits more than one form."
        if "not" in schema and self._fits(value, schema["not"], depth):
            yield f"{where} has a forbidden form."
        if "if" in schema:
            name = "then" if self._fits(value, schema["if"], depth) else "else"
            yield from self.list_mismatches(value, schema.get(name), where, depth)

    def _check_object(
        self, value: dict[str, Any], schema: dict[str, Any], where: str, depth: int
    ) -> Iterator[str]:
        yield from _check_bounds(
            len(value), schema, ("minProperties", "maxProperties"), where, "members"
        )
        required = [*_as_list(schema.get("required"))]
        for name, others in _as_dict(schema.get("dependentRequired")).items():
            required += _as_list(others) if name in value else []
        for name in required:
            if name not in value:
                yield f"{where} has no {name!r}."
        for name, part in value.items():
            if "propertyNames" in schema:
                place = f"the name {name!r} in {where}"
                yield from self.list_mismatches(name, schema["propertyNames"], place, depth)
            for part_schema in _find_member_schemas(name, schema):
                yield from self.list_mismatches(part, part_schema, f"{name!r} in {where}", depth)

    def _check_array(
        self, value: list[Any], schema: dict[str, Any], where: str, depth: int
    ) -> Iterator[str]:
        yield from _check_bounds(len(value), schema, ("minItems", "maxItems"), where, "entries")
        if schema.get("uniqueItems") is True and _has_repetition(value):
            yield f"{where} has the same entry twice."
        first = _as_list(schema.get("prefixItems"))
        for n, part in enumerate(value):
            part_schema = first[n] if n < len(first) else schema.get("items", True)
            yield from self.list_mismatches(part, part_schema, f"entry {n} of {where}", depth)
        if "contains" in schema:
            fitting = sum(self._fits(part, schema["contains"], depth) for part in value)
            bounds = {"minContains": 1, **schema}
            names = ("minContains", "maxContains")
            yield from _check_bounds(fitting, bounds, names, where, "entries of the required form")


def _find_member_schemas(name: str, schema: dict[str, Any]) -> list[Any]:
    """The schemas that hold for the member of this name."""
    properties = _as_dict(schema.get("properties"))
    found = [properties[name]] if name in properties else []
    by_pattern = _as_dict(schema.get("patternProperties"))
    found += [part for pattern, part in by_pattern.items() if _matches(pattern, name)]
    return found or [schema.get("additionalProperties", True)]


def _has_repetition(entries: list[Any]) -> bool:
    sorted_keys = orjson.OPT_SORT_KEYS
    return len({orjson.dumps(entry, option=sorted_keys) for entry in entries}) < len(entries)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _check_kind(value: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else _as_list(kinds)
    if kinds and not any(_has_type(value, kind) for kind in kinds):
        yield f"{where} must be of type {' or '.join(map(str, kinds))}."
    choices = schema.get("enum")
    if isinstance(choices, list) and not any(_equals(value, c) for c in choices):
        yield f"{where} must be one of {', '.join(map(repr, choices[:20]))}."
    if "const" in schema and not _equals(value, schema["const"]):
        yield f"{where} must be {schema['const']!r}."


def _has_type(value: Any, kind: Any) -> bool:
    if kind == "integer":
        is_whole = isinstance(value, float) and value.is_integer()
        return (isinstance(value, int) or is_whole) and not isinstance(value, bool)
    types = _TYPES.get(kind)
    if types is None:
        return True
    return isinstance(value, types) and (kind == "boolean" or not isinstance(value, bool))


def _equals(value: Any, other: Any) -> bool:
    """Whether two JSON values are equal; unlike in Python, true is not 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _check_string(value: str, schema: dict[str, Any], where: str) -> Iterator[str]:
    yield from _check_bounds(len(value), schema, ("minLength", "maxLength"), where, "characters")
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _matches(pattern, value):
        yield f"{where} must match {pattern!r}."


def _matches(pattern: str, text: str) -> bool:
    """True also where it cannot be checked."""
    if _may_take_long(pattern, len(text)):
        return True
    try:
        return re.search(pattern, text) is not None
    except (re.error, OverflowError):  # of another dialect
        return True


def _may_take_long(pattern: str, length: int) -> bool:
    """Whether the ways in which the pattern can match a text of this length are too many to try."""
    if _SLOW_PATTERN.search(pattern):
        return True
    ways = 1 if pattern.startswith("^") else length
    for choice in _CHOICE.finditer(_ATOM.sub("x", pattern)):
        least, most = choice.groups()
        match choice[0]:
            case "*" | "+":
                ways *= max(2, length)
            case "?" | "|":
                ways *= 2
            case _ if "," in choice[0]:
                ways *= max(1, (int(most) if most else length) - int(least or 0) + 1)
    return ways > _MAX_PATTERN_STEPS


def _check_bounds(
    count: int, schema: dict[str, Any], names: tuple[str, str], where: str, unit: str
) -> Iterator[str]:
    least, most = (schema.get(name) for name in names)
    if isinstance(least, int) and count < least:
        yield f"{where} must have at least {least} {unit}."
    if isinstance(most, int) and count > most:
        yield f"{where} must have at most {most} {unit}."


def _check_number(value: float, schema: dict[str, Any], where: str) -> Iterator[str]:
    for name, (words, fits) in _NUMBER_RULES.items():
        limit = schema.get(name)
        is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if is_number and not fits(value, limit):
            yield f"{where} must be {words} {limit}."


def _is_multiple(value: float, step: float) -> bool:
    share = value / step if step else 0.0
    if not math.isfinite(share):  # too large to tell
        return True
    return math.isclose(share, round(share), abs_tol=1e-9)


_NUMBER_RULES: dict[str, tuple[str, Callable[[float, Any], bool]]] = {
    "minimum": ("at least", operator.ge),
    "maximum": ("at most", operator.le),
    "exclusiveMinimum": ("more than", operator.gt),
    "exclusiveMaximum": ("less than", operator.lt),
    "multipleOf": ("a multiple of", _is_multiple),
}

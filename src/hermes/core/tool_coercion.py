"""Mends values that are not of the type a parameter has, where they can mean only one thing."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, inspect

from hermes.core.errors import ToolError
from hermes.core.tool_params import is_nothing, named

_KINDS: tuple[tuple[type[inspect.Type], str], ...] = (
    (inspect.StrType, "text"),
    (inspect.IntType, "a whole number"),
    (inspect.FloatType, "a number"),
    (inspect.BoolType, "true or false"),
    (inspect.ListType, "a list"),
    (inspect.StructType, "an object"),
    (inspect.DictType, "an object"),
)
_NAMES: dict[type, str] = {list: "a list", dict: "an object"}


def mended(given: dict[str, Any], params: type[Struct]) -> dict[str, Any]:
    """The same arguments with values of the right types. Raises ToolError."""
    return _object(given, params, "")


def _object(given: dict[str, Any], params: type[Struct], where: str) -> dict[str, Any]:
    info = inspect.type_info(params)
    assert isinstance(info, inspect.StructType)
    given = named(given, params)
    out: dict[str, Any] = dict(given)
    for field in info.fields:
        name = f"{where}{field.name}"
        if field.name not in given:
            if field.required:
                raise ToolError(f"`{name}` is missing. {_takes(info)}")
            continue
        value, wanted = given[field.name], _plain(field.type)
        if is_nothing(value) and not field.required and not isinstance(wanted, inspect.StrType):
            del out[field.name]
        else:
            out[field.name] = _fitted(value, wanted, name)
    return out


def _plain(kind: inspect.Type) -> inspect.Type:
    """Without its notes, and without `or nothing`."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        options = [t for t in kind.types if not isinstance(t, inspect.NoneType)]
        if len(options) == 1:
            return _plain(options[0])
    return kind


def _fitted(value: Any, wanted: inspect.Type, name: str) -> Any:
    match wanted:
        case inspect.StrType():
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            return str(value) if plain else _checked(value, wanted, name)
        case inspect.LiteralType():
            return _choice(value, wanted.values, name)
        case inspect.ListType():
            value = _decoded(value)
            many = value if isinstance(value, list) else [value]
            inner = _plain(wanted.item_type)
            return [_fitted(v, inner, f"{name}[{n}]") for n, v in enumerate(many)]
        case inspect.StructType():
            value = _decoded(value)
            if not isinstance(value, dict):
                raise _wrong(value, wanted, name)
            return _object(value, wanted.cls, f"{name}.")
        case _:
            return _checked(value, wanted, name)


def _decoded(value: Any) -> Any:
    """Lists and objects are written as text now and then."""
    if not isinstance(value, str) or value.strip()[:1] not in ("[", "{"):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def _choice(value: Any, values: tuple[Any, ...], name: str) -> Any:
    def folded(text: object) -> str:
        return str(text).casefold().strip().replace("-", "_").replace(" ", "_")

    for one in values:
        if folded(one) == folded(value):
            return one
    allowed = ", ".join(map(str, values))
    raise ToolError(f"`{name}` must be one of {allowed}, not {str(value)[:80]!r}.")


def _checked(value: Any, wanted: inspect.Type, name: str) -> Any:
    kinds: dict[type[inspect.Type], type] = {
        inspect.StrType: str,
        inspect.IntType: int,
        inspect.FloatType: float,
        inspect.BoolType: bool,
    }
    if type(wanted) in kinds:
        try:
            msgspec.convert(value, kinds[type(wanted)], strict=False)
        except msgspec.ValidationError:
            raise _wrong(value, wanted, name) from None
    return value


def _wrong(value: Any, wanted: inspect.Type, name: str) -> ToolError:
    kind = next((text for t, text in _KINDS if isinstance(wanted, t)), "something else")
    got = _NAMES.get(type(value), type(value).__name__)
    if isinstance(value, str | int | float):
        got = repr(value[:40] if isinstance(value, str) else value)
    return ToolError(f"`{name}` must be {kind}, not {got}.")


def _takes(info: inspect.StructType) -> str:
    names = [f.name if f.required else f"{f.name}?" for f in info.fields]
    return f"It takes {{{', '.join(names)}}}."

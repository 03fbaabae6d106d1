"""Converts the arguments of a call into typed parameters, correcting obvious mistakes."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, inspect

from hermes.core.errors import ToolError

P = TypeVar("P", bound=Struct)
_ALIASES: dict[str, tuple[str, ...]] = {
    "path": ("file_path", "filepath", "file", "filename", "file_name", "target_file"),
    "old": ("old_string", "old_str", "old_text", "search", "find"),
    "new": ("new_string", "new_str", "new_text", "replace", "replacement"),
    "all": ("replace_all",),
    "patch": ("input", "patch_text", "diff"),
    "content": ("contents", "file_text", "text"),
    "pattern": ("query", "regex", "search"),
    "glob": ("include", "file_glob", "file_pattern"),
    "offset": ("start_line", "line_start", "start"),
    "limit": ("max_results", "head_limit", "num_lines", "count"),
    "count": ("limit", "num_results", "max_results"),
    "command": ("cmd",),
    "workdir": ("cwd", "working_directory", "working_dir"),
    "code": ("script", "python"),
    "image": ("image_url", "path", "image_path", "url", "file_path"),
    "question": ("prompt", "user_prompt", "query"),
    "choices": ("options",),
    "todos": ("items", "tasks", "todo_list"),
    "key": ("keys",),
    "text": ("value", "content"),
    "ref": ("element", "element_ref"),
}
"""Names that models use for a parameter because other agents' tools do."""
_EMPTY_WORDS = frozenset({"", "null", "none", "undefined"})
"""What models write for "no value"."""
_SCALARS: dict[type[inspect.Type], tuple[type, str]] = {
    inspect.StrType: (str, "text"),
    inspect.IntType: (int, "a whole number"),
    inspect.FloatType: (float, "a number"),
    inspect.BoolType: (bool, "true or false"),
}
_TYPE_WORDS: dict[type[inspect.Type], str] = {
    **{kind: words for kind, (_, words) in _SCALARS.items()},
    inspect.ListType: "a list",
    inspect.StructType: "an object",
    inspect.DictType: "an object",
}
_VALUE_WORDS: dict[type, str] = {list: "a list", dict: "an object"}
_CASE_CHANGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def convert_params(args: Mapping[str, Any], params: type[P]) -> P:
    """Typed parameters; ToolError says what to change."""
    given = use_known_names(args, params)
    with suppress(msgspec.ValidationError):
        return msgspec.convert(given, params, strict=False)
    try:
        return msgspec.convert(_coerce_object(given, params, ""), params, strict=False)
    except msgspec.ValidationError as error:
        raise ToolError(str(error)) from None


def use_known_names(args: Mapping[str, Any], params: type[Struct]) -> dict[str, Any]:
    """The arguments under the parameters' own names; null counts as not given."""
    known = params.__struct_fields__
    given = {key: value for key, value in args.items() if value is not None}
    for key in [key for key in given if key not in known]:
        meant = _find_parameter(key, [name for name in known if name not in given])
        if meant:
            given[meant] = given.pop(key)
    return given


def unknown_names(args: Mapping[str, Any], params: type[Struct]) -> tuple[str, ...]:
    """The arguments that no parameter of the tool matches."""
    known = set(params.__struct_fields__)
    return tuple(key for key in use_known_names(args, params) if key not in known)


def _find_parameter(key: str, free: Iterable[str]) -> str:
    plain = _CASE_CHANGE.sub("_", key).casefold().replace("-", "_")
    for name in free:
        if plain == name or plain in _ALIASES.get(name, ()):
            return name
    return ""


def _coerce_object(given: dict[str, Any], params: type[Struct], where: str) -> dict[str, Any]:
    info = inspect.type_info(params)
    assert isinstance(info, inspect.StructType)
    given = use_known_names(given, params)
    out: dict[str, Any] = dict(given)
    unknown = given.keys() - {field.name for field in info.fields}
    if unknown and info.forbid_unknown_fields:
        raise ToolError(f"`{where}{min(unknown)}` does not exist. {_describe_fields(info)}")
    for field in info.fields:
        name = f"{where}{field.name}"
        if field.name not in given:
            if field.required:
                raise ToolError(f"`{name}` is missing. {_describe_fields(info)}")
            continue
        value, wanted = given[field.name], _strip_optional(field.type)
        is_empty = isinstance(value, str) and value.strip().casefold() in _EMPTY_WORDS
        if is_empty and not field.required and not isinstance(wanted, inspect.StrType):
            del out[field.name]
        else:
            out[field.name] = _coerce_value(value, wanted, name)
    return out


def _strip_optional(kind: inspect.Type) -> inspect.Type:
    """The type without its annotations and without `| None`."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        options = [t for t in kind.types if not isinstance(t, inspect.NoneType)]
        if len(options) == 1:
            return _strip_optional(options[0])
    return kind


def _coerce_value(value: Any, wanted: inspect.Type, name: str) -> Any:
    match wanted:
        case inspect.StrType():
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            return str(value) if plain else _check_scalar(value, wanted, name)
        case inspect.LiteralType():
            return _coerce_choice(value, wanted.values, name)
        case inspect.ListType():
            value = _decode_text(value)
            many = value if isinstance(value, list) else [value]
            inner = _strip_optional(wanted.item_type)
            return [_coerce_value(v, inner, f"{name}[{n}]") for n, v in enumerate(many)]
        case inspect.StructType():
            value = _decode_text(value)
            if not isinstance(value, dict):
                raise _type_error(value, wanted, name)
            return _coerce_object(value, wanted.cls, f"{name}.")
        case _:
            return _check_scalar(value, wanted, name)


def _decode_text(value: Any) -> Any:
    """Models sometimes write a list or an object as a string of JSON."""
    if not isinstance(value, str) or value.strip()[:1] not in ("[", "{"):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def _coerce_choice(value: Any, values: tuple[Any, ...], name: str) -> Any:
    def fold(text: object) -> str:
        return str(text).casefold().strip().replace("-", "_").replace(" ", "_")

    for allowed in values:
        if fold(allowed) == fold(value):
            return allowed
    choices = ", ".join(map(str, values))
    raise ToolError(f"`{name}` must be one of {choices}, not {str(value)[:80]!r}.")


def _check_scalar(value: Any, wanted: inspect.Type, name: str) -> Any:
    if type(wanted) in _SCALARS:
        try:
            msgspec.convert(value, _SCALARS[type(wanted)][0], strict=False)
        except msgspec.ValidationError:
            raise _type_error(value, wanted, name) from None
    return value


def _type_error(value: Any, wanted: inspect.Type, name: str) -> ToolError:
    kind = _TYPE_WORDS.get(type(wanted), "something else")
    got = _VALUE_WORDS.get(type(value), type(value).__name__)
    if isinstance(value, str | int | float):
        got = repr(value[:40] if isinstance(value, str) else value)
    return ToolError(f"`{name}` must be {kind}, not {got}.")


def _describe_fields(info: inspect.StructType) -> str:
    names = [f.name if f.required else f"{f.name}?" for f in info.fields]
    return f"It takes {{{', '.join(names)}}}."

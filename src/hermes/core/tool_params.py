"""Fits what a model gave to the parameters of a tool: other names, numbers as text and the like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from hermes.core.errors import ToolError

P = TypeVar("P", bound=Struct)
_OTHER_NAMES: dict[str, tuple[str, ...]] = {
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
"""What models call a parameter that they learned to use elsewhere."""
_NOTHING = frozenset({"", "null", "none", "undefined"})
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def convert(args: Mapping[str, Any], params: type[P]) -> P:
    """Typed parameters. Raises ToolError with what to change."""
    given = named(args, params)
    try:
        return msgspec.convert(given, params, strict=False)
    except msgspec.ValidationError:
        from hermes.core.tool_coercion import mended

    try:
        return msgspec.convert(mended(given, params), params, strict=False)
    except msgspec.ValidationError as error:
        raise ToolError(str(error)) from None


def named(args: Mapping[str, Any], params: type[Struct]) -> dict[str, Any]:
    """The arguments under the names the parameters have; what is null counts as not given."""
    known = params.__struct_fields__
    given = {key: value for key, value in args.items() if value is not None}
    if given.keys() <= set(known):
        return given
    for key in [key for key in given if key not in known]:
        meant = _meant(key, [name for name in known if name not in given])
        if meant:
            given[meant] = given.pop(key)
    return given


def unknown(args: Mapping[str, Any], params: type[Struct]) -> tuple[str, ...]:
    """Arguments that mean nothing to the tool."""
    known = set(params.__struct_fields__)
    return tuple(key for key in named(args, params) if key not in known)


def _meant(key: str, free: Iterable[str]) -> str:
    plain = _HUMP.sub("_", key).casefold().replace("-", "_")
    for name in free:
        if plain == name or plain in _OTHER_NAMES.get(name, ()):
            return name
    return ""


def is_nothing(value: object) -> bool:
    """Text that models write where they mean to give nothing."""
    return isinstance(value, str) and value.strip().casefold() in _NOTHING

"""Dotted key names: from text to a path, and from a path to a value."""

from __future__ import annotations

from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct

from hermes.config.schema import Config
from hermes.config.validate import describe_unknown_key
from hermes.config.yaml_source import KeyPath, format_path
from hermes.core.errors import ConfigError


def parse_key(key: str, data: Any) -> KeyPath:
    """`providers.lab.base_url` as a path. Names the user chose may contain dots themselves:
    `providers.lab.models.llama-3.3-70b.max_tokens`. ConfigError for keys that cannot exist."""
    parts = key.split(".")
    if not all(parts):
        raise ConfigError(f"{key!r} is not a key; write it like agent.max_turns.")
    path: KeyPath = ()
    kind: Any = Config
    while parts:
        if isinstance(kind, type) and issubclass(kind, Struct):
            types = {field.name: field.type for field in msgspec.structs.fields(kind)}
            if parts[0] not in types:
                raise ConfigError(describe_unknown_key((*path, parts[0]), list(types)))
            taken, kind = 1, types[parts[0]]
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
            taken = _name_length(parts, kind, data)
        elif kind in (None, Any):
            taken, kind = _known_length(parts, data) or 1, None
        else:
            raise ConfigError(f"{format_path(path)} is a single value; it has no key {parts[0]}.")
        name = ".".join(parts[:taken])
        path = (*path, name)
        data = data.get(name) if isinstance(data, dict) else None
        parts = parts[taken:]
    return path


def _known_length(parts: list[str], data: Any) -> int:
    """How many parts make up the longest key that is there."""
    if not isinstance(data, dict):
        return 0
    sizes = range(len(parts), 0, -1)
    return next((size for size in sizes if ".".join(parts[:size]) in data), 0)


def _name_length(parts: list[str], inner: Any, data: Any) -> int:
    """A name chosen by the user ends where a key of the section under it begins."""
    if known := _known_length(parts, data):
        return known
    if isinstance(inner, type) and issubclass(inner, Struct):
        fields = {field.name for field in msgspec.structs.fields(inner)}
        return next((i for i in range(1, len(parts)) if parts[i] in fields), len(parts))
    return 1


def get_at(data: Any, path: KeyPath) -> Any:
    """KeyError when nothing is there."""
    for part in path:
        if not isinstance(data, dict):
            raise KeyError(part)
        data = data[part]
    return data


def remove_at(data: dict[str, Any], path: KeyPath) -> KeyPath:
    """Take a key out, and the sections that are empty without it; the path of what went."""
    *way, last = path
    inner = get_at(data, tuple(way))
    del inner[last]
    return path if inner or not way else remove_at(data, tuple(way))


def set_at(data: dict[str, Any], path: KeyPath, value: Any) -> None:
    """Sections in between are made; a key left empty counts as a section."""
    *way, last = path
    for part in way:
        inner = data.get(str(part))
        if not isinstance(inner, dict):
            inner = data[str(part)] = {}
        data = inner
    data[str(last)] = value

"""Dotted key names: text to path, and path to value."""

from typing import Any, get_args, get_origin

from hermes.config.schema import Config
from hermes.config.validate import describe_unknown_key, field_types, is_struct
from hermes.config.yaml_source import KeyPath, format_path
from hermes.core.errors import ConfigError


def parse_key(key: str, data: Any) -> KeyPath:
    """`providers.lab.base_url` as a path. Names chosen by the user may contain dots themselves:
    `providers.lab.models.llama-3.3-70b.max_tokens`. Raises ConfigError for unknown keys."""
    parts = key.split(".")
    if not all(parts):
        raise ConfigError(f"{key!r} is not a key; write it like agent.max_turns.")
    path: KeyPath = ()
    kind: Any = Config
    while parts:
        if is_struct(kind):
            types = field_types(kind)
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
    """How many parts make up the longest existing key."""
    if not isinstance(data, dict):
        return 0
    sizes = range(len(parts), 0, -1)
    return next((size for size in sizes if ".".join(parts[:size]) in data), 0)


def _name_length(parts: list[str], inner: Any, data: Any) -> int:
    """How many parts make up a name chosen by the user: up to the first key of its section."""
    if known := _known_length(parts, data):
        return known
    if is_struct(inner):
        fields = field_types(inner)
        return next((i for i in range(1, len(parts)) if parts[i] in fields), len(parts))
    return 1


def get_at(data: Any, path: KeyPath) -> Any:
    """Raises KeyError when nothing is there."""
    for part in path:
        if not isinstance(data, dict):
            raise KeyError(part)
        data = data[part]
    return data


def remove_at(data: dict[str, Any], path: KeyPath) -> KeyPath:
    """Remove a key and the sections this leaves empty; the path of what was removed."""
    *parents, last = path
    section = get_at(data, tuple(parents))
    del section[last]
    return path if section or not parents else remove_at(data, tuple(parents))


def set_at(data: dict[str, Any], path: KeyPath, value: Any) -> None:
    """Creates missing sections; anything but a section on the way is replaced by one."""
    *parents, last = path
    for part in parents:
        section = data.get(str(part))
        if not isinstance(section, dict):
            section = data[str(part)] = {}
        data = section
    data[str(last)] = value

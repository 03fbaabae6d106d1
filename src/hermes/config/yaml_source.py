"""Parses YAML into plain data and remembers the line of every key."""

import re
from typing import Any, TypeAlias

import yaml
from msgspec import Struct

from hermes.core.errors import ConfigError

KeyPath: TypeAlias = tuple[str | int, ...]

MAX_BYTES = 1 << 20
_MAX_DEPTH = 40
_MAX_NODES = 50_000
"""Counted with aliases expanded, so that nested aliases cannot exhaust the memory."""

_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _PlainLoader(_Loader):  # type: ignore[misc]
    """YAML without surprises: dates stay text, and 12:30 is not a number in base 60."""


_NUMBER = {
    "tag:yaml.org,2002:int": re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0o[0-7]+)$"),
    "tag:yaml.org,2002:float": re.compile(
        r"^(?:[-+]?[0-9][0-9_]*(?:\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)"
        r"|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
}
_PlainLoader.yaml_implicit_resolvers = {
    first: [
        (tag, _NUMBER.get(tag, pattern))
        for tag, pattern in resolvers
        if tag != "tag:yaml.org,2002:timestamp"
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class ParsedYaml(Struct, frozen=True):
    data: dict[str, Any]
    lines: dict[KeyPath, int]
    """Path of a key or list item -> its line, counted from 1."""


def parse_yaml(source: bytes, name: str = "config.yaml") -> ParsedYaml:
    """Raises ConfigError with the file name and the line."""
    text = decode_text(source, name)
    try:
        loader = _PlainLoader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return ParsedYaml({}, {})
            reader = _NodeReader(loader, name)
            data = reader.read_node(root, ())
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(_describe_error(error, text, name)) from None
    if data is None:
        return ParsedYaml({}, {})
    if not isinstance(data, dict):
        line = root.start_mark.line + 1
        raise ConfigError(f"{name} line {line}: expected `key: value` lines at the top level.")
    return ParsedYaml(data, reader.lines)


def decode_text(source: bytes, name: str) -> str:
    if len(source) > MAX_BYTES:
        raise ConfigError(f"{name} is larger than {MAX_BYTES >> 20} MB.")
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name} line {line}: not UTF-8 text.") from None


def parse_scalar(text: str) -> Any:
    """One value, read as config.yaml would read it. Raises YAMLError."""
    loader = _PlainLoader(text)
    try:
        node = loader.get_single_node()
        return None if node is None else _NodeReader(loader, "value").read_node(node, ())
    finally:
        loader.dispose()


class _NodeReader:
    """Builds data from YAML nodes; refuses whatever would be lost silently."""

    def __init__(self, loader: Any, name: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._loader = loader
        self._name = name
        self._seen = 0

    def read_node(self, node: Any, path: KeyPath) -> Any:
        self._seen += 1
        if len(path) > _MAX_DEPTH or self._seen > _MAX_NODES:
            self._raise_error(node, "nested too deeply, or too many aliases")
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _COLLECTIONS:
            self._raise_error(node, f"the tag {node.tag[:60]} is not supported")
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.lines[(*path, index)] = item.start_mark.line + 1
                items.append(self.read_node(item, (*path, index)))
            return items
        try:
            return self._loader.construct_object(node)
        except ValueError:
            self._raise_error(node, f"cannot read the value {node.value[:40]!r}")

    def _read_mapping(self, node: Any, path: KeyPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._raise_error(key_node, "a key must be plain text")
            key = key_node.value
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged = {**self._read_merge(value_node, path), **merged}
                continue
            key_path = (*path, key)
            if key in found:
                first = self.lines[key_path]
                name = format_path(key_path)
                self._raise_error(key_node, f"{name} is given twice (first on line {first})")
            self.lines[key_path] = key_node.start_mark.line + 1
            found[key] = self.read_node(value_node, key_path)
        return {**merged, **found}

    def _read_merge(self, node: Any, path: KeyPath) -> dict[str, Any]:
        """`<<: *base` or `<<: [*a, *b]`, where the first takes precedence."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found: dict[str, Any] = {}
        for source in reversed(sources):
            if not isinstance(source, yaml.MappingNode):
                self._raise_error(source, "<< needs a mapping")
            lines = dict(self.lines)
            found |= self._read_mapping(source, path)
            self.lines = {**self.lines, **lines}
        return found

    def _raise_error(self, node: Any, problem: str) -> Any:
        raise ConfigError(f"{self._name} line {node.start_mark.line + 1}: {problem}.")


def format_path(path: KeyPath) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _describe_error(error: yaml.YAMLError, text: str, name: str) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not valid YAML"
    if mark is None:
        position = getattr(error, "position", 0)
        return f"{name} line {text.count(chr(10), 0, position) + 1}: {problem}."
    line = mark.line + 1
    lines = text.splitlines()
    source_line = lines[mark.line] if mark.line < len(lines) else ""
    indent = source_line[: len(source_line) - len(source_line.lstrip())]
    if "\t" in indent:
        return f"{name} line {line}: indented with a tab; YAML needs spaces."
    return f"{name} line {line}: {problem}."

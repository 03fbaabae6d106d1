"""Edits one key of a YAML text in place: every other byte stays as it is."""

import re
from typing import Any

import yaml
from msgspec import json

from hermes.config.yaml_source import KeyPath, parse_scalar

_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@+~-]*(?::[A-Za-z0-9_./@+~-]+)*\Z")
_INDENT = "  "


def set_key(text: str, path: KeyPath, value: Any) -> str | None:
    """The text with `path` set to `value`; None where the layout is too unusual. The caller
    checks that the result means what it should."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None
    if root is None:
        return _insert_lines(text, len(text), _block_lines(path, value, ""))
    node, key = root, None
    for depth, part in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            return _replace_with_section(text, key, node, path[depth:], value)
        found = next((pair for pair in node.value if pair[0].value == part), None)
        if found is None:
            return _insert_entry(text, node, path[depth:], value)
        key, node = found
    return _replace_value(text, key, node, value)


def extend_list(text: str, path: KeyPath, items: list[Any]) -> str | None:
    """The text with `items` added to the list at `path`, which need not exist yet."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None
    for part in path:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((inner for key, inner in pairs if key.value == part), None)
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        return set_key(text, path, items)
    last = node.value[-1]
    end = _entry_end(last, last)
    if node.flow_style:
        more = ", ".join(render_value(item) for item in items)
        return f"{text[:end]}, {more}{text[end:]}"
    indent = " " * node.start_mark.column
    return _insert_lines(text, end, [f"{indent}- {render_value(item)}" for item in items])


def remove_key(text: str, path: KeyPath) -> str | None:
    """The text without the entry at `path`, and without a section that this leaves empty."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None
    found: tuple[Any, int] | None = None
    for part in path:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        at = next((i for i, pair in enumerate(pairs) if pair[0].value == part), None)
        if at is None:
            return None
        found, node = (node, at), pairs[at][1]
    if found is None:
        return None
    mapping, at = found
    if len(mapping.value) == 1 and len(path) > 1:
        return remove_key(text, path[:-1])
    key, value = mapping.value[at]
    start, end = key.start_mark.index, _entry_end(key, value)
    if mapping.flow_style:
        if at:
            start = mapping.value[at - 1][1].end_mark.index
        elif len(mapping.value) > 1:
            end = mapping.value[1][0].start_mark.index
        return text[:start] + text[end:]
    line = text.rfind("\n", 0, start) + 1
    if text[line:start].strip():
        return None
    return text[:line] + text[text.find("\n", end) + 1 or len(text) :]


def render_value(value: Any) -> str:
    """A value on one line, which every YAML parser reads the same way."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return json.encode(value).decode()
        case str():
            # Parsers disagree on texts that begin like a number ("0b_", "1_0"): those are quoted.
            plain = _PLAIN.match(value) and not value[:1].isdigit() and parse_scalar(value) == value
            return value if plain else _quote_text(value)
        case dict():
            pairs = [f"{render_value(k)}: {render_value(v)}" for k, v in value.items()]
            return "{" + ", ".join(pairs) + "}"
        case _:
            return "[" + ", ".join(render_value(item) for item in value) + "]"


def _quote_text(text: str) -> str:
    """In double quotes; YAML requires more characters to be escaped than JSON does."""
    inner = json.encode(text).decode()[1:-1]
    return '"' + "".join(ch if ch.isprintable() else f"\\U{ord(ch):08x}" for ch in inner) + '"'


def _block_lines(path: KeyPath, value: Any, indent: str) -> list[str]:
    *parents, last = [
        f"{indent}{_INDENT * depth}{render_value(str(part))}:" for depth, part in enumerate(path)
    ]
    return [*parents, f"{last} {render_value(value)}"]


def _replace_with_section(text: str, key: Any, node: Any, path: KeyPath, value: Any) -> str | None:
    """Turn an empty or single value into a section that holds `path`."""
    if key is None:
        return None
    if node.start_mark.index == node.end_mark.index:
        return _fill_empty(text, key, path, value)
    if not isinstance(node, yaml.ScalarNode) or node.style in ("|", ">"):
        return None
    return _replace_value(text, key, node, _nest_value(path, value))


def _replace_value(text: str, key: Any, node: Any, value: Any) -> str | None:
    start, end = node.start_mark.index, node.end_mark.index
    if start == end:
        return _fill_empty(text, key, (), value)
    if text[start] in "&!*":
        return None
    block = node.style in ("|", ">") if isinstance(node, yaml.ScalarNode) else not node.flow_style
    if block:
        return _replace_block(text, key, node, value)
    return text[:start] + render_value(value) + text[end:]


def _replace_block(text: str, key: Any, node: Any, value: Any) -> str | None:
    """A value of several lines becomes one of a single line; a comment beside the key stays."""
    colon = text.find(":", key.end_mark.index)
    if colon < 0 or text[key.end_mark.index : colon].strip():
        return None
    beside = text[colon + 1 : node.start_mark.index].splitlines()[0].rstrip()
    if beside and not beside.lstrip().startswith("#"):
        return None
    end = _entry_end(key, node)
    while text[end - 1] in "\r\n":
        end -= 1
    return f"{text[: colon + 1]} {render_value(value)}{beside}{text[end:]}"


def _fill_empty(text: str, key: Any, path: KeyPath, value: Any) -> str | None:
    """`key:` with nothing after it gets the value, or the first lines of a section."""
    colon = text.find(":", key.end_mark.index)
    if colon < 0 or text[key.end_mark.index : colon].strip():
        return None
    if not path:
        return f"{text[: colon + 1]} {render_value(value)}{text[colon + 1 :]}"
    indent = " " * key.start_mark.column + _INDENT
    return _insert_lines(text, colon, _block_lines(path, value, indent))


def _insert_entry(text: str, mapping: Any, path: KeyPath, value: Any) -> str | None:
    if mapping.flow_style:
        entry = f"{render_value(str(path[0]))}: {render_value(_nest_value(path[1:], value))}"
        if not mapping.value:
            at = mapping.end_mark.index - 1
            return f"{text[:at]}{entry}{text[at:]}"
        at = mapping.value[-1][1].end_mark.index
        return f"{text[:at]}, {entry}{text[at:]}"
    if not mapping.value:
        return None
    indent = " " * mapping.value[0][0].start_mark.column
    return _insert_lines(text, _entry_end(*mapping.value[-1]), _block_lines(path, value, indent))


def _nest_value(path: KeyPath, value: Any) -> Any:
    for part in reversed(path):
        value = {part: value}
    return value


def _entry_end(key: Any, node: Any) -> int:
    """Where the text of an entry ends; the end marks of block collections lie beyond it."""
    if node.start_mark.index == node.end_mark.index:
        return int(key.end_mark.index)
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _entry_end(*node.value[-1])
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return _entry_end(node.value[-1], node.value[-1])
    return int(node.end_mark.index)


def _insert_lines(text: str, position: int, lines: list[str]) -> str:
    """Insert lines after the one that `position` is on."""
    newline = "\r\n" if "\r\n" in text else "\n"
    new = "".join(line + newline for line in lines)
    is_line_start = position > 0 and text[position - 1] == "\n"
    at = position if is_line_start else text.find("\n", position) + 1
    if not at:
        return text + (newline if text else "") + new
    return text[:at] + new + text[at:]

"""Checks a skill as strictly as the reference validator of the format."""

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MAX_NAME = 64
_MAX_DESCRIPTION = 1024
_MAX_COMPATIBILITY = 500
_FIELDS = frozenset(
    {"name", "description", "license", "allowed-tools", "metadata", "compatibility"}
)
_FENCE = "---"


class _Invalid(Exception):
    """Says what is wrong with a front matter."""


def validate_skill(folder: Path) -> list[str]:
    """What is wrong with a skill; nothing: it is valid."""
    if not folder.is_dir():
        return [f"{folder} is not a folder" if folder.exists() else f"{folder} does not exist"]
    file = next((folder / n for n in ("SKILL.md", "skill.md") if (folder / n).exists()), None)
    if file is None:
        return ["SKILL.md is missing"]
    try:
        fields = _parse_strictly(file.read_text("utf-8"))
    except UnicodeDecodeError:
        return ["SKILL.md is not UTF-8"]
    except (OSError, _Invalid) as error:
        return [str(error)]
    return list(_find_problems(fields, folder.name))


def _parse_strictly(text: str) -> dict[str, Any]:
    """The fields: plain texts and block mappings only, as the format wants them."""
    import yaml

    parts = text.split(_FENCE, 2)
    if not text.startswith(_FENCE):
        raise _Invalid("SKILL.md does not begin with ---")
    if len(parts) < 3:
        raise _Invalid("the front matter is not closed by ---")
    try:
        node = yaml.compose(parts[1], Loader=yaml.BaseLoader)
        for event in yaml.parse(parts[1], Loader=yaml.BaseLoader):
            _check_event(event)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _Invalid(
            f"the front matter is not valid YAML: {' '.join(str(error).split())}"
        ) from None
    if not isinstance(node, yaml.MappingNode):
        raise _Invalid("the front matter is not a mapping")
    fields: dict[str, Any] = _to_value(node)
    return fields


def _check_event(event: Any) -> None:
    """The format allows neither flow style nor anchors nor tags."""
    if getattr(event, "flow_style", None):
        raise _Invalid("the front matter uses [ ] or { }; write lists and mappings as lines")
    if getattr(event, "anchor", None):
        raise _Invalid("the front matter uses an anchor or alias")
    if getattr(event, "tag", None):
        raise _Invalid("the front matter uses a tag (!)")


def _to_value(node: Any) -> Any:
    import yaml

    if isinstance(node, yaml.MappingNode):
        pairs = [(_to_value(key), _to_value(value)) for key, value in node.value]
        names = [str(key) for key, _ in pairs]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise _Invalid(f"the front matter has {twice} twice")
        return dict(zip(names, (value for _, value in pairs), strict=True))
    if isinstance(node, yaml.SequenceNode):
        return [_to_value(item) for item in node.value]
    return node.value


def _find_problems(fields: dict[str, Any], folder: str) -> Iterator[str]:
    if unknown := sorted(set(fields) - _FIELDS):
        yield f"unknown fields: {', '.join(unknown)}; allowed are {', '.join(sorted(_FIELDS))}"
    for name in ("name", "description"):
        if name not in fields:
            yield f"the field {name} is missing"
    if "name" in fields:
        yield from _find_name_problems(fields["name"], folder)
    if "description" in fields:
        text = fields["description"]
        if not isinstance(text, str) or not text.strip():
            yield "description must be a text that is not empty"
        elif len(text) > _MAX_DESCRIPTION:
            yield f"description has {len(text)} characters; the limit is {_MAX_DESCRIPTION}"
    if "compatibility" in fields:
        text = fields["compatibility"]
        if not isinstance(text, str):
            yield "compatibility must be a text"
        elif len(text) > _MAX_COMPATIBILITY:
            yield f"compatibility has {len(text)} characters; the limit is {_MAX_COMPATIBILITY}"


def _find_name_problems(name: Any, folder: str) -> Iterator[str]:
    if not isinstance(name, str) or not name.strip():
        yield "name must be a text that is not empty"
        return
    name = unicodedata.normalize("NFKC", name.strip())
    if len(name) > _MAX_NAME:
        yield f"name has {len(name)} characters; the limit is {_MAX_NAME}"
    if name != name.lower():
        yield "name must be in lower case"
    if name.startswith("-") or name.endswith("-"):
        yield "name begins or ends with a hyphen"
    if "--" in name:
        yield "name has two hyphens in a row"
    if not all(char.isalnum() or char == "-" for char in name):
        yield "name may have letters, digits and hyphens only"
    if unicodedata.normalize("NFKC", folder) != name:
        yield f"the folder is named {folder}, the skill {name}"

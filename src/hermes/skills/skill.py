"""A skill: a folder with instructions for one kind of task, and what SKILL.md says about it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, structs

from hermes.core.services import ServiceKey

if TYPE_CHECKING:
    from hermes.skills.session_skills import SessionSkills

SKILLS: ServiceKey[Callable[[], SessionSkills]] = ServiceKey("skills")
"""Opens the skills of the session."""
SKILL_FILE = "SKILL.md"
MAX_SKILL_BYTES = 256 * 1024
SkillSource: TypeAlias = Literal["project", "home", "user", "external", "plugin", "builtin"]
_PLATFORMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
_FENCE = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_CONDITIONS = ("platforms", "requires-tools", "requires-commands", "requires-env")


class Skill(Struct, frozen=True):
    """What is known about a skill without reading its instructions."""

    name: str
    description: str
    folder: str
    source: SkillSource
    changed: int = 0
    """When SKILL.md was changed, in nanoseconds."""
    size: int = 0
    conditions: dict[str, tuple[str, ...]] = {}
    """platforms, requires-tools, requires-commands, requires-env: what it needs."""
    problem: str = ""
    """Why it is left out."""


class SkillNeeds(Struct, frozen=True):
    """What conditions of skills are checked against."""

    tools: Collection[str] = ()
    has_variable: Callable[[str], bool] = lambda name: False
    search_path: str | None = None

    def find_unmet(self, skill: Skill) -> str:
        """The first condition that is not met here; empty: all are."""
        if not skill.conditions:
            return ""
        import shutil

        platforms = skill.conditions.get("platforms", ())
        if platforms and _PLATFORMS.get(sys.platform, sys.platform) not in platforms:
            return f"needs {' or '.join(platforms)}"
        checks: dict[str, Callable[[str], bool]] = {
            "requires-tools": self.tools.__contains__,
            "requires-commands": lambda name: bool(shutil.which(name, path=self.search_path)),
            "requires-env": self.has_variable,
        }
        for condition, is_met in checks.items():
            for name in skill.conditions.get(condition, ()):
                if not is_met(name):
                    return f"needs {condition.removeprefix('requires-').rstrip('s')} {name}"
        return ""


def split_text(text: str) -> tuple[str, str]:
    """The front matter and the instructions behind it; without one it is empty."""
    found = _FENCE.match(text.removeprefix("\ufeff"))
    return (found[1], text.removeprefix("\ufeff")[found.end() :]) if found else ("", text)


def read_skill(folder: str, source: SkillSource, changed: int, size: int) -> Skill:
    """The skill of a folder, leniently: unknown fields are ignored and the folder's name counts."""
    name = folder.rpartition("/")[2]
    skill = Skill(name, "", folder, source, changed, size)
    if size > MAX_SKILL_BYTES:
        return _with_problem(skill, f"SKILL.md is larger than {MAX_SKILL_BYTES // 1024} KB")
    file = Path(folder) / SKILL_FILE
    if file.exists() and not file.is_file():  # a pipe would be waited for
        return _with_problem(skill, "SKILL.md is not a plain file")
    try:
        text = file.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        return _with_problem(skill, f"SKILL.md cannot be read: {error.strerror}")
    fields = _load_fields(split_text(text)[0])
    if isinstance(fields, str):
        return _with_problem(skill, fields)
    description = fields.get("description")
    if not isinstance(description, str) or not description.strip():
        return _with_problem(skill, "SKILL.md has no description")
    return Skill(
        *(name, " ".join(description.split()), folder, source, changed, size),
        conditions=_read_conditions(fields),
    )


def read_plugin_skill(folder: Path, name: str) -> Skill:
    """A skill that a plugin offers under this name."""
    try:
        status = (folder / SKILL_FILE).stat()
    except OSError:
        return Skill(name, "", str(folder), "plugin", problem="it has no SKILL.md")
    found = read_skill(str(folder), "plugin", status.st_mtime_ns, status.st_size)
    return structs.replace(found, name=name)


def read_name(text: str) -> str:
    """The name in a SKILL.md; empty if it has none."""
    fields = _load_fields(split_text(text)[0])
    name = "" if isinstance(fields, str) else fields.get("name")
    return name.strip() if isinstance(name, str) else ""


def _with_problem(skill: Skill, problem: str) -> Skill:
    return Skill(
        *(skill.name, "", skill.folder, skill.source, skill.changed, skill.size), problem=problem
    )


def _load_fields(text: str) -> Mapping[str, Any] | str:
    """The fields of a front matter, or why they cannot be read."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        fields = yaml.load(text, Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return "its front matter is not valid YAML"
    return fields if isinstance(fields, dict) else "SKILL.md has no front matter"


def _read_conditions(fields: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """`metadata.hermes-X` as strings; the original's `platforms` and `metadata.hermes.X` too."""
    metadata = fields.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    older = metadata.get("hermes")
    older = older if isinstance(older, dict) else {}
    found = {}
    for name in _CONDITIONS:
        values = (
            metadata.get(f"hermes-{name}"),
            older.get(name) or older.get(name.replace("-", "_")),
            fields.get(name) if name == "platforms" else None,
        )
        words = tuple(word for value in values for word in _list_words(value))
        if words:
            found[name] = words
    return found


def _list_words(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.replace(",", " ").split()
    words = value if isinstance(value, list) else []
    return [str(word) for word in words if not isinstance(word, list | dict)]

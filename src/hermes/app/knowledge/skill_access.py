"""Where the skills of a home and a folder are, and what they may need."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from hermes.app.knowledge.context_files import find_skill_folders
from hermes.config.env import get_environment
from hermes.config.load import Setup
from hermes.config.paths import cache_folder
from hermes.skills.library import BUILTIN_ROOT, SkillLibrary, SkillRoot, find_roots
from hermes.skills.skill import Skill, SkillNeeds


def list_own_roots(setup: Setup, cwd: Path) -> list[SkillRoot]:
    """The folders with skills, without the built-in one; most homes have none."""
    user_home = Path(get_environment().get("HOME") or Path.home())
    project = find_skill_folders(setup.home, cwd)
    return find_roots(setup.home, user_home, setup.config.skills.external_dirs, project)


def open_library(setup: Setup, roots: list[SkillRoot], added: Sequence[Skill] = ()) -> SkillLibrary:
    """The skills of these roots, those of plugins and the built-in ones."""
    cache_file = cache_folder(setup.home) / "skills.msgpack"
    return SkillLibrary([*roots, BUILTIN_ROOT], cache_file, added)


def make_needs(setup: Setup, tools: Collection[str]) -> SkillNeeds:
    environ = get_environment()
    return SkillNeeds(
        tools,
        lambda name: bool(environ.get(name)) or bool(setup.secrets.get(name)),
        environ.get("PATH"),
    )


def has_skill(setup: Setup, cwd: Path, name: str) -> bool:
    """Whether /NAME or /skill:NAME means a skill."""
    wanted = name.removeprefix("skill:")
    library = open_library(setup, list_own_roots(setup, cwd))
    disabled = setup.config.skills.disabled
    return any(
        skill.name == wanted and not skill.problem and wanted not in disabled
        for skill in library.list_skills()
    )

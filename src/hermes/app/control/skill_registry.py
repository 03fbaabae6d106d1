"""The skills of a home: what there is, which are on, and changes that wait for approval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.app.knowledge.skill_access import list_own_roots, make_needs, open_library
from hermes.config.load import Setup
from hermes.config.paths import make_private_folder, skills_folder
from hermes.core.errors import ConfigError, ToolError
from hermes.tools.registry import select_tools

if TYPE_CHECKING:
    from hermes.skills.installer import SkillInstaller
    from hermes.skills.proposals import SkillProposals
    from hermes.skills.skill import Skill


def open_skill_installer(setup: Setup) -> SkillInstaller:
    from hermes.skills.installer import SkillInstaller, refuse_download

    folder = skills_folder(setup.home)
    make_private_folder(folder)
    return SkillInstaller(folder, refuse_download)


def list_skills(setup: Setup, cwd: Path) -> list[Skill]:
    """The skills of sessions in this folder."""
    return open_library(setup, list_own_roots(setup, cwd)).list_skills()


def describe_skills(setup: Setup, cwd: Path, words: str = "") -> list[dict[str, Any]]:
    """The skills that these words find; all: without words. What keeps one from being used is its
    `problem`, `disabled` or `unmet`."""
    from hermes.skills.skill_tools import search_skills

    needs = make_needs(setup, select_tools(None, platform="cli", settings=setup.config.tools))
    rows: list[dict[str, Any]] = []
    for skill in search_skills(list_skills(setup, cwd), words):
        row: dict[str, Any] = {"name": skill.name, "description": skill.description}
        row |= {"source": skill.source, "path": skill.folder}
        if skill.problem:
            row["problem"] = skill.problem
        elif skill.name in setup.config.skills.disabled:
            row["disabled"] = True
        elif unmet := needs.find_unmet(skill):
            row["unmet"] = unmet
        rows.append(row)
    return rows


def switch_skills(setup: Setup, cwd: Path, names: Sequence[str], *, enabled: bool) -> None:
    """Turn skills on or off; ConfigError when one is not there."""
    from hermes.config.update import move_names

    known = {skill.name for skill in list_skills(setup, cwd)}
    if missing := [name for name in names if name not in known]:
        raise ConfigError(f"There is no skill {missing[0]}; nothing was changed.")
    key = "skills.disabled"
    move_names(setup.home, names, into="" if enabled else key, out_of=key if enabled else "")


async def describe_proposals(proposals: SkillProposals) -> list[dict[str, str]]:
    """The changes that the agent proposes."""
    return [
        {
            "id": number,
            "action": change.action,
            "name": change.name,
            "file": change.file,
            "session": change.session,
            "why": change.why,
        }
        for number, change in (await proposals.list_changes()).items()
    ]


async def decide_proposal(proposals: SkillProposals, number: str, *, approved: bool) -> None:
    """Make a proposed change, or refuse it; ConfigError when it cannot be made."""
    change = await proposals.take_change(number)
    if approved:
        try:
            proposals.make_change(change)
        except ToolError as error:
            raise ConfigError(str(error)) from None
    await proposals.drop_change(number)

"""The skills of a session: which there are, which fit, and what reading one allows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from msgspec import Struct

from hermes.skills.installer import SkillInstaller
from hermes.skills.library import SkillLibrary
from hermes.skills.proposals import SkillProposals
from hermes.skills.skill import SKILL_FILE, Skill, SkillNeeds
from hermes.skills.skill_uses import SkillUses


class SessionSkills(Struct, frozen=True):
    """What the tools about skills may use."""

    library: SkillLibrary
    needs: SkillNeeds
    disabled: Collection[str]
    installer: SkillInstaller
    uses: SkillUses
    proposals: SkillProposals
    allow_reading: Callable[[str], None]
    """Lets the tools of the session read a folder."""

    def list_skills(self) -> list[Skill]:
        """Those that are not left out or turned off."""
        found = self.library.list_skills()
        return [s for s in found if not s.problem and s.name not in self.disabled]

    def find_skill(self, name: str) -> Skill | None:
        return next((skill for skill in self.list_skills() if skill.name == name), None)

    def find_danger(self, skill: Skill) -> str:
        """The worst that a scan finds in a skill's instructions, if it is dangerous. Those that
        come with Hermes, or are as somebody agreed to install them, are not scanned again."""
        from hermes.skills.scan import scan_files

        if skill.source == "builtin" or (
            skill.source == "home"
            and skill.name in self.installer.read_records()
            and not self.installer.find_changes(skill.name)
        ):
            return ""
        text = (Path(skill.folder) / SKILL_FILE).read_bytes()
        found = [f for f in scan_files({SKILL_FILE: text}) if f.level == "high"]
        return str(found[0]) if found else ""

    async def open_skill(self, skill: Skill) -> None:
        """Count a use, and let the session read the skill's folder."""
        self.allow_reading(skill.folder)
        await self.uses.note_use(skill.name)

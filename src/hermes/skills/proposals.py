"""Changes to skills that the agent wants to make: each is a file, and waits for a person."""

from __future__ import annotations

import shutil
from pathlib import Path
from secrets import token_hex

import msgspec
from msgspec import Struct

from hermes.config.paths import make_private_folder
from hermes.config.private_files import replace_file
from hermes.core.errors import ConfigError, ToolError
from hermes.core.store import Objects
from hermes.skills.bundle import MAX_FILE_BYTES
from hermes.skills.installer import SkillInstaller, diff_texts
from hermes.skills.scan import ScanFinding, scan_files
from hermes.skills.skill import SKILL_FILE
from hermes.skills.validation import validate_skill

SKILL_CHANGES = "skill-change"
_MAX_PENDING = 100


class SkillChange(Struct, frozen=True):
    """A file of a skill as it would become; without content the skill is deleted."""

    action: str
    name: str
    file: str = SKILL_FILE
    before: str = ""
    content: str = ""
    why: str = ""
    session: str = ""


class SkillProposals:
    """Changes skills of the home folder, and keeps changes that nobody has agreed to."""

    def __init__(self, objects: Objects, installer: SkillInstaller) -> None:
        self._objects = objects
        self._installer = installer

    def plan_change(
        self,
        action: str,
        name: str,
        *,
        file: str = "",
        content: str = "",
        old: str = "",
        new: str = "",
    ) -> SkillChange:
        """The change in full; ToolError when it cannot be made."""
        folder = self._find_folder(name)
        if not name or name != Path(name).name or name.startswith(".") or not _is_usable(name):
            raise ToolError(f"{name[:60]!r} is no name for a skill.")
        if name in self._installer.read_records():
            raise ToolError(f"{name} was installed from elsewhere and cannot be edited.")
        if action == "create" and folder.exists():
            raise ToolError(f"There is a skill {name} already; use edit or patch.")
        if action != "create" and not (folder / SKILL_FILE).is_file():
            raise ToolError(f"There is no skill {name} that can be edited.")
        file = file or SKILL_FILE
        path = _resolve_file(folder, file)
        if action == "create" and Path(file) != Path(SKILL_FILE):
            raise ToolError("A skill begins with its SKILL.md; add other files with edit.")
        before = _read_text(path)
        if action == "patch":
            if before.count(old) != 1 or not old:
                raise ToolError(
                    f"old_text occurs {before.count(old) if old else 0} times in {file}."
                )
            content = before.replace(old, new)
        if action != "delete" and not content.strip():
            raise ToolError("content is empty.")
        if len(content.encode("utf-8", "replace")) > MAX_FILE_BYTES:
            raise ToolError(f"{file} would be larger than 1 MB.")
        return SkillChange(action, name, file, before, content)

    def make_change(self, change: SkillChange) -> None:
        """Write the file; the skill must be valid then, or nothing is changed."""
        if change.action == "delete":
            self._installer.remove_skill(change.name)
            return
        folder = self._find_folder(change.name)
        path = _resolve_file(folder, change.file)
        old = path.read_bytes() if path.is_file() else None
        if _read_text(path) != change.before:
            raise ToolError(f"{change.file} of {change.name} has changed since; nothing was done.")
        is_new = not folder.exists()
        try:
            make_private_folder(path.parent)
            replace_file(path, change.content.encode("utf-8", "replace"))
        except OSError as error:
            what = f"{change.file} of {change.name} cannot be written: {error.strerror}"
            raise ToolError(f"{what}. Nothing was changed.") from None
        if problems := validate_skill(folder):
            if is_new:
                shutil.rmtree(folder)
            elif old is None:
                path.unlink()
            else:
                replace_file(path, old)
            raise ToolError(f"It would not be a valid skill: {'; '.join(problems)}.")

    def _find_folder(self, name: str) -> Path:
        """Where the skill of that name is, or would be."""
        return self._installer.find_path(name) or self._installer.folder / name

    async def hold_change(self, change: SkillChange) -> str:
        """Keep the change for a person; its id."""
        body = msgspec.msgpack.encode(change)
        # Never the id of an earlier change: somebody may be about to agree to that one.
        while not await self._objects.add(SKILL_CHANGES, name := f"s{token_hex(3)}", body):
            pass
        await self._objects.trim(SKILL_CHANGES, _MAX_PENDING, owner="", spare=())
        return name

    async def list_changes(self) -> dict[str, SkillChange]:
        rows = await self._objects.list_all(SKILL_CHANGES)
        return {row.id: msgspec.msgpack.decode(row.body, type=SkillChange) for row in rows}

    async def take_change(self, number: str) -> SkillChange:
        stored = await self._objects.get(SKILL_CHANGES, number, owner="")
        if stored is None:
            raise ConfigError(f"There is no pending change {number}. Run: hermes skills pending")
        return msgspec.msgpack.decode(stored.body, type=SkillChange)

    async def drop_change(self, number: str) -> None:
        await self._objects.remove(SKILL_CHANGES, number, owner="")


def show_change(change: SkillChange) -> str:
    """What a person must see before agreeing: the difference, and what a scan finds in it."""
    if change.action == "delete":
        return f"delete the skill {change.name}"
    lines = diff_texts(f"{change.name}/{change.file}", change.before, change.content)
    found: list[ScanFinding] = scan_files({change.file: change.content.encode("utf-8", "replace")})
    return "\n".join([*lines, *(str(finding) for finding in found if finding.level != "low")])


def _read_text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def _is_usable(name: str) -> bool:
    """Whether files can have names with these parts."""
    parts = Path(name).parts
    return "\0" not in name and all(len(p.encode("utf-8", "replace")) <= 255 for p in parts)


def _resolve_file(folder: Path, file: str) -> Path:
    if not _is_usable(file):
        raise ToolError(f"{file[:60]!r} is no name for a file.")
    path = folder / file
    if not path.resolve().is_relative_to(folder.resolve()) or Path(file).is_absolute():
        raise ToolError(f"{file} is not inside the skill.")
    return path

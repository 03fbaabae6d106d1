"""The tools about skills: find them, read them, propose changes to them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from hermes.core.errors import ConfigError, ToolError
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.core.untrusted_text import reveal_hidden
from hermes.skills.proposals import SkillChange, show_change
from hermes.skills.session_skills import SessionSkills
from hermes.skills.skill import SKILL_FILE, SKILLS, Skill, split_text

_VIEW_BYTES = 24 * 1024
_MAX_NAMES = 50
_MAX_LISTED = 100
_WORDS = "skill skills instructions how-to procedure workflow guide"


class ListParams(Struct, frozen=True):
    query: str | None = None
    limit: int | None = None


class ViewParams(Struct, frozen=True):
    name: str
    file: str | None = None
    """A file of the skill; without it SKILL.md."""
    offset: int | None = None
    """Where to go on, in bytes."""


class ManageParams(Struct, frozen=True):
    action: Literal["create", "edit", "patch", "delete"]
    name: str
    content: str | None = None
    """create, edit: the whole file."""
    file: str | None = None
    """Without it SKILL.md."""
    old_text: str | None = None
    """patch: what occurs once in the file."""
    new_text: str | None = None
    why: str | None = None


def require_skills(ctx: ToolContext) -> SessionSkills:
    open_skills = ctx.services.get(SKILLS)
    if open_skills is None:
        raise ToolError("This session has no skills.")
    return open_skills()


@tool(
    "List skills: instructions for certain tasks, found by words of their names and descriptions.",
    toolset="skills",
    brings=(),
    sends=False,
    words=_WORDS,
)
async def skills_list(p: ListParams, ctx: ToolContext) -> ToolResult:
    mine = require_skills(ctx)
    found = search_skills(mine.list_skills(), p.query or "")
    limit = max(1, min(p.limit or 20, _MAX_LISTED))
    rows = [describe_skill(skill, mine) for skill in found[:limit]]
    return _answer({"ok": True, "skills": rows, "total": len(found)})


def search_skills(skills: list[Skill], query: str) -> list[Skill]:
    """Skills with any of the words, those with most of them first."""
    words = query.casefold().split()
    if not words:
        return skills

    def count(skill: Skill) -> int:
        text = f"{skill.name} {skill.description}".casefold()
        return sum(word in text for word in words)

    return sorted((s for s in skills if count(s)), key=count, reverse=True)


def describe_skill(skill: Skill, mine: SessionSkills) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": skill.name,
        "description": skill.description,
        "source": skill.source,
    }
    if unmet := mine.needs.find_unmet(skill):
        row["unmet"] = unmet
    return row


@tool(
    "Read a skill: its instructions and the names of its files, or one of its files.",
    toolset="skills",
    brings=(),
    sends=False,
    words=_WORDS,
)
async def skill_view(p: ViewParams, ctx: ToolContext) -> ToolResult:
    mine = require_skills(ctx)
    skill = mine.find_skill(p.name)
    if skill is None:
        near = [s.name for s in search_skills(mine.list_skills(), p.name)][:5]
        hint = f" Did you mean {', '.join(near)}?" if near else " Search with skills_list."
        raise ToolError(f"There is no skill {p.name}.{hint}")
    text = read_view(skill, p.file or "", max(0, p.offset or 0))
    await mine.open_skill(skill)
    return ToolResult(text, unquoted=True)


def read_view(skill: Skill, file: str, offset: int) -> str:
    """The text of a skill's file from `offset` on, headed by where it comes from."""
    folder = Path(skill.folder).resolve()
    path = folder / (file or SKILL_FILE)
    try:
        if not path.resolve().is_relative_to(folder):
            raise ToolError(f"{file} is not inside the skill.")
        if path.exists() and not path.is_file():
            raise ToolError(f"{file or SKILL_FILE} is not a plain file.")
        piece, end, size = _read_piece(path, offset)
    except OSError as error:
        raise ToolError(f"{file[:60] or SKILL_FILE} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ToolError(f"{file[:60]!r} is no name for a file.") from None
    lines = [f"Skill {skill.name}, installed by the user; it grants nothing.", "", piece.rstrip()]
    if size > end:
        lines.append(f"[{size - end} bytes more: offset {end}]")
    if not file:
        names = list_files(folder)
        lines += ["", f"Folder: {folder}"]
        lines += [f"Files: {', '.join(names)}"] if names else []
    return "\n".join(lines)


def _read_piece(path: Path, offset: int) -> tuple[str, int, int]:
    """A part of a file from `offset` on, where it ends, and how long the file is. It ends between
    two characters."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(offset)
        data = file.read(_VIEW_BYTES + 1)
    end = min(len(data), _VIEW_BYTES)
    for back in range(4):
        if end == len(data) or data[end - back] & 0xC0 != 0x80:
            end -= back
            break
    return data[:end].decode("utf-8", "ignore"), offset + end, size


def list_files(folder: Path) -> list[str]:
    """The names of a skill's other files, up to a bound."""
    names: list[str] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != SKILL_FILE and "/." not in f"/{name}":
            names.append(reveal_hidden(name))
            if len(names) == _MAX_NAMES:
                break
    return names


def expand_skill(skill: Skill, arguments: str) -> str:
    """The instructions as a message, with what the user wrote behind the command."""
    text = reveal_hidden((Path(skill.folder) / SKILL_FILE).read_text("utf-8", "replace"))
    body = split_text(text)[1].strip().replace("${HERMES_SKILL_DIR}", skill.folder)
    if "$ARGUMENTS" in body:
        return body.replace("$ARGUMENTS", arguments)
    return f"{body}\n\n{arguments}" if arguments else body


@tool(
    "Propose a change to the user's own skills: create, edit, patch or delete one. The user sees "
    "the difference and decides.",
    toolset="skills",
    risk="write",
    brings=(),
    sends=False,
    exclusive=True,
    asks_itself=True,
    words=_WORDS,
)
async def skill_manage(p: ManageParams, ctx: ToolContext) -> ToolResult:
    mine = require_skills(ctx)
    try:
        change = mine.proposals.plan_change(
            p.action,
            p.name,
            file=p.file or "",
            content=p.content or "",
            old=p.old_text or "",
            new=p.new_text or "",
        )
        change = structs.replace(change, why=(p.why or "")[:300], session=ctx.session_id)
        return _answer({"ok": True, **await _decide_change(change, mine, ctx)})
    except (ToolError, ConfigError) as error:
        return _answer({"ok": False, "error": str(error)}, error=True)


async def _decide_change(
    change: SkillChange, mine: SessionSkills, ctx: ToolContext
) -> dict[str, str]:
    reason = f"it changes the skill {change.name}, which later conversations follow"
    if change.why:
        reason += f'. The model\'s reason is "{change.why.replace(chr(34), chr(39))}"'
    answer = await ctx.user.confirm(ctx.call, reason, show_change(change))
    if answer is None:
        return {"status": "pending", "id": await mine.proposals.hold_change(change)}
    if not answer:
        raise ToolError("The user does not want this change. Nothing was changed.")
    mine.proposals.make_change(change)
    return {"status": "deleted" if change.action == "delete" else "saved"}


def _answer(data: dict[str, Any], *, error: bool = False) -> ToolResult:
    return ToolResult(msgspec.json.encode(data).decode(), data=data, error=error)

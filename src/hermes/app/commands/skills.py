"""/skills: the skills of this session, and the changes to them that wait for approval."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from hermes.app.commands import (
    CommandContext,
    Reply,
    command,
    refuse_agent_tool,
    take_confirmation,
)
from hermes.core.errors import ConfigError, ToolError
from hermes.core.message import user_message

if TYPE_CHECKING:
    from hermes.skills.bundle import SkillBundle
    from hermes.skills.installer import SkillInstaller
    from hermes.skills.proposals import SkillProposals
    from hermes.skills.session_skills import SessionSkills

_LISTED_CHARACTERS = 100
_PROPOSE = (
    "Read the skill write-skill (skill_view), then make a skill{name} of what was worked out in "
    "this conversation, with skill_manage."
)
_OBJECTS = {"install": "SOURCE", "validate": "PATH"}
_WARNING = "The agent will follow its instructions."
_CHANGING = frozenset(
    {"install", "update", "remove", "restore", "enable", "disable", "approve", "reject"}
)
_ADMIN_VERBS = _CHANGING | {"pending", "diff", "verify", "validate"}


@command(
    "skills",
    "list, install and change skills, or decide about proposed changes",
    "[search WORDS | inspect NAME | install SOURCE | update [NAME] | remove NAME | restore NAME | "
    "enable NAME | disable NAME | verify NAME | validate PATH | propose [NAME] | pending | diff ID "
    "| approve ID | reject ID]",
    needs_model=False,
)
async def show_skills(ctx: CommandContext, args: str) -> Reply:
    mine = ctx.runtime.knowledge.open_skills(ctx.session)
    verb, _, rest = args.strip().partition(" ")
    rest = rest.strip()
    if verb in _ADMIN_VERBS and not ctx.is_admin:
        raise ConfigError(f"/skills {verb} is for administrators.")
    if verb in _CHANGING:
        refuse_agent_tool("change its skills")
    match verb:
        case "" | "list" | "search":
            return Reply(_list_skills(mine, rest))
        case "inspect":
            return Reply(_read_skill(mine, rest))
        case "pending":
            found = await mine.proposals.list_changes()
            lines = [f"{number}  {c.action}  {c.name}  {c.why}" for number, c in found.items()]
            return Reply("\n".join(lines) or "Nothing waits for approval.")
        case "propose":
            name = f", named {rest}" if rest else ""
            return Reply(submit=user_message(_PROPOSE.format(name=name)))
        case "diff" | "approve" | "reject":
            return Reply(await _decide_change(mine.proposals, verb, rest))
    if verb not in _ADMIN_VERBS:
        raise ConfigError(f"/skills has no {verb}. See /help skills.")
    return await _change_skills(ctx, mine.installer, verb, rest)


async def _change_skills(
    ctx: CommandContext, installer: "SkillInstaller", verb: str, rest: str
) -> Reply:
    if not rest and verb != "update":
        raise ConfigError(f"/skills {verb} needs a {_OBJECTS.get(verb, 'NAME')}.")
    match verb:
        case "install":
            return await _install_skill(ctx, installer, rest)
        case "update":
            return await _update_skills(ctx, installer, rest)
        case "enable" | "disable":
            return await _switch_skills(ctx, rest.split(), enabled=verb == "enable")
        case "validate":
            return Reply(await asyncio.to_thread(_validate_folder, _find_folder(ctx) / rest))
    return Reply(await asyncio.to_thread(_change_installed, installer, verb, rest))


def _find_folder(ctx: CommandContext) -> Path:
    return Path(ctx.session.transcript.meta.cwd)


async def _install_skill(ctx: CommandContext, installer: "SkillInstaller", rest: str) -> Reply:
    from hermes.app.control.bundle_source import fetch_bundle, summarize_bundle

    agreed, words = take_confirmation(ctx, rest)
    source = " ".join(words)
    local = _find_folder(ctx) / source
    if local.exists():
        source = str(local)
    fetched = await fetch_bundle(ctx.runtime.setup, installer, source)
    if installer.find_path(fetched.name) is not None:
        name = fetched.name
        raise ConfigError(
            f"There is a skill {name} already. Send /skills update {name}, or remove it first."
        )
    shown = f"{summarize_bundle(fetched)}\n"
    return await asyncio.to_thread(_place_shown, installer, [(fetched, shown)], agreed)


async def _update_skills(ctx: CommandContext, installer: "SkillInstaller", rest: str) -> Reply:
    from hermes.app.control.bundle_source import fetch_bundle

    agreed, names = take_confirmation(ctx, rest)
    records = installer.read_records()
    lines: list[str] = []
    found: list[tuple[SkillBundle, str]] = []
    for name in names or sorted(records):
        if name not in records:
            raise ConfigError(f"{name} was not installed from elsewhere.")
        fetched = await fetch_bundle(ctx.runtime.setup, installer, records[name].source)
        installer.require_same(fetched, name)
        if fetched.digest == records[name].digest:
            lines.append(f"{name}: up to date")
        elif installer.find_changes(name):
            again = f"hermes skills update {name} --force"
            lines.append(f"{name} was changed here. To replace it, run in a terminal: {again}")
        else:
            found.append((fetched, f"{installer.diff_bundle(fetched)}\n"))
    if not found:
        return Reply("\n".join(lines) or "No skill was installed from elsewhere.")
    return await asyncio.to_thread(_place_shown, installer, found, agreed, lines)


def _place_shown(
    installer: "SkillInstaller",
    found: Sequence[tuple["SkillBundle", str]],
    agreed: bool,
    lines: Sequence[str] = (),
) -> Reply:
    """Install the skills, or show what they are and ask first. What was shown lies in quarantine:
    one that has changed since is shown again."""
    from hermes.skills.scan import is_blocked, scan_files

    texts, wanted = list(lines), []
    for fetched, shown in found:
        findings = scan_files(fetched.files)
        is_known = agreed and installer.is_quarantined(fetched)
        if is_blocked(findings):
            shown += "\n".join(map(str, findings))
            texts.append(f"{shown}\nblocked: {fetched.name} was not installed")
        elif is_known:
            texts.append(installer.place_bundle(fetched))
        else:
            installer.quarantine_bundle(fetched)
            texts.append(shown + "\n".join(map(str, findings)))
            wanted.append(fetched.name)
    text = "\n".join(text.rstrip() for text in texts)
    if not wanted:
        return Reply(text)
    return Reply(text, confirm=f"Install {', '.join(wanted)}? {_WARNING}")


async def _switch_skills(ctx: CommandContext, names: Sequence[str], *, enabled: bool) -> Reply:
    from hermes.app.control.skill_registry import switch_skills

    setup, folder = ctx.runtime.setup, _find_folder(ctx)
    await asyncio.to_thread(switch_skills, setup, folder, names, enabled=enabled)
    state = "on" if enabled else "off"
    return Reply("\n".join(f"{name} is {state} from the next start on." for name in names))


def _validate_folder(folder: Path) -> str:
    from hermes.skills.validation import validate_skill

    problems = validate_skill(folder.expanduser().resolve())
    if not problems:
        return f"Valid skill: {folder}"
    return "\n".join((f"Validation failed for {folder}:", *(f"  - {p}" for p in problems)))


def _list_skills(mine: "SessionSkills", words: str) -> str:
    from hermes.skills.skill_tools import describe_skill, search_skills

    rows = [describe_skill(skill, mine) for skill in search_skills(mine.list_skills(), words)]
    lines = [
        f"/{row['name']}: {shorten(row['description'], _LISTED_CHARACTERS, placeholder=' …')}"
        + (f" [{row['unmet']}]" if "unmet" in row else "")
        for row in rows
    ]
    return "\n".join(lines) or "Nothing found."


def _read_skill(mine: "SessionSkills", name: str) -> str:
    from hermes.skills.skill_tools import read_view

    skill = mine.find_skill(name)
    if skill is None:
        raise ConfigError(f"There is no skill {name}. See /skills.")
    return read_view(skill, "", 0)


async def _decide_change(proposals: "SkillProposals", verb: str, number: str) -> str:
    from hermes.skills.proposals import show_change

    change = await proposals.take_change(number)
    if verb == "diff":
        return show_change(change)
    if verb == "approve":
        try:
            proposals.make_change(change)
        except ToolError as error:
            raise ConfigError(str(error)) from None
    await proposals.drop_change(number)
    return f"{'Approved' if verb == 'approve' else 'Rejected'} {number}."


def _change_installed(installer: "SkillInstaller", verb: str, name: str) -> str:
    if verb == "remove":
        installer.remove_skill(name)
        return f"removed {name}; to bring it back: /skills restore {name}"
    if verb == "restore":
        installer.restore_skill(name)
        return f"restored {name}"
    if name not in installer.read_records():
        raise ConfigError(f"{name} was not installed from elsewhere.")
    changed = installer.find_changes(name)
    return f"{name}: changed since it was installed" if changed else f"{name}: unchanged"

"""/skills: the skills of this session, and the changes to them that wait for approval."""

from typing import TYPE_CHECKING

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError, ToolError
from hermes.core.message import user_message

if TYPE_CHECKING:
    from hermes.skills.installer import SkillInstaller
    from hermes.skills.proposals import SkillProposals
    from hermes.skills.session_skills import SessionSkills

_PROPOSE = (
    "Read the skill write-skill (skill_view), then make a skill{name} of what was worked out in "
    "this conversation, with skill_manage."
)
_TERMINAL_VERBS = frozenset({"install", "update", "enable", "disable", "validate"})
_ADMIN_VERBS = frozenset({"pending", "diff", "approve", "reject", "remove", "restore", "verify"})


@command(
    "skills",
    "list skills, or decide about proposed changes to them",
    "[search WORDS | inspect NAME | propose [NAME] | remove NAME | restore NAME | verify NAME | "
    "pending | diff ID | approve ID | reject ID]",
    needs_model=False,
)
async def show_skills(ctx: CommandContext, args: str) -> Reply:
    mine = ctx.runtime.knowledge.open_skills(ctx.session)
    verb, _, rest = args.strip().partition(" ")
    rest = rest.strip()
    if verb in _ADMIN_VERBS and not ctx.is_admin:
        raise ConfigError(f"/skills {verb} is for administrators.")
    if verb in _TERMINAL_VERBS:
        raise ConfigError(f"Run in a terminal: hermes skills {verb} {rest}".rstrip())
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
        case "remove" | "restore" | "verify" if rest:
            return Reply(_change_installed(mine.installer, verb, rest))
        case "diff" | "approve" | "reject":
            return Reply(await _decide_change(mine.proposals, verb, rest))
    raise ConfigError(f"/skills has no {verb}. See /help skills.")


def _list_skills(mine: "SessionSkills", words: str) -> str:
    from hermes.skills.skill_tools import describe_skill, search_skills

    rows = [describe_skill(skill, mine) for skill in search_skills(mine.list_skills(), words)]
    lines = [
        f"/{row['name']}: {row['description'][:100]}"
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

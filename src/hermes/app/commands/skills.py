"""/skills: the skills of this session, and the changes to them that wait for approval."""

from typing import TYPE_CHECKING

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError, ToolError
from hermes.core.message import user_message

if TYPE_CHECKING:
    from hermes.skills.installer import SkillInstaller

_PROPOSE = (
    "Read the skill write-skill (skill_view), then make a skill{name} of what was worked out in "
    "this conversation, with skill_manage."
)


_TERMINAL_VERBS = frozenset({"install", "update", "enable", "disable", "validate", "verify"})


@command(
    "skills",
    "list skills, or decide about proposed changes to them",
    "[search WORDS | inspect NAME | propose [NAME] | remove NAME | restore NAME | verify NAME | "
    "pending | diff ID | approve ID | reject ID]",
    aliases=("reload-skills",),
    admin_only=True,
    needs_model=False,
)
async def show_skills(ctx: CommandContext, args: str) -> Reply:
    from hermes.skills.proposals import show_change
    from hermes.skills.skill_tools import describe_skill, read_view, search_skills

    mine = ctx.runtime.knowledge.open_skills(ctx.session)
    verb, _, rest = args.strip().partition(" ")
    rest = rest.strip()
    if verb in ("pending", "diff", "approve", "reject") and not ctx.is_admin:
        raise ConfigError(f"/skills {verb} is for administrators.")
    if verb in ("", "list", "search"):
        rows = [describe_skill(skill, mine) for skill in search_skills(mine.list_skills(), rest)]
        lines = [
            f"/{row['name']}: {row['description'][:100]}"
            + (f" [{row['unmet']}]" if "unmet" in row else "")
            for row in rows
        ]
        return Reply("\n".join(lines) or "Nothing found.")
    if verb == "inspect":
        skill = mine.find_skill(rest)
        if skill is None:
            raise ConfigError(f"There is no skill {rest}. See /skills.")
        return Reply(read_view(skill, "", 0))
    if verb == "pending":
        found = await mine.proposals.list_changes()
        lines = [f"{number}  {c.action}  {c.name}  {c.why}" for number, c in found.items()]
        return Reply("\n".join(lines) or "Nothing waits for approval.")
    if verb in ("remove", "restore", "verify") and rest:
        return Reply(_change_installed(mine.installer, verb, rest))
    if verb in _TERMINAL_VERBS:
        raise ConfigError(f"Run in a terminal: hermes skills {verb} {rest}".rstrip())
    if verb == "propose":
        name = f", named {rest}" if rest else ""
        return Reply(submit=user_message(_PROPOSE.format(name=name)))
    if verb not in ("diff", "approve", "reject"):
        raise ConfigError(f"/skills has no {verb}. See /help skills.")
    change = await mine.proposals.take_change(rest)
    if verb == "diff":
        return Reply(show_change(change))
    if verb == "approve":
        try:
            mine.proposals.make_change(change)
        except ToolError as error:
            raise ConfigError(str(error)) from None
    await mine.proposals.drop_change(rest)
    return Reply(f"{'Approved' if verb == 'approve' else 'Rejected'} {rest}.")


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

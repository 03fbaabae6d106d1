"""/skills: the skills of this session, and the changes to them that wait for approval."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError, ToolError


@command(
    "skills",
    "list skills, or decide about proposed changes to them",
    "[search WORDS | inspect NAME | pending | diff ID | approve ID | reject ID]",
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

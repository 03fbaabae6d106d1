"""/reload-skills: finds skills that were added."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.text import format_plural


@command("reload-skills", "find skills that were added", admin_only=True, needs_model=False)
async def reload_skills(ctx: CommandContext, args: str) -> Reply:
    found = ctx.runtime.knowledge.open_skills(ctx.session).list_skills()
    return Reply(f"{format_plural(len(found), 'skill')}. See /skills.")

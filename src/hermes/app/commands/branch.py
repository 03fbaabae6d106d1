"""/branch: continue in a copy of the session and leave the original unchanged."""

from hermes.app.commands import CommandContext, Reply, command, require_idle
from hermes.core.errors import ConfigError


@command("branch", "continue in a copy of this session", "[TITLE]", aliases=("fork",))
async def branch_session(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    require_idle(session)
    if not len(session.transcript.history):
        raise ConfigError("There is nothing to branch from yet.")
    child = await ctx.runtime.branch_session(ctx.session, len(session.transcript.history), args)
    text = f"Now on a new branch ({child.id}). To return: /resume {session.id}"
    return Reply(text, session=child)

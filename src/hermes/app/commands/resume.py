"""/resume: resume a stored session."""

from hermes.app.commands import CommandContext, Reply, command, require_idle
from hermes.app.commands._lookup import find_own_session
from hermes.core.errors import ConfigError


@command("resume", "resume a stored session", "ID|TITLE", surfaces="live")
async def resume_session(ctx: CommandContext, args: str) -> Reply:
    if not args:
        raise ConfigError("/resume needs the id or the title of a session. See /sessions.")
    require_idle(ctx.session)
    meta = await find_own_session(ctx.runtime.store, ctx.session.transcript.meta, args)
    other = await ctx.runtime.reopen_session(ctx.session, meta.id)
    title = f": {other.transcript.meta.title}" if other.transcript.meta.title else ""
    return Reply(f"Resumed {other.id}{title}", session=other)

"""/resume: go on with a stored session."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply
from hermes.app.commands._lookup import find
from hermes.core.errors import ConfigError


async def run(ctx: CommandContext, args: str) -> Reply:
    if not args:
        raise ConfigError("/resume needs the id or the title of a session; /sessions lists them.")
    if ctx.session.busy:
        raise ConfigError("A turn is running; /stop it first.")
    meta = await find(ctx, args)
    other = await ctx.runtime.reopen(ctx.session, meta.id)
    title = f": {other.transcript.meta.title}" if other.transcript.meta.title else ""
    return Reply(f"Going on with {other.id}{title}", session=other)


COMMAND = Command("resume", "go on with a stored session", run, usage="ID|TITLE", surfaces="live")

"""/title: what the session is called."""

from __future__ import annotations

from msgspec import structs

from hermes.app.commands import Command, CommandContext, Reply
from hermes.core.text import replace_invalid

LONGEST = 200


async def run(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    if not args:
        return Reply(session.transcript.meta.title or "This session has no title yet.")
    title = " ".join(replace_invalid(args).split())[:LONGEST]
    session.transcript.meta = structs.replace(session.transcript.meta, title=title)
    if await ctx.runtime.store.sessions.get_meta(session.id) is not None:
        await ctx.runtime.store.sessions.update_meta(session.id, title=title)
    return Reply(f"The session is called: {title}")


COMMAND = Command(
    "title", "show or change what this session is called", run, "[TEXT]", needs_model=False
)

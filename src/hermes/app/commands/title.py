"""/title: show or change the title of the session."""

from msgspec import structs

from hermes.app.commands import Command, CommandContext, Reply
from hermes.core.text import replace_invalid

LONGEST = 200


async def set_title(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    if not args:
        return Reply(session.transcript.meta.title or "This session has no title yet.")
    title = " ".join(replace_invalid(args).split())[:LONGEST]
    session.transcript.meta = structs.replace(session.transcript.meta, title=title)
    if await ctx.runtime.store.sessions.get_meta(session.id) is not None:
        await ctx.runtime.store.sessions.update_meta(session.id, title=title)
    return Reply(f"Title: {title}")


COMMAND = Command(
    "title", "show or change the session's title", set_title, "[TEXT]", needs_model=False
)

"""/title: show or change the title of the session."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.text import replace_invalid

_MAX_CHARS = 200


@command("title", "show or change the session's title", "[TEXT]", needs_model=False)
async def set_title(ctx: CommandContext, args: str) -> Reply:
    transcript = ctx.session.transcript
    if not args:
        return Reply(transcript.meta.title or "This session has no title yet.")
    title = " ".join(replace_invalid(args).split())[:_MAX_CHARS]
    await transcript.update_meta(title=title)
    return Reply(f"Title: {title}")

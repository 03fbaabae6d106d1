"""/retry: regenerate the last answer."""

from hermes.app.commands import CommandContext, Reply, command, require_idle
from hermes.app.session_records import find_turn_starts
from hermes.core.errors import ConfigError


@command("retry", "regenerate the last answer")
async def retry_message(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    require_idle(session)
    starts = find_turn_starts(session.transcript.history.messages)
    if not starts:
        raise ConfigError("There is no message to answer again.")
    message = session.transcript.history.messages[starts[-1]]
    child = await ctx.runtime.branch_session(ctx.session, starts[-1])
    text = "Answering the last message again. Files are left unchanged (/undo restores them)."
    return Reply(text, session=child, submit=message)
